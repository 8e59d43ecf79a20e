"""Hooks beside tool calls: what they see, what they keep from running, what they add."""

import json
from typing import Any

import pytest
from harness import Bench, calls, eventually, says, scripted

from everturn.approvals import ToolVerdict
from everturn.events import Event
from everturn.messages import ToolMessage
from everturn.session import SessionKey
from everturn_activities.store import Caller, HookStarted, Inbound

SEES = "cat >> seen.log; echo >> seen.log; "
REFUSES = SEES + "echo 'No effects today.' >&2; exit 2"


def hooks(made: Bench, *tables: tuple[str, str, dict[str, Any]]) -> None:
    """Set hooks: the moment, the text for sh, and more of its fields."""
    written = ""
    for moment, command, more in tables:
        fields = {"command": command, **more}
        written += f"[[hooks.{moment}]]\n"
        written += "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
    (made.workspace / "everturn.toml").write_text(written)


def seen(made: Bench) -> list[dict[str, Any]]:
    """What the hooks were given to read, in the order in which they ran."""
    log = made.workspace / "seen.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def finished(events: list[Event]) -> list[tuple[Any, ...]]:
    fields = ("moment", "index", "exit_code", "blocked")
    return [
        tuple(event.body[field] for field in fields)
        for event in events
        if event.type == "hook_finished"
    ]


async def results(made: Bench, key: SessionKey) -> list[tuple[str, bool]]:
    return [
        (result.text, result.failed)
        for message in await made.transcript(key)
        if isinstance(message, ToolMessage)
        for result in message.results
    ]


def effects(made: Bench) -> int:
    log = made.workspace / "effects.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


async def work(made: Bench, *replies: dict[str, Any], **settings: Any) -> list[Event]:
    key = await made.session()
    async with made.worker(scripted(*replies), **settings):
        await made.send(key, "go")
        return await made.until(key, "turn_finished")


def two(first: str, second: str, **arguments: Any) -> dict[str, Any]:
    named = [{"name": first, "arguments": {}}, {"name": second, "arguments": arguments}]
    return {"calls": named}


@pytest.mark.parametrize("placement", ["inline", "queued"])
async def test_b27_hooks_are_asked_call_by_call_and_what_one_refuses_never_runs(
    made: Bench, placement: str
) -> None:
    hooks(
        made,
        ("pre_tool_use", REFUSES, {"matcher": "effect"}),
        ("pre_tool_use", SEES, {"matcher": "*"}),
    )
    events = await work(made, two("effect", "add", a=1, b=2), says("ok"), placement=placement)

    assert [(one["event"], one["tool"], one["arguments"]) for one in seen(made)] == [
        ("PreToolUse", "effect", {}),
        ("PreToolUse", "add", {"a": 1, "b": 2}),
    ]
    assert finished(events) == [("PreToolUse", 0, 2, True), ("PreToolUse", 1, 0, False)]
    assert effects(made) == 0
    assert [e.body["name"] for e in events if e.type == "tool_started"] == ["add"]
    assert await results(made, made.key()) == [
        ("The call did not run: a hook of the operator's refused it: No effects today.", True),
        ("3", False),
    ]
    assert events[-1].body["outcome"] == "completed"


async def test_b28_what_hooks_let_pass_runs_together_and_results_are_in_call_order(
    made: Bench,
) -> None:
    hooks(made, ("pre_tool_use", REFUSES, {"matcher": "effect"}))
    slow = {"name": "slow", "arguments": {"seconds": 1.0}}
    reply = {"calls": [slow, {"name": "effect", "arguments": {}}, slow]}
    events = await work(made, reply, says("ok"))
    began = [event.time for event in events if event.type == "tool_started"]
    ended = [e.time for e in events if e.type == "tool_finished" and e.body["name"] == "slow"]
    assert max(began) < min(ended)
    assert [text.split(":")[0] for text, _ in await results(made, made.key())] == [
        "slept",
        "The call did not run",
        "slept",
    ]


async def test_a_hook_after_a_call_is_told_its_result_and_its_note_stands_behind_it(
    made: Bench,
) -> None:
    hooks(
        made,
        ("post_tool_use", SEES + "echo Formatted.", {"matcher": "echo|nothing"}),
        ("post_tool_use", "exit 3", {}),
    )
    events = await work(made, two("effect", "echo", text="hi"), says("ok"))
    (told,) = seen(made)
    assert (told["event"], told["tool"]) == ("PostToolUse", "echo")
    assert told["result"] == {"text": "hi", "failed": False}
    assert await results(made, made.key()) == [
        ("effected", False),
        ("hi\n[Note of a hook, and not of the tool:]\nFormatted.", False),
    ]
    assert finished(events) == [
        ("PostToolUse", 0, 3, False),
        ("PostToolUse", 1, 0, False),
        ("PostToolUse", 1, 3, False),
    ]


