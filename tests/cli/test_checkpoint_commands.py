"""File checkpoints on the command line."""

import time

from by_hand import Runtime
from commands import Commands

from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.checkpoints import Checkpoints, Record
from everturn_activities.store import Inbound, SessionSettings


async def test_changed_files_are_listed_and_put_back(runtime: Runtime, commands: Commands) -> None:
    key, folder = SessionKey("default", "s"), str(runtime.workspace)
    await runtime.store.create_session(key, SessionSettings(folder, folder))
    none = await commands("checkpoints", "list", "s")
    assert (none.code, none.err) == (0, "No tool of session s has changed a file.\n")
    wrong = await commands("checkpoints", "restore", "s", "0.x")
    assert (wrong.code, wrong.err) == (
        2,
        "The step '0.x' is not possible; write TURN.STEP such as 2.1.\n",
    )

    (runtime.workspace / "a.txt").write_text("old")
    checkpoints = Checkpoints(runtime.folder)
    for name, text in (("a.txt", "new"), ("b.txt", "made")):
        checkpoints.before(key, Record(1, 1, name, "write_file", folder, time.time()), name)
        (runtime.workspace / name).write_text(text)
        checkpoints.after(key, name)
    listed = (await commands("checkpoints", "list", "s")).out.splitlines()
    assert listed[0].startswith("1.1 ")
    assert listed[0].endswith("write_file, write_file")
    assert listed[1:] == ["  ~ a.txt", "  + b.txt"]

    await runtime.store.accept(key, Inbound("m", "message", user_text("go")))
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    await runtime.finish(head, context, attempt, "done")
    (runtime.workspace / "b.txt").write_text("by a person")
    done = await commands("checkpoints", "restore", "s", "1")
    assert (done.code, done.out) == (0, "put back a.txt\n")
    assert done.err == "left b.txt: somebody else has changed it since\n"
    assert (runtime.workspace / "a.txt").read_text() == "old"
