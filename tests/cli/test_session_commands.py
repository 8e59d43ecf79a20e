"""everturn sessions show."""

from composed import compose

from everturn.messages import AssistantMessage, ToolCall, user_text
from everturn.session import SessionKey, StepHead, ToolHead
from everturn_activities.gateways import Usage
from everturn_activities.store import Inbound, SessionSettings

KEY = SessionKey("default", "s")


async def lived(runtime) -> None:
    """A turn that completed, one that failed before its first step, and one at its tool call,
    whose model was asked twice and told no usage."""
    folder = str(runtime.workspace)
    await runtime.store.create_session(KEY, SessionSettings(folder, folder))
    turn, step = await compose(runtime, "s", "01")
    await runtime.finish(turn, step, await runtime.begin_attempt(step), "Done.")
    await runtime.store.accept(KEY, Inbound("failing", "message", user_text("again")))
    await runtime.fail("s", "The model\n is \x1b[2Jaway.")
    await runtime.store.accept(KEY, Inbound("running", "message", user_text("add")))
    context, _ = await runtime.begin_step(await runtime.begin("s"))
    await runtime.store.complete_model_call(
        context,
        await runtime.begin_attempt(context),
        AssistantMessage(parts=(ToolCall(id="1", name="add"), ToolCall(id="2", name="take"))),
        "tool_use",
        Usage(input_tokens=1200, output_tokens=34, cached_tokens=1000, estimated=True),
        None,
        StepHead(
            1, "tool_use", [ToolHead(0, "add", "queued", 5), ToolHead(1, "take", "queued", 5)]
        ),
        [],
    )


async def test_a_session_is_shown_by_its_turns_their_steps_and_what_those_took(commands, runtime):
    await lived(runtime)

    shown = await commands("sessions", "show", "s")

    assert (shown.code, shown.err) == (0, "")
    rows = [line.split() for line in shown.out.splitlines()]
    assert [row[:4] for row in rows[3:4]] == [["s", "running", "3", "0"]]
    assert rows[3][-1] == "hello"
    # How long each took follows the cost.
    told = [" ".join(row) + " " for row in rows]
    for row in (
        "1.1 openai/test 1 end_turn $0.5000 ",
        "turn 1 completed $0.5000 ",
        "turn 2 failed $0.0000 ",
        "3.1 m 2 tool_use 1 unpriced ",
        # The attempt that was overtaken has no price either.
        "turn 3 running 2 unpriced ",
    ):
        assert [row for line in told if line.startswith(row)] == [row]
    assert [line.split()[-2:] for line in told if line.startswith("3.1 m")] == [["add,", "take"]]
    for row in (
        ["1.1", "7", "0", "3", "14", "0", "0", "1"],
        ["turn", "1", "7", "0", "3"],
        ["3.1", "~1,200", "1,000", "34"],
        ["turn", "3", "1,204", "1,000", "34"],
    ):
        assert row in rows
    # The reason on one line, and no sign of it is for the terminal.
    assert shown.out.splitlines()[-1] == "Turn 2: The model is \ufffd[2Jaway."
    assert shown.out.count("Turn ") == 1
    assert "imported" not in shown.out
