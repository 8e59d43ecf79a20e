"""A call's time stands still while a person is asked, and goes on then."""

import asyncio
from pathlib import Path

from everturn.agents import ToolSpec
from everturn.tools import Tool, ToolContext
from everturn_activities.call_clock import CallClock
from everturn_activities.toolbox import ToolOutcome, call_tool

SECONDS = 0.3


async def called(clock: CallClock, *steps: tuple[float, bool]) -> ToolOutcome:
    """A call that takes so many seconds each time, in which somebody is asked or not."""

    async def run() -> str:
        for seconds, asks in steps:
            if asks:
                with clock.stopped(), clock.stopped():
                    await asyncio.sleep(seconds)
            else:
                await asyncio.sleep(seconds)
        return "answered"

    spec = ToolSpec(name="ask", description="", parameters={}, timeout_seconds=SECONDS)
    tool = Tool(name="ask", description="", parameters={}, run=run)
    context = ToolContext(tenant="t", session="s", working_dir=Path("/"), idempotency_key="k")
    return await call_tool(tool, spec, {}, None, context, clock)


async def test_who_is_asked_may_take_longer_than_the_call() -> None:
    outcome = await called(CallClock(), (0.0, False), (2 * SECONDS, True), (0.05, False))
    assert outcome == ToolOutcome("answered")


async def test_what_was_left_of_its_time_is_all_that_is_left() -> None:
    clock = CallClock()
    outcome = await called(clock, (0.2, False), (SECONDS, True), (5.0, False))
    assert outcome == ToolOutcome("ask was ended after 0.3 s, its time-out.", failed=True)
    # Somebody who is asked when the call is over holds nobody up.
    with clock.stopped():
        pass
