"""Calling a tool: whatever comes of it is a result that the model can read."""

import asyncio
import functools
import inspect
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from everturn.agents import Agent, ToolSpec
from everturn.errors import ToolFailed
from everturn.tools import Tool, ToolContext
from everturn_activities.call_clock import CallClock
from everturn_activities.capped import WHOLE_BYTES_MAX, capped
from everturn_activities.threads import ExitError, in_thread

PREVIEW_SECONDS = 10.0
_QUOTED_MAX = 300
_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/~-])/[^\s'\"`:;,()\[\]{}<>]+")


@dataclass(frozen=True)
class ToolOutcome:
    """What the model is told of a call; `whole` is its text where that was too long."""

    text: str
    failed: bool = False
    whole: str | None = None


def unknown_tool(name: str) -> str:
    if not name.strip():
        return "The call names no tool, so nothing was run; call a tool by its name."
    return capped(f"Unknown tool: {name}", _QUOTED_MAX)


def withheld_tool(name: str, agent: Agent) -> str:
    if agent.access == "full":
        return (
            f"Agent {agent.name} may not call {name}: it manages executors and works nothing"
            " itself. Hand the work to one of them."
        )
    return (
        f"Agent {agent.name} may not call {name}: its access is {agent.access}, so it cannot change"
        " or run anything. Say what would have to be done instead."
    )


async def call_tool(
    tool: Tool,
    spec: ToolSpec,
    arguments: dict[str, Any],
    malformed: str | None,
    context: ToolContext,
    clock: CallClock | None = None,
) -> ToolOutcome:
    """Run one call of `tool` as `spec` tells, and never raise what the tool raises.

    Only cancelling comes through: an async tool has ended by then, while the thread of a
    tool that is not async runs on, because nothing can stop it. `clock` holds its time-out.
    """
    wrong = wrong_arguments(spec, arguments, malformed)
    if wrong is not None:
        return ToolOutcome(capped(wrong), failed=True)
    clean = context.scrubber.scrubbed
    try:
        given = tool.convert(arguments) if tool.convert is not None else dict(arguments)
    except pydantic_core.ValidationError as error:
        # Rules that a schema cannot express, such as a validator of the tool's own.
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("arguments", *(str(part) for part in first["loc"])))
        text = f"The arguments of {spec.name} do not fit its parameters: {where}: {first['msg']}"
        return ToolOutcome(capped(text), failed=True)
    except BaseException as error:
        # A validator of the tool's own broke. Nothing is awaited here, so it is no cancelling.
        return ToolOutcome(capped(clean(_explained(error, context.working_dir))), failed=True)
    if tool.context_parameter is not None:
        given[tool.context_parameter] = context
    return await _run(tool, spec, given, context, clock or CallClock())


async def _run(
    tool: Tool, spec: ToolSpec, given: dict[str, Any], context: ToolContext, clock: CallClock
) -> ToolOutcome:
    # Before anything is cut: half a secret would not be found.
    clean = context.scrubber.scrubbed
    try:
        async with asyncio.timeout(spec.timeout_seconds) as timeout:
            clock.start(timeout)
            text = rendered(await _returned(tool.run, spec.quick, given))
        return _told(clean(text))
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return ToolOutcome(f"{spec.name} cancelled itself.", failed=True)
    except BaseException as error:
        # The tool is somebody else's code, and the model is who can react to its errors. Even
        # KeyboardInterrupt is its own: a task that raised it would end the event loop.
        if isinstance(error, TimeoutError) and timeout.expired():
            return ToolOutcome(_timed_out(spec, _is_threaded(tool.run, spec.quick)), failed=True)
        return _told(clean(_explained(error, context.working_dir)), failed=True)


def _told(text: str, failed: bool = False) -> ToolOutcome:
    shown = capped(text)
    whole = capped(text, WHOLE_BYTES_MAX) if len(shown) < len(text) else None
    return ToolOutcome(shown, failed, whole)


def is_left_running(tool: Tool) -> bool:
    """Whether a time-out or a cancel of the tool ends the waiting only, and not the tool."""
    return _is_threaded(tool.run, tool.quick)


def _is_threaded(run: Callable[..., Any], quick: bool) -> bool:
    # A thread would cost several times what a quick tool does.
    return not quick and not inspect.iscoroutinefunction(run)


async def _returned(run: Callable[..., Any], quick: bool, given: dict[str, Any]) -> Any:
    returned = await in_thread(run, **given) if _is_threaded(run, quick) else run(**given)
    return await returned if inspect.isawaitable(returned) else returned


