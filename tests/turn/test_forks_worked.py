"""Forks as workers work them: replays act on nothing, own folders are as at their step."""

from pathlib import Path

import pytest
from harness import Bench, calls, says, scripted
from test_executors import tasks
from test_session_folders import committed, session_in

from everturn.forks import ForkSession
from everturn.messages import ToolMessage
from everturn.session import SessionKey
from everturn_activities.own_folders import own_path
from everturn_activities.store import ForkFolder


async def fork(made: Bench, key: SessionKey, folder: ForkFolder, **wanted: object) -> SessionKey:
    fork_key = made.key("f")
    wake = await made.runtime.store.forks.fork(
        key, fork_key, ForkSession.model_validate(wanted), folder
    )
    if wake is not None:
        await made.front.wake(wake)
    return fork_key


def told(events: list) -> list[str]:  # type: ignore[type-arg]
    return [event.body["text"] for event in events if event.type == "status"]


async def test_a_turn_that_is_worked_again_acts_on_nothing(made: Bench, workspace: Path):
    agents = workspace / "agents"
    agents.mkdir()
    # Neither a person nor a hook hears of what is not done.
    (agents / "default.md").write_text(
        "---\nallowed_tools: [effect, delegate]\n"
        "hooks: {turn_end: [{command: 'true'}], agent_spawn: [{command: 'mkdir hooked'}]}\n"
        "---\nBe brief."
    )
    key = await made.session()
    shared = ForkFolder("shared", str(workspace))
    first = scripted(
        *(calls("effect"), tasks("Count."), says("done")), by_last_user={"^Count": [says("1")]}
    )
    async with made.worker(first):
        await made.send(key, "go")
        await made.until(key, "turn_finished")
        await made.closed(key)
        (workspace / "hooked").rmdir()
        fork_key = await fork(made, key, shared, replay="turn", turn=1)
        events = await made.until(fork_key, "turn_finished")
        await made.closed(fork_key)
    assert events[-1].body["text"] == "done"
    assert not (workspace / "hooked").exists()
    assert "f" not in {one.session for one in await made.runtime.store.due_hooks(9)}
    results = [m.results for m in await made.transcript(fork_key) if isinstance(m, ToolMessage)]
    assert [[(one.text, one.recorded) for one in step] for step in results] == [
        [("effected", True)],
        [("Executor s:1.2.0 has done its work:\n\n1", True)],
    ]
    assert len((workspace / "effects.log").read_text().splitlines()) == 1
    assert await made.runtime.store.sessions(made.tenant, 9, None, fork_key.session) == []


@pytest.mark.parametrize("kind", ["copy", "worktree"])
async def test_a_forks_own_folder_is_as_its_origins_was_at_the_step(made: Bench, kind: str):
    committed(made.workspace)
    key, own = await session_in(made, kind)  # type: ignore[arg-type]

    def writes(path: str, content: str) -> dict[str, object]:
        return calls("write_file", path=path, content=content)

    steps = (writes("a.txt", "one"), writes("a.txt", "two"), writes("b.txt", "made"))
    again = {"on": [writes("c.txt", "by the fork"), says("so")]}
    async with made.worker(scripted(*steps, says("done"), by_last_user=again)):
        await made.send(key, "go")
        await made.until(key, "turn_finished")
        await made.closed(key)
        new = own_path(made.settings.home, made.key("f"), kind, own)  # type: ignore[arg-type]
        folder = ForkFolder(kind, str(own), str(new))  # type: ignore[arg-type]
        fork_key = await fork(made, key, folder, turn=1, step=1, message="on")
        events = await made.until(fork_key, "turn_finished")
        await made.closed(fork_key)

    assert new is not None
    assert (new / "a.txt").read_text() == "one"
    assert not (new / "b.txt").exists()
    assert (new / "c.txt").read_text() == "by the fork"
    assert sorted(path.name for path in own.glob("*.txt")) == ["a.txt", "b.txt"]
    (said,) = told(events)
    assert said.startswith("Files are as at 1.1 of session s. Put back as they were: a.txt")


async def test_files_of_executors_go_back_with_the_turn_that_is_rolled_back(made: Bench):
    (made.workspace / "a.txt").write_text("old")
    key = await made.session()
    model = scripted(
        calls("write_file", path="a.txt", content="by the parent"),
        tasks("Change it."),
        says("thinking", hold="mid"),
        by_last_user={
            "^Change it": [calls("write_file", path="a.txt", content="by it"), says("changed")],
            "instead": [says("new")],
        },
    )
    async with made.worker(model):
        await made.send(key, "go")
        await model.reached("mid")
        assert (made.workspace / "a.txt").read_text() == "by it"
        await made.send(key, "instead", mode="rollback")
        events = await made.until(key, "turn_finished", turn=2)
        await made.closed(key)
    assert (made.workspace / "a.txt").read_text() == "old"
    assert told(events) == ["Turn 1 was rolled back. Put back as they were: a.txt."]
