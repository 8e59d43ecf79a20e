"""The journal of hooks: each once at its place, and the calls that wait for them."""

from typing import Any

import pytest
from stories import ME, SPEC, Story
from temporalio.testing import ActivityEnvironment

from everturn.agents import Agent
from everturn.errors import Fenced, StaleHost
from everturn.hooks import Hook, Hooks, ToolHook
from everturn.messages import AssistantMessage, ToolCall, ToolResult
from everturn.session import EndHooks, RunTools, StepHead, ToolHead, TurnHead
from everturn_activities.gateways import Usage
from everturn_activities.hook_running import ATTEMPTS_MAX, HookRunner, Placed
from everturn_activities.hooks import HookRan
from everturn_activities.store import Caller, HookEnd, HookInterrupted, HookStarted, ToolStarted
from everturn_activities.tools import ToolActivities
from everturn_activities.workspaces import Workspaces

HOOK = ToolHook(command=("gate",), on_error="block")
OTHER = Caller("worker-2", "nonce-2")


async def hooked(story: Story, before: float = 0.0, after: float = 0.0) -> TurnHead:
    """A turn whose first reply calls a tool that has hooks, twice."""
    await story.send()
    turn = await story.begun()
    context = await story.prepare(turn)
    attempt = await story.start(context)
    asked = [ToolCall(id=f"call-{index}", name="tool") for index in range(2)]
    heads = [
        ToolHead(index, "tool", "queued", 5.0, before_seconds=before, after_seconds=after)
        for index in range(2)
    ]
    made = AssistantMessage(parts=tuple(asked))
    usage = Usage(input_tokens=3, output_tokens=2)
    head = StepHead(1, "tool_use", heads)
    await story.store.complete_model_call(context, attempt, made, "tool_use", usage, 0.5, head, [])
    return turn


def calls_of(turn: TurnHead) -> RunTools:
    return RunTools(turn.tenant, turn.session, turn.turn, 1, turn.epoch, [])


async def test_a_call_is_begun_by_nobody_before_its_hooks_let_it_pass(story: Story) -> None:
    turn = await hooked(story, before=30.0, after=30.0)
    with pytest.raises(Fenced, match="waits for its hooks"):
        await story.begin_tool(turn)
    gated = await story.store.settle_gates(calls_of(turn), [0], {1: "No."})
    assert gated.answered == [1]
    assert isinstance(await story.begin_tool(turn), ToolStarted)
    blocked = await story.begin_tool(turn, 1)
    assert blocked == ToolResult(call_id="call-1", name="tool", text="No.", failed=True)
    # What was refused is none of the later hooks' business; asked again, all stays as it is.
    again = await story.store.settle_gates(calls_of(turn), [], {1: "Never."})
    assert again.answered == [1]
    calls = await story.store.tool_calls(story.key, 1, 1)
    assert [(call.gated, call.followed) for call in calls] == [(False, True), (True, False)]
    with pytest.raises(StaleHost):
        await story.store.settle_gates(RunTools(*story.key, 1, 1, 9, []), [0], {})


async def test_a_worker_that_is_told_to_run_a_call_that_waits_for_hooks_leaves_it(
    story: Story,
) -> None:
    turn = await hooked(story, before=30.0)
    nobody: Any = None
    tools = ToolActivities(story.store, Workspaces(), nobody, nobody, "w", is_alive=nobody)
    request = RunTools(*story.key, turn.turn, 1, turn.epoch, [0, 1])
    assert (await ActivityEnvironment().run(tools.run_tools, request)).done == 0
    await story.store.settle_gates(request, [0, 1], {})
    assert (await ActivityEnvironment().run(tools.run_tools, request)).done == 2


async def test_a_note_stands_behind_its_result_and_the_step_is_not_over_before(
    story: Story,
) -> None:
    turn = await hooked(story, after=30.0)
    for index in range(2):
        await story.begin_tool(turn, index)
        await story.end_tool(turn, index)
    # A run that is lost here leaves the step to its successor.
    assert (await story.begun("run-2", previous="run-1")).step == 0
    turn = await story.begun("run-3", previous="run-2")
    await story.store.note_results(calls_of(turn), {0: "", 1: "Formatted."})
    await story.store.note_results(calls_of(turn), {0: "Late.", 1: "Late."})
    assert (await story.begun("run-4", previous="run-3")).step == 1
    await story.prepare(await story.begun("run-5", previous="run-4"), 2)
    assert (await story.transcript())[-1] == (
        "tool: call-0=ok, call-1=ok\n[Note of a hook, and not of the tool:]\nFormatted."
    )


