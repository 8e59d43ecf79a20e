"""File checkpoints over HTTP: listed by step, and put back while the session rests."""

import time

import pytest
from by_hand import Runtime

from everturn.client import Client
from everturn.errors import UnknownSession, UsageError
from everturn.session import SessionKey
from everturn.views import FileChangeView, KeptFileView
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Record

KEY = SessionKey("default", "s")


def writes(runtime: Runtime, step: int, name: str, text: str) -> None:
    """What a call of write_file does."""
    checkpoints, call = Checkpoints(runtime.folder), f"{step}-{name}"
    record = Record(1, step, call, "write_file", str(runtime.workspace), time.time())
    checkpoints.before(KEY, record, name)
    (runtime.workspace / name).write_text(text)
    checkpoints.after(KEY, call)


async def rests(runtime: Runtime, client: Client) -> None:
    """A session with one turn that has ended."""
    await client.create_session("s")
    await client.send("s", "go")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    await runtime.finish(head, context, attempt, "done")


async def test_changes_of_files_are_listed_by_step_and_put_back(runtime: Runtime, client: Client):
    await rests(runtime, client)
    assert await client.checkpoints("s") == ()
    (runtime.workspace / "a.txt").write_text("old")
    writes(runtime, 1, "a.txt", "new")
    writes(runtime, 2, "b.txt", "made")
    one, two = await client.checkpoints("s")
    assert (one.turn, one.step, one.tools) == (1, 1, ("write_file",))
    assert one.files == (FileChangeView(path="a.txt", change="changed"),)
    assert two.files == (FileChangeView(path="b.txt", change="made"),)

    assert (await client.restore_files("s", 1, 2)).files == ("b.txt",)
    assert not (runtime.workspace / "b.txt").exists()
    (runtime.workspace / "a.txt").write_text("by a person")
    restored = await client.restore_files("s", 1)
    assert restored.kept == (KeptFileView(path="a.txt", why="somebody else has changed it since"),)
    assert (runtime.workspace / "a.txt").read_text() == "by a person"


async def test_files_are_not_put_back_under_a_turn_or_where_nothing_is_known(
    runtime: Runtime, client: Client
):
    with pytest.raises(UnknownSession):
        await client.checkpoints("s")
    await rests(runtime, client)
    with pytest.raises(UsageError, match=r"no checkpoint of step 3\.1 or later"):
        await client.restore_files("s", 3)
    writes(runtime, 1, "a.txt", "new")
    await client.send("s", "again")
    with pytest.raises(UsageError, match="works at its files; cancel it"):
        await client.restore_files("s", 1)
    assert (runtime.workspace / "a.txt").read_text() == "new"
