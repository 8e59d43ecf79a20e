"""Whatever comes of a call is a result that the model can read."""

import asyncio
import dataclasses
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from everturn import Tool, ToolContext, ToolFailed, tool
from everturn.agents import ToolSpec
from everturn_activities.capped import RESULT_BYTES_MAX
from everturn_activities.threads import ExitError, in_thread
from everturn_activities.toolbox import (
    ToolOutcome,
    call_tool,
    fits,
    is_left_running,
    unknown_tool,
    verify_tool,
    wrong_arguments,
)
from everturn_activities.workspace import tool_spec


async def outcome(tool: Tool, context: ToolContext, **arguments: Any) -> ToolOutcome:
    return await call_tool(tool, tool_spec(tool), arguments, None, context)


@tool(effect="pure", quick=True)
def add(a: int, b: int) -> int:
    return a + b


async def test_a_quick_tool_is_called_on_the_event_loop_and_answers_with_text(context):
    assert await outcome(add, context, a=1, b=2) == ToolOutcome("3", failed=False)


def test_b30_an_unknown_tool_is_named_in_an_error_result():
    assert unknown_tool("nope") == "Unknown tool: nope"
    assert len(unknown_tool("x" * 100_000)) < 1000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"a": 1}, "arguments: 'b' is a required property (rule: required)"),
        ({"a": 1, "b": "x"}, "arguments.b: 'x' is not of type 'integer' (rule: type)"),
        ({"a": 1, "b": 2, "c": 3}, "('c' was unexpected) (rule: additionalProperties)"),
    ],
)
async def test_arguments_that_do_not_fit_are_answered_with_the_path_and_the_rule(
    context, arguments, reason
):
    result = await call_tool(add, tool_spec(add), arguments, None, context)

    assert result.failed
    assert result.text.startswith("The arguments of add do not fit its parameters: arguments")
    assert result.text.endswith(reason)


async def test_arguments_that_are_no_json_object_are_answered_with_their_beginning(context):
    result = await call_tool(add, tool_spec(add), {}, '{"a": 1, ' + "x" * 10_000, context)

    assert result.failed
    assert "are not one JSON object" in result.text
    assert '{"a": 1, xxx' in result.text
    assert len(result.text) < 1000


async def test_a_schema_that_points_elsewhere_is_never_fetched(context):
    """A server of tools that we do not trust could make us ask any address."""
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/schema"
        schema = {"type": "object", "properties": {"a": {"$ref": address}}}
        spec = ToolSpec(name="remote", description="", parameters=schema)
        tool = Tool("remote", "", schema, lambda a: a)

        result = await call_tool(tool, spec, {"a": 1}, None, context)
        server.shutdown()

    assert asked == []
    assert result.failed
    assert result.text.startswith("The schema of remote is broken: Unresolvable")


async def test_a_raised_error_is_told_by_type_and_message_without_the_hosts_paths(context):
    @tool
    def read(name: str) -> str:
        return Path(context.working_dir.parent.parent / name).read_text()

    @tool
    async def own() -> None:
        raise ValueError(f"no row 7 in {context.working_dir}/orders.csv, see /v1/orders")

    elsewhere = await outcome(read, context, name="secret.txt")
    inside = await outcome(own, context)

    assert elsewhere.failed
    assert elsewhere.text == (
        "FileNotFoundError: [Errno 2] No such file or directory:"
        " '[a path outside of the working folder]'"
    )
    assert inside == ToolOutcome("ValueError: no row 7 in orders.csv, see /v1/orders", failed=True)


async def test_a_tool_that_says_why_it_could_not_is_quoted_as_it_stands(context):
    @tool
    def refuse() -> None:
        raise ToolFailed("The order is closed.")

    assert await outcome(refuse, context) == ToolOutcome("The order is closed.", failed=True)


@pytest.mark.parametrize("quick", [True, False])
async def test_a_tool_cannot_end_the_worker_or_pretend_to_be_cancelled(context, quick):
    @tool(quick=quick)
    def leave() -> None:
        sys.exit(3)

    @tool(quick=quick)
    async def give_up() -> None:
        raise asyncio.CancelledError

    assert await outcome(leave, context) == ToolOutcome("SystemExit: 3", failed=True)
    assert await outcome(give_up, context) == ToolOutcome("give_up cancelled itself.", failed=True)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit, SystemExit, BaseException])
