"""Forks on the command line."""

from by_hand import Runtime
from commands import Commands

from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.store import Inbound, SessionSettings


async def test_a_session_is_forked_and_tells_where_it_comes_from(
    runtime: Runtime, commands: Commands
) -> None:
    key, folder = SessionKey("default", "s"), str(runtime.workspace)
    await runtime.store.create_session(key, SessionSettings(folder, folder))
    await runtime.store.accept(key, Inbound("m", "message", user_text("go")))
    await runtime.work("s", "done")

    done = await commands("fork", "s", "--at", "1", "--id", "f")
    assert (done.code, done.out) == (0, "f\n")
    assert done.err.splitlines() == [
        "Session f begins with session s up to turn 1.",
        f"It works in {folder} itself, beside session s: files are as they are now. '--folder copy'"
        " gives a fork a folder of its own.",
        "Go on in it with 'everturn run --session f TASK'.",
    ]
    shown = await commands("sessions", "show", "f")
    assert "It begins with session s up to turn 1." in shown.out
    assert "go (fork of s)" in shown.out

    wrong = await commands("fork", "s", "--edit-result", "1.1.0=@none")
    assert (wrong.code, wrong.err) == (
        *(2, "none cannot be read: No such file or directory; name another.\n"),
    )
