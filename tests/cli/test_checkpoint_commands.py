"""File checkpoints on the command line."""

import json
import time

import pytest
from by_hand import Runtime
from commands import Commands

from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities import checkpoints as rules
from everturn_activities import tree_index
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Record
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


async def test_what_is_not_kept_or_listed_is_told(
    runtime: Runtime, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, folder = SessionKey("default", "s"), str(runtime.workspace)
    await runtime.store.create_session(key, SessionSettings(folder, folder))
    await runtime.store.accept(key, Inbound("m", "message", user_text("go")))
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    await runtime.finish(head, context, attempt, "done")
    monkeypatch.setattr(tree_index, "FILE_BYTES_MAX", 4)
    monkeypatch.setattr(rules, "CHANGES_MAX", 2)
    monkeypatch.setattr(rules, "RECORDS_KEPT", 1)
    checkpoints, below = Checkpoints(runtime.folder), runtime.workspace / "below"
    below.mkdir()
    (below / "large.txt").write_text("too large")
    for step in (1, 2, 3):
        checkpoints.before(key, Record(1, step, f"c{step}", "run_command", str(below), 0.0), None)
        for name in ("a", "large", "z"):
            (below / f"{name}.txt").write_text(f"{step}" * (2 if name == "a" else 9))
        checkpoints.after(key, f"c{step}")

    listed = (await commands("checkpoints", "list", "s")).out.splitlines()
    assert listed[1:5] == [
        "  ~ a.txt",
        "  ~ large.txt (what it held was not kept)",
        "  and 1 more that are not recorded",
        "  too large or too many to be kept: 2",
    ]
    lines = (await commands("checkpoints", "list", "s", "--json")).out.splitlines()
    views = [json.loads(line) for line in lines]
    assert [(view["step"], view["unrecorded"]) for view in views] == [(2, 1), (3, 1)]
    done = await commands("checkpoints", "restore", "s", "1")
    assert done.err.splitlines()[-2:] == [
        "Changes of files that commands made beyond the first 2 of a call are not recorded, and"
        " still stand: 2.",
        "What calls did up to step 1.1 is kept no more, and may still stand.",
    ]
    again = await commands("checkpoints", "restore", "s", "1.3", "--json")
    assert (again.code, json.loads(again.out)["files"]) == (0, [])