def test_whatever_a_tool_or_its_probe_raises_the_event_loop_lives_on(context, quick, raised):
    """asyncio lets a KeyboardInterrupt or SystemExit that leaves a task end the whole loop."""

    def broken(context: ToolContext) -> str:
        raise raised("stop")

    async def broken_async(context: ToolContext) -> str:
        raise raised("stop")

    async def called(run: Callable[[ToolContext], Any]) -> tuple[ToolOutcome, ToolOutcome | None]:
        made = tool(name="stop", quick=quick, verify=run)(run)
        calling = asyncio.create_task(outcome(made, context))
        verifying = asyncio.create_task(verify_tool(made, tool_spec(made), context))
        return await calling, await verifying

    expected = (ToolOutcome(f"{raised.__name__}: stop", failed=True), None)
    assert asyncio.run(called(broken)) == expected
    assert asyncio.run(called(broken_async)) == expected


@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit, SystemExit])
def test_what_is_no_exception_comes_out_of_a_thread_as_one(raised):
    def broken() -> None:
        raise raised

    async def waited() -> BaseException | None:
        task = asyncio.create_task(in_thread(broken))
        await asyncio.wait([task])
        return task.exception()

    error = asyncio.run(waited())

    assert isinstance(error, ExitError)
    assert isinstance(error.raised, raised)


async def test_a_call_whose_event_loop_is_gone_is_closed_quietly(context):
    @tool
    async def wait() -> None:
        await asyncio.sleep(60)

    calling = outcome(wait, context)
    calling.send(None)

    calling.close()

    assert calling.cr_frame is None


def test_a_validator_of_a_tools_own_cannot_end_the_worker(context):
    class Strict(BaseModel):
        id: int

        @field_validator("id")
        @classmethod
        def known(cls, value: int) -> int:
            raise KeyboardInterrupt

    @tool
    def ship(order: Strict) -> None: ...

    result = asyncio.run(outcome(ship, context, order={"id": 1}))

    assert result == ToolOutcome("KeyboardInterrupt", failed=True)


async def test_a_broken_validator_of_a_tools_own_is_an_error_result(context):
    class Strict(BaseModel):
        id: int

        @field_validator("id")
        @classmethod
        def known(cls, value: int) -> int:
            raise LookupError(f"no order {value}") if value > 1 else ValueError("too small")

    @tool
    def ship(order: Strict) -> None: ...

    small = await outcome(ship, context, order={"id": 1})
    unknown = await outcome(ship, context, order={"id": 7})

    assert small.text.endswith("arguments.order.id: Value error, too small")
    assert unknown == ToolOutcome("LookupError: no order 7", failed=True)


async def test_a_probe_tells_what_became_of_a_call_whatever_its_parameter_is_called(context):
    def probed(probe: Callable[[ToolContext], Any]) -> Tool:
        return tool(verify=probe, name="send")(lambda: None)

    def broken(context: ToolContext) -> str:
        raise OSError("the log is gone")

    async def verified(tool: Tool) -> ToolOutcome | None:
        return await verify_tool(tool, tool_spec(tool), context)

    sent = await verified(probed(lambda ctx: f"sent for {ctx.session}"))
    unsent = await verified(probed(lambda ctx: None))

    assert sent == ToolOutcome("sent for session")
    assert unsent is not None
    assert "cut off before it had any effect" in unsent.text
    assert await verified(probed(broken)) is None


async def test_a_tool_that_outlasts_its_time_is_answered_for(context):
    @tool(timeout_seconds=0.05)
    async def wait() -> None:
        await asyncio.sleep(60)

    @tool(timeout_seconds=0.05)
    def block() -> None:
        time.sleep(0.2)

    @tool(timeout_seconds=60)
    async def own_time_out() -> None:
        raise TimeoutError("the printer is silent")

    assert (await outcome(wait, context)).text == "wait was ended after 0.05 s, its time-out."
    assert (await outcome(block, context)).text == (
        "block is no longer waited for after 0.05 s, its time-out; it could not be ended and may"
        " still take effect."
    )
    assert (await outcome(own_time_out, context)).text == "TimeoutError: the printer is silent"


def test_only_a_tool_that_is_neither_quick_nor_async_is_left_running():
    def blocking() -> None: ...

    async def waiting() -> None: ...

    assert is_left_running(tool(blocking))
    assert not is_left_running(tool(quick=True)(blocking))
    assert not is_left_running(tool(waiting))