def _is_cancelled() -> bool:
    """Whether somebody cancelled the running task, and not just a tool raised so."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _timed_out(spec: ToolSpec, left_running: bool) -> str:
    after = f"after {spec.timeout_seconds:g} s, its time-out"
    if left_running:
        return (
            f"{spec.name} is no longer waited for {after}; it could not be ended and may still"
            " take effect."
        )
    return f"{spec.name} was ended {after}."


def rendered(returned: object) -> str:
    """What a tool returned, as text: itself, or JSON. Raises ToolFailed for what is neither."""
    if isinstance(returned, str):
        return returned
    if returned is None:
        return "done"
    if isinstance(returned, bytes | bytearray | memoryview):
        raise ToolFailed("The tool returned bytes; a tool must return text, or data for JSON.")
    try:
        return pydantic_core.to_json(returned).decode()
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError):
        raise ToolFailed(
            f"The tool returned a {type(returned).__name__}, which JSON cannot carry; it must"
            " return text, or data for JSON."
        ) from None


def wrong_arguments(spec: ToolSpec, arguments: dict[str, Any], malformed: str | None) -> str | None:
    """Why the arguments do not fit the tool's parameters, or None where they do.

    `malformed` is what the model sent where that was no JSON object.
    """
    if malformed is not None:
        return (
            f"The arguments of {spec.name} are not one JSON object; send one that fits its"
            f" parameters. They began: {_shortened(malformed)}"
        )
    try:
        validator = _validator(json.dumps(spec.parameters))
        error = next(validator.iter_errors(arguments), None)
        if error is not None:
            error = best_match(validator.iter_errors(arguments))
    except (SchemaError, Unresolvable, re.error) as broken:
        return f"The schema of {spec.name} is broken: {_shortened(str(broken))}"
    except RecursionError:
        return f"The arguments of {spec.name} are nested too deeply; flatten them."
    if error is None:
        return None
    return _wrong(spec.name, error)


def fits(text: str, schema: dict[str, Any]) -> bool:
    """Whether `text` is JSON that fits `schema`."""
    try:
        return _validator(json.dumps(schema)).is_valid(json.loads(text))
    except (ValueError, RecursionError, Unresolvable):
        return False


def misfit(content: Any, schema: dict[str, Any]) -> str | None:
    """How `content` does not fit `schema`, in a sentence; None where it does."""
    try:
        error = best_match(_validator(json.dumps(schema)).iter_errors(content))
    except (SchemaError, Unresolvable, re.error, RecursionError) as broken:
        return f"its schema is broken: {_shortened(str(broken))}"
    if error is None:
        return None
    path = ".".join(map(str, error.absolute_path))
    return f"{f'{path}: ' if path else ''}{_shortened(error.message)}."


def broken_schema(schema: dict[str, Any]) -> str | None:
    """What is wrong with a schema, or None."""
    try:
        _validator(json.dumps(schema))
    except (SchemaError, re.error) as broken:
        return _shortened(getattr(broken, "message", str(broken)))
    return None


@functools.lru_cache(maxsize=1024)
def _validator(schema_json: str) -> Validator:
    schema = json.loads(schema_json)
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    # An empty registry: else a schema's $ref would be fetched from wherever it points to.
    return kind(schema, registry=Registry())


def _wrong(name: str, error: ValidationError) -> str:
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    return (
        f"The arguments of {name} do not fit its parameters: arguments{path}:"
        f" {_shortened(error.message)} (rule: {error.validator})"
    )


def _explained(error: BaseException, working_dir: Path) -> str:
    if isinstance(error, ToolFailed):
        return str(error)
    if isinstance(error, ExitError):
        error = error.raised
    text = str(error).replace(f"{working_dir}/", "").replace(str(working_dir), ".")
    return f"{type(error).__name__}: {_ABSOLUTE_PATH.sub(_hidden, text)}".removesuffix(": ")


def _hidden(match: re.Match[str]) -> str:
    """A path of the host is none of the model's business; `/v1/orders` is no such path."""
    first = match[0].split("/")[1]
    return "[a path outside of the working folder]" if os.path.exists(f"/{first}") else match[0]


def _shortened(text: str) -> str:
    return text if len(text) <= _QUOTED_MAX else text[:_QUOTED_MAX] + "..."


async def preview_call(
    tool: Tool, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
) -> str | None:
    """What a call would do, without doing it; None where its tool cannot tell.

    `arguments` are those that fit the tool's parameters.
    """
    if tool.preview is None:
        return None
    clean = context.scrubber.scrubbed
    try:
        given = tool.convert(arguments) if tool.convert is not None else dict(arguments)
        if tool.context_parameter is not None:
            given[tool.context_parameter] = context
        async with asyncio.timeout(PREVIEW_SECONDS):
            return capped(clean(rendered(await _returned(tool.preview, False, given))))
    except BaseException as error:
        # It is asked for all the same: what it would do, the person then reads off the call.
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        return capped(clean(f"There is no preview: {_explained(error, context.working_dir)}"))


async def verify_tool(tool: Tool, spec: ToolSpec, context: ToolContext) -> ToolOutcome | None:
    """What became of a `once` call that was cut off; None where its probe cannot tell.

    A probe that answers None says that the call had no effect.
    """
    if tool.verify is None:
        return None
    try:
        async with asyncio.timeout(spec.timeout_seconds):
            # By position: the probe may call its parameter anything.
            found = await _returned(functools.partial(tool.verify, context), spec.quick, {})
        if found is None:
            return ToolOutcome(
                f"{spec.name} was cut off before it had any effect, and was not run again;"
                " call it again if it is still wanted.",
                failed=True,
            )
        return ToolOutcome(capped(context.scrubber.scrubbed(rendered(found))))
    except BaseException as error:
        # A broken probe tells nothing, which is just what the caller then says.
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        return None
