"""Hooks run once a session, before the first step of the agent, whatever is killed meanwhile."""

import json
from pathlib import Path

import pytest
from harness import Bench, calls, eventually, says, scripted

from everturn.events import Event
from everturn.hooks import Hook
from everturn.session import SessionKey
from everturn_activities.store import Caller, HookStarted
from everturn_workers import reconciler

LINE = "echo ran >> hook.log; echo The tree has 3 files."


def hook(made: Bench, *commands: str, timeout_seconds: float = 30) -> None:
    """Set hooks that run `commands` by sh."""
    lines = [
        f"[[hooks.agent_spawn]]\ncommand = {json.dumps(['sh', '-c', command])}\n"
        f"timeout_seconds = {timeout_seconds}\n"
        for command in commands
    ]
    (made.workspace / "everturn.toml").write_text("".join(lines))


def runs(workspace: Path) -> int:
    log = workspace / "hook.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def told(events: list[Event]) -> list[str]:
    return [event.body["text"] for event in events if event.type == "status"]


async def outputs(made: Bench, key: SessionKey, *commands: str) -> list[str]:
    hooks = [Hook(command=("sh", "-c", command)) for command in commands]
    return await made.runtime.store.hook_outputs(key, hooks)


async def test_a_hook_runs_once_a_session_before_its_first_step(made: Bench) -> None:
    hook(made, LINE)
    key, other = await made.session("s"), await made.session("other")
    async with made.worker(scripted(says("one"), says("two"))):
        for number in (1, 2):
            await made.send(key, f"message {number}")
            await made.until(key, "turn_finished", turn=number)
        assert runs(made.workspace) == 1
        await made.send(other, "elsewhere")
        await made.until(other, "turn_finished")
    assert runs(made.workspace) == 2
    assert await outputs(made, key, LINE) == ["The tree has 3 files.\n"]


async def test_a_hook_that_has_ended_is_not_run_again_by_who_takes_the_turn_over(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "HOSTLESS_SECONDS", 1.0)
    hook(made, LINE)
    key = await made.session()
    gateway = scripted(calls("add", a=1, b=2), says("done", hold="mid"))
    async with made.worker(gateway):
        await made.send(key, "go")
        await gateway.reached("mid")
        await made.client.get_workflow_handle(key.workflow_id).terminate()
        await made.until(key, "status")  # Another run has taken the turn over.
        gateway.release("mid")
        events = await made.until(key, "turn_finished")
        await made.closed(key)
    assert events[-1].body["outcome"] == "completed"
    assert "lost its workflow" in told(events)[0]
    assert runs(made.workspace) == 1


async def test_a_hook_that_was_cut_off_is_told_and_not_run_again(made: Bench) -> None:
    hook(made, LINE, "echo second")
    key = await made.session()
    store = made.runtime.store
    begin = type(store).begin_hook

    async with made.worker(scripted(says("fine"))) as instance:
        dead = f"{instance.split('-')[0]}-dead"

        async def begun_by_another(
            key: SessionKey, turn: int, epoch: int, hook: Hook, caller: Caller
        ) -> object:
            # Another worker wrote its intent first, and died.
            store.begin_hook = begin.__get__(store)  # type: ignore[method-assign]
            first = await store.begin_hook(key, turn, epoch, hook, Caller(dead, "n"))
            assert isinstance(first, HookStarted)
            return await store.begin_hook(key, turn, epoch, hook, caller)

        store.begin_hook = begun_by_another  # type: ignore[method-assign, assignment]
        await made.send(key, "go")
        events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "completed"
    assert runs(made.workspace) == 0
    assert told(events) == [
        "The hook sh was cut off with its worker: whether it took effect is not known. It is not"
        " run again in this session."
    ]
    assert await outputs(made, key, LINE, "echo second") == ["", "second\n"]


@pytest.mark.parametrize(
    ("command", "timeout_seconds", "problem"),
    [
        ("echo secret; exit 3", 30, "The hook sh ended with exit code 3, so what it printed is"
                                    " left out."),
        ("sleep 60", 0.2, "The hook sh did not come to its end: The command was ended after 0.2 s,"
                          " its time-out."),
    ],
)  # fmt: skip
async def test_a_hook_that_fails_is_told_and_the_turn_goes_on(
    made: Bench, command: str, timeout_seconds: float, problem: str
) -> None:
    hook(made, command, timeout_seconds=timeout_seconds)
    key = await made.session()
    async with made.worker(scripted(says("fine"))):
        await made.send(key, "go")
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == "completed"
    assert told(events) == [problem]
    assert await outputs(made, key, command) == [""]


async def test_a_cancel_ends_a_hook_and_its_turn_at_once(made: Bench) -> None:
    hook(made, "touch began; sleep 60")
    key = await made.session()
    async with made.worker(scripted(says("never"))):
        await made.send(key, "go")
        await eventually(lambda: (made.workspace / "began").exists())
        await made.cancel(key)
        events = await made.until(key, "turn_finished")
        await made.closed(key)
    assert events[-1].body["outcome"] == "cancelled"
    assert told(events) == [
        "The hook sh was ended with its turn. It is not run again in this session."
    ]