@pytest.mark.parametrize("moment", ["pre_tool_use", "post_tool_use"])
async def test_a_call_that_would_run_with_its_reply_has_its_hooks_too(
    made: Bench, moment: str
) -> None:
    hooks(made, (moment, SEES, {}))
    await work(made, calls("add", a=1, b=2), says("3"), placement="inline")
    assert [one["tool"] for one in seen(made)] == ["add"]
    assert await results(made, made.key()) == [("3", False)]


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("exit 3", {}, "The hook sh ended with exit code 3, which is neither 0 nor 2."),
        ("sleep 60", {"timeout_seconds": 0.2}, "The hook sh did not come to its end: The command"
                                               " was ended after 0.2 s, its time-out."),
        ("exit 0", {"cwd": "nowhere"}, "The hook sh ended with exit code 126, which is neither 0"
                                       " nor 2."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("on_error", ["pass", "block"])
async def test_a_hook_that_says_neither_yes_nor_no_is_told_and_its_call_goes_as_it_says(
    made: Bench, command: str, more: dict[str, Any], said: str, on_error: str
) -> None:
    hooks(made, ("pre_tool_use", command, {**more, "on_error": on_error}))
    events = await work(made, calls("effect"), says("ok"))
    (told,) = [event.body for event in events if event.type == "hook_finished"]
    assert told["text"] == said
    assert (told["blocked"], effects(made)) == (on_error == "block", int(on_error == "pass"))


async def test_a_hook_runs_in_its_folder(made: Bench) -> None:
    (made.workspace / "src").mkdir()
    hooks(made, ("pre_tool_use", "touch here", {"cwd": "src"}))
    await work(made, calls("effect"), says("ok"))
    assert (made.workspace / "src" / "here").exists()
    assert effects(made) == 1


async def test_a_call_that_cannot_run_is_shown_to_no_hook(made: Bench) -> None:
    hooks(made, ("pre_tool_use", SEES, {}), ("post_tool_use", SEES, {}))
    await work(made, two("nothing", "echo", nothing=1), says("ok"))
    assert seen(made) == []
    assert [failed for _, failed in await results(made, made.key())] == [True, True]


async def test_what_a_hook_refuses_nobody_is_asked_about(made: Bench) -> None:
    hooks(made, ("pre_tool_use", REFUSES, {"matcher": "effect"}))
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\napprovals: {tools: [effect]}\n---")
    events = await work(made, calls("effect"), says("ok"))
    assert "approval_asked" not in {event.type for event in events}
    assert effects(made) == 0


async def test_hooks_see_the_arguments_that_a_person_has_changed(made: Bench) -> None:
    hooks(made, ("pre_tool_use", SEES + "! tail -n 1 seen.log | grep -q rm || exit 2", {}))
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\napprovals: {tools: [echo]}\n---")
    key = await made.session()
    async with made.worker(scripted(calls("echo", text="ls"), says("ok"))):
        await made.send(key, "go")
        await made.until(key, "approval_asked")
        (asked,) = await made.runtime.store.approvals(made.tenant, key.session)
        changed = {"text": "rm"}
        verdict = ToolVerdict(approval=1, verdict="approve", digest=asked.digest, arguments=changed)
        await made.front.accept(key, Inbound("v", "approval", approval=verdict))
        await made.until(key, "turn_finished")
    assert [(one["arguments"]["text"], one["edited"]) for one in seen(made)] == [
        ("ls", False),
        ("rm", True),
    ]
    assert [failed for _, failed in await results(made, key)] == [True]


async def test_a_hook_that_was_cut_off_with_its_worker_runs_again(made: Bench) -> None:
    hooks(made, ("pre_tool_use", SEES, {}))
    key, store = await made.session(), made.runtime.store
    begin = type(store).begin_hook

    async with made.worker(scripted(calls("effect"), says("ok"))) as instance:
        dead = f"{instance.split('-')[0]}-dead"

        async def begun_by_another(*arguments: Any) -> object:
            # Another worker wrote its intent first, and died.
            store.begin_hook = begin.__get__(store)  # type: ignore[method-assign]
            *named, _, place = arguments
            assert isinstance(await store.begin_hook(*named, Caller(dead, "n"), place), HookStarted)
            return await store.begin_hook(*arguments)

        store.begin_hook = begun_by_another  # type: ignore[method-assign]
        await made.send(key, "go")
        await made.until(key, "turn_finished")
    assert [one["tool"] for one in seen(made)] == ["effect"]
    assert effects(made) == 1


async def test_a_cancel_ends_a_hook_and_its_call_never_runs(made: Bench) -> None:
    hooks(made, ("pre_tool_use", "touch began; sleep 60", {}))
    key = await made.session()
    async with made.worker(scripted(calls("effect"), says("never"))):
        await made.send(key, "go")
        await eventually(lambda: (made.workspace / "began").exists())
        await made.cancel(key)
        events = await made.until(key, "turn_finished")
        await made.closed(key)
    assert events[-1].body["outcome"] == "cancelled"
    assert effects(made) == 0


async def test_hooks_of_a_turns_end_are_told_its_outcome_and_change_nothing_of_it(
    made: Bench,
) -> None:
    hooks(made, ("turn_end", SEES + "exit 3", {}))
    key = await made.session()
    async with made.worker(scripted(calls("add", a=1, b=2), says("Three."))):
        await made.send(key, "go")
        events = await made.until(key, "hook_finished")
        await made.send(key, "again")
        events = await made.until(key, "hook_finished", turn=2)
        await made.closed(key)
    assert [
        (one["event"], one["turn"], one["outcome"], one["text"], one["steps"]) for one in seen(made)
    ] == [("TurnEnd", 1, "completed", "Three.", 2), ("TurnEnd", 2, "completed", "Three.", 2)]
    ended = [e for e in events if e.turn == 1 and e.type in ("turn_finished", "hook_finished")]
    assert [event.type for event in ended] == ["turn_finished", "hook_finished"]
    assert ended[-1].body["text"].startswith("The hook sh ended with exit code 3")
    assert await made.runtime.store.due_hooks(10) == []