def test_arguments_can_be_checked_without_calling_the_tool():
    spec = tool_spec(add)

    assert wrong_arguments(spec, {"a": 1, "b": 2}, None) is None
    assert "'b' is a required property" in (wrong_arguments(spec, {"a": 1}, None) or "")
    assert "not one JSON object" in (wrong_arguments(spec, {}, "[1]") or "")


async def test_cancelling_a_probe_comes_through_to_the_caller(context):
    began = asyncio.Event()

    async def probe(context: ToolContext) -> None:
        began.set()
        await asyncio.sleep(60)

    send = tool(verify=probe, name="send")(lambda: None)
    task = asyncio.create_task(verify_tool(send, tool_spec(send), context))
    await began.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_comes_through_to_the_caller(context):
    began = asyncio.Event()
    ended = asyncio.Event()

    @tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.create_task(outcome(wait, context))
    await began.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


class Order(BaseModel):
    id: int


@dataclasses.dataclass
class Line:
    text: str


@pytest.mark.parametrize(
    ("returned", "text", "failed"),
    [
        ("as is\n", "as is\n", False),
        (None, "done", False),
        (True, "true", False),
        ([Order(id=1), Line("ü")], '[{"id":1},{"text":"ü"}]', False),
        ({"a": (1, 2)}, '{"a":[1,2]}', False),
        ("half \ud800 pair", "half ? pair", False),
        (b"raw", "The tool returned bytes; a tool must return text, or data for JSON.", True),
        (object(), "The tool returned a object, which JSON cannot carry", True),
    ],
)
async def test_what_a_tool_returns_is_told_as_text(context, returned, text, failed):
    @tool
    async def give() -> Any:
        return returned

    result = await outcome(give, context)

    assert result.failed == failed
    assert result.text.startswith(text) if failed else result.text == text


async def test_a_long_result_keeps_its_head_and_its_tail_and_tells_the_cut(context):
    @tool
    def shout() -> str:
        return "first " + "ü" * 200_000 + " last"

    result = await outcome(shout, context)

    assert result.text.startswith("first ü")
    assert result.text.endswith("ü last")
    assert f"{400_011 - RESULT_BYTES_MAX} of 400011 bytes cut here" in result.text
    assert len(result.text.encode()) < RESULT_BYTES_MAX + 100
    assert "\ufffd" not in result.text


async def test_a_tool_that_is_not_quick_leaves_the_event_loop_free(context):
    @tool
    def block() -> str:
        time.sleep(0.3)
        return "slept"

    blocked = asyncio.create_task(outcome(block, context))
    ticks = 0
    while not blocked.done():
        await asyncio.sleep(0.01)
        ticks += 1

    assert (await blocked).text == "slept"
    assert ticks > 5


@pytest.mark.parametrize(
    ("text", "property", "fit"),
    [
        ('{"a": 1}', {"type": "integer"}, True),
        ('{"a": "1"}', {"type": "integer"}, False),
        ('{"a": 1', {}, False),
        ("[" * 100_000, {}, False),
        ('{"a": 1}', {"$ref": "#/nowhere"}, False),
    ],
)
def test_an_answer_fits_a_schema_or_not_whatever_either_is(text, property, fit):  # noqa: A002
    schema = {"type": "object", "properties": {"a": property}}

    assert fits(text, schema) is fit


async def test_a_probes_answer_and_a_validators_error_show_no_secret(context):
    context.scrubber.learn("TOKEN", "canary-0123456789")

    class Strict(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def _refuse(cls, value: int) -> int:
            raise RuntimeError("canary-0123456789")

    def send(strict: Strict) -> str:
        return "sent"

    made = tool(verify=lambda context: "canary-0123456789 went through")(send)
    verified = await verify_tool(made, tool_spec(made), context)
    refused = await outcome(made, context, strict={"a": 1})
    assert verified == ToolOutcome("[secret TOKEN] went through")
    assert refused.text == "RuntimeError: [secret TOKEN]"


async def test_a_cut_that_goes_through_a_secret_leaves_no_half_of_it(context):
    secret = "canary-0123456789"
    context.scrubber.learn("TOKEN", secret)

    @tool(effect="pure", quick=True)
    def long(at: int) -> str:
        return "x" * at + secret + "y" * RESULT_BYTES_MAX

    for at in range(RESULT_BYTES_MAX // 2 - len(secret) - 2, RESULT_BYTES_MAX // 2 + 2):
        ran = await outcome(long, context, at=at)
        assert "canary" not in ran.text + str(ran.whole)
        assert "56789" not in ran.text + str(ran.whole)