async def test_a_hook_is_begun_once_at_each_place_and_its_first_end_stands(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    store, key = story.store, story.key
    assert await store.begin_hook(key, 1, turn.epoch, HOOK, ME, "a") == HookStarted()
    assert await store.begin_hook(key, 1, turn.epoch, HOOK, ME, "a") == HookStarted()
    assert await store.begin_hook(key, 1, turn.epoch, HOOK, OTHER, "b") == HookStarted()
    story.clock.now += 7
    lost = HookInterrupted("worker-1", 7, 1)
    assert await store.begin_hook(key, 1, turn.epoch, HOOK, OTHER, "a") == lost
    assert await store.begin_hook(key, 1, turn.epoch, HOOK, OTHER, "a", 1) == HookStarted()
    late = HookInterrupted("worker-2", 0, 2)
    assert await store.begin_hook(key, 1, turn.epoch, HOOK, ME, "a", 1) == late
    with pytest.raises(StaleHost):
        await store.begin_hook(key, 1, turn.epoch + 1, HOOK, ME, "c")

    first, second = HookEnd(0, "first"), HookEnd(2, "second")
    assert await store.complete_hook(key, 1, HOOK, first, "a") == first
    assert await store.complete_hook(key, 1, HOOK, second, "a") == first
    assert await store.begin_hook(key, 1, turn.epoch, HOOK, OTHER, "a") == first
    # What a hook beside a call printed is no layer of the prompt.
    assert await store.hook_outputs(key, [HOOK]) == [""]


async def test_hooks_of_a_turns_end_are_due_until_they_have_ended(story: Story) -> None:
    hook = Hook(command=("tell",))
    agent = Agent(hooks=Hooks(turn_end=(hook,)))
    await story.send()
    turn = await story.begun(spec=SPEC.but(agent=agent))
    assert await story.store.due_hooks(10) == []
    await story.finish(turn, step=0)
    (due,) = await story.store.due_hooks(10)
    assert due == EndHooks(*story.key, 1)
    await story.store.hooks_begun(due)
    assert await story.store.due_hooks(10) == []
    # Their workflow may be lost with all that Temporal knew.
    story.clock.now += 601
    assert await story.store.due_hooks(10) == [due]
    begun = await story.store.begin_hook(story.key, 1, None, hook, ME, "1 TurnEnd")
    assert begun == HookStarted()
    await story.store.complete_hook(story.key, 1, hook, HookEnd(0, ""), "1 TurnEnd")
    assert await story.store.due_hooks(10) == []


async def test_a_hook_that_loses_its_workers_too_often_is_given_up(story: Story) -> None:
    await story.send()
    turn = await story.begun()
    ran = []

    async def command(spec: object, hook: Hook, stdin: bytes | None = None) -> HookRan:
        ran.append(hook)
        return HookRan(0, "")

    async def guard(running: object) -> HookRan:
        return await running  # type: ignore[misc,no-any-return]

    async def nobody(worker: str) -> bool:
        return False

    async def ended() -> HookEnd:
        runner = HookRunner(story.store, command, "worker-3", nobody)
        return await runner.end_of(at, SPEC, {}, guard)  # type: ignore[arg-type]

    at = Placed(story.key, 1, turn.epoch, HOOK, "PreToolUse", "a")
    for attempt in range(ATTEMPTS_MAX):
        lost = Caller("worker-2", f"nonce-{attempt}")
        await story.store.begin_hook(story.key, 1, turn.epoch, HOOK, lost, "a", attempt)
    end = await ActivityEnvironment().run(ended)
    assert end.output == "The hook gate was begun 5 times, and its worker was lost each time."
    assert (ran, at.refused_by(end)) == ([], True)
    (told,) = await story.told("hook_finished")
    assert (told.body["blocked"], told.body["text"]) == (True, end.output)
