"""Tools: what an agent can do, and what a repeated call would mean."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints, overload

from pydantic import ConfigDict, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

Effect = Literal["pure", "idempotent", "keyed", "once"]
"""What running a call twice would do.

`pure` reads only; `idempotent` changes the world but twice is the same as once;
`keyed` is safe when the other side sees the same `idempotency_key`; `once` must
never start twice.
"""

TOOL_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know of the call; a parameter annotated with it receives it.

    `idempotency_key` is the same for every attempt of one call and differs for every
    other call.
    """

    tenant: str
    session: str
    working_dir: Path
    idempotency_key: str
    protected: tuple[Path, ...] = ()
    """Paths below `working_dir` that tools must not change: they configure the runtime."""


@dataclass(frozen=True)
class Tool:
    """A function that a model can call.

    `parameters` is a JSON schema of type object. `quick` says that a call ends within
    milliseconds. `verify` is asked what became of a `once` call that was cut off: it
    returns the result, or None where the call had no effect.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[..., Any]
    effect: Effect = "once"
    quick: bool = False
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS
    verify: Callable[[ToolContext], Any] | None = None
    context_parameter: str | None = field(default=None, repr=False)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = "once",
    quick: bool = False,
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS,
    verify: Callable[[ToolContext], Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect = "once",
    quick: bool = False,
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS,
    verify: Callable[[ToolContext], Any] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Turn a function into a `Tool`: schema from its signature, description from its docstring.

    The function may be async. Its parameters' annotations may be anything that pydantic
    can describe; one annotated `ToolContext` is filled in by the runtime.
    Raises TypeError for a parameter without an annotation.
    """

    def made(function: Callable[..., Any]) -> Tool:
        schema, context_parameter = _parameters(function)
        return Tool(
            name=name or function.__name__,
            description=inspect.getdoc(function) or "",
            parameters=schema,
            run=function,
            effect=effect,
            quick=quick,
            timeout_seconds=timeout_seconds,
            verify=verify,
            context_parameter=context_parameter,
        )

    return made(function) if function is not None else made


def _parameters(function: Callable[..., Any]) -> tuple[dict[str, Any], str | None]:
    """The JSON schema of a function's parameters, and the name of its context parameter."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    context_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in hints:
            raise TypeError(
                f"Parameter {parameter.name!r} of tool {function.__name__!r} has no annotation;"
                " the model's schema is made from it."
            )
        annotation = hints[parameter.name]
        if annotation is ToolContext:
            context_parameter = parameter.name
            continue
        default = parameter.default
        if default is inspect.Parameter.empty:
            default = PydanticUndefined
        fields[parameter.name] = (annotation, FieldInfo(default=default))
    model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema()
    schema.pop("title", None)
    for described in schema.get("properties", {}).values():
        described.pop("title", None)
    schema.setdefault("properties", {})
    return schema, context_parameter
