"""Tools: what an agent can do, and what a repeated call would mean."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from everturn.commands import NO_LIMITS_SET, CommandLimits, Progress, unseen
from everturn.errors import ToolFailed
from everturn.outgoing import Http, no_http
from everturn.scrubbing import Scrubber
from everturn.secrets import UPPER_NAME

Effect = Literal["pure", "idempotent", "keyed", "once"]
"""What running a call twice would do.

`pure` reads only; `idempotent` changes the world but twice is the same as once;
`keyed` is safe when the other side sees the same `idempotency_key`; `once` must
never start twice.
"""

Access = Literal["full", "read-only", "search-only"]
"""Which tools an agent may call: all; those that are `pure`; of those the ones that search."""

TOOL_TIMEOUT_SECONDS = 120.0
RESPONSE = "response"
"""A tool of this name answers the user: the turn ends with what it returns (E27)."""
ASK_USER = "ask_user"
"""The built-in tool of this name never runs: what a person answers is its result."""

DELEGATE = "delegate"
"""The tool by which a turn hands work to an executor."""
CRON = "cron"
"""The tool by which an agent schedules messages to its own session; no executor has it."""

# What every provider accepts as the name of a function.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know of the call; a parameter annotated with it receives it.

    `idempotency_key` is the same for every attempt of one call and differs for every
    other call; `attempt` counts the times that this call has begun, from 1.
    """

    tenant: str
    session: str
    working_dir: Path
    idempotency_key: str
    protected: tuple[Path, ...] = ()
    """Absolute paths that tools must not change: they configure the runtime."""
    attempt: int = 1
    unsafe_commands: bool = False
    """The operator allows commands to run outside of a sandbox."""
    command_limits: CommandLimits = NO_LIMITS_SET
    """What a command of the call may use."""
    allowed_hosts: tuple[str, ...] | None = None
    """The hosts that the call may reach. None is any public one, and for commands none."""
    progress: Progress = field(default=unseen, compare=False, repr=False)
    """Shows a piece of output to whoever watches the session, before the call has ended. It may
    be called from any thread; what it was given is kept where the call is cancelled."""
    http: Http = field(default=no_http, compare=False, repr=False)
    """Asks a server of the web that the agent may reach, with the call's idempotency key."""
    secrets: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The values that the tool has declared to read; `secret` is the way to them."""
    command_secrets: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The variables that a command of the call finds, beside those that every command has."""
    scrubber: Scrubber = field(default_factory=Scrubber, compare=False, repr=False)
    """Takes known secrets out of what the call says."""

    def secret(self, name: str) -> str:
        """The value of a secret that the tool has declared by `@tool(secrets=[...])`."""
        value = self.secrets.get(name)
        if value is None:
            may = f"; it may read {', '.join(sorted(self.secrets))}" if self.secrets else ""
            raise ToolFailed(
                f"This tool may not read secret {name}{may}: its author names what it reads, by"
                f" @tool(secrets=[{name!r}])."
            )
        return value


@dataclass(frozen=True)
class Tool:
    """A function that a model can call.

    `parameters` is a JSON schema of type object. `quick` says that a call ends within
    milliseconds; then a function that is not async runs on the event loop itself. Any other
    runs in a thread, which a time-out or a cancel leaves behind but cannot stop.
    `searches` says that a `pure` tool reads or looks for things in files, documents or the web.
    `untrusted` says that strangers write what it answers: a model is shown that as data.
    `verify` is asked what became of a `once` call that was cut off: it returns the result,
    or None where the call had no effect. `requires_approval`: a person decides before a call
    runs, where `asks_only` covers its arguments; `preview` is given the same arguments and
    tells, without any effect, what it would do. `secrets` are the names of those that it reads.
    `convert` makes the function's arguments from JSON that fits `parameters`.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[..., Any]
    effect: Effect = "once"
    quick: bool = False
    searches: bool = False
    untrusted: bool = False
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS
    verify: Callable[[ToolContext], Any] | None = None
    requires_approval: bool = False
    preview: Callable[..., Any] | None = None
    asks_only: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    context_parameter: str | None = field(default=None, repr=False)
    convert: Callable[[dict[str, Any]], dict[str, Any]] | None = field(default=None, repr=False)


def may_call(access: Access, name: str, effect: Effect, searches: bool) -> bool:
    """Whether an agent of that access may call such a tool. It may always answer, and hand work
    on: its executors have no more access than it has."""
    match access:
        case "full":
            return True
        case "read-only":
            return effect == "pure" or name in (RESPONSE, DELEGATE)
        case "search-only":
            return searches or name in (RESPONSE, DELEGATE)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = "once",
    quick: bool = False,
    searches: bool = False,
    untrusted: bool = False,
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS,
    verify: Callable[[ToolContext], Any] | None = None,
    requires_approval: bool = False,
    preview: Callable[..., Any] | None = None,
    secrets: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect = "once",
    quick: bool = False,
    searches: bool = False,
    untrusted: bool = False,
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS,
    verify: Callable[[ToolContext], Any] | None = None,
    requires_approval: bool = False,
    preview: Callable[..., Any] | None = None,
    secrets: Sequence[str] = (),
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Turn a function into a `Tool`: schema from its signature, description from its docstring.

    The function may be async. Its parameters' annotations may be anything that pydantic
    can describe; one annotated `ToolContext` is filled in by the runtime.
    Raises TypeError for a function that no model could call by its schema.
    """

    def made(function: Callable[..., Any]) -> Tool:
        chosen = name or str(getattr(function, "__name__", type(function).__name__))
        if not _NAME.fullmatch(chosen):
            raise TypeError(
                f"Tool name {chosen!r} must be 1 to 64 letters, digits, '_' or '-';"
                " give one as @tool(name=...)."
            )
        if effect not in get_args(Effect):
            raise TypeError(
                f"Effect {effect!r} of tool {chosen!r} is none of {', '.join(get_args(Effect))}."
            )
        if verify is not None and effect != "once":
            raise TypeError(
                f"Tool {chosen!r} has a verify function, which only a 'once' tool is asked,"
                f" and its effect is {effect!r}."
            )
        if searches and effect != "pure":
            raise TypeError(
                f"Tool {chosen!r} is said to search only, and its effect is {effect!r};"
                " what searches is 'pure'."
            )
        if not timeout_seconds > 0:
            raise TypeError(f"Time-out {timeout_seconds} of tool {chosen!r} must be above 0.")
        if isinstance(secrets, str) or not all(re.fullmatch(UPPER_NAME, one) for one in secrets):
            raise TypeError(
                f"Secrets {secrets!r} of tool {chosen!r} must be a list of names in upper case, as"
                " the workspace's settings have them."
            )
        arguments, names, context_parameter = _arguments(chosen, function)

        def convert(given: dict[str, Any]) -> dict[str, Any]:
            values = arguments.model_validate(given)
            return {name: getattr(values, key) for key, name in names.items()}

        return Tool(
            name=chosen,
            description=inspect.getdoc(function) or "",
            parameters=_schema(chosen, arguments),
            run=function,
            effect=effect,
            quick=quick,
            searches=searches,
            untrusted=untrusted,
            timeout_seconds=timeout_seconds,
            verify=verify,
            requires_approval=requires_approval,
            preview=preview,
            secrets=tuple(secrets),
            context_parameter=context_parameter,
            convert=convert,
        )

    return made(function) if function is not None else made


def _arguments(
    tool_name: str, function: Callable[..., Any]
) -> tuple[type[BaseModel], dict[str, str], str | None]:
    """A model of the function's parameters, the parameter of each of the model's fields, and
    the name of its context parameter."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"An annotation of tool {tool_name!r} cannot be resolved: {error};"
            " import it at the top of the module."
        ) from None
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    context_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"Parameter {parameter.name!r} of tool {tool_name!r} cannot be given by name;"
                " a tool takes named parameters only."
            )
        if parameter.name not in hints:
            raise TypeError(
                f"Parameter {parameter.name!r} of tool {tool_name!r} has no annotation;"
                " the model's schema is made from it."
            )
        annotation = hints[parameter.name]
        if isinstance(annotation, type) and issubclass(annotation, ToolContext):
            if context_parameter is not None:
                raise TypeError(f"Tool {tool_name!r} has two parameters of type ToolContext.")
            context_parameter = parameter.name
            continue
        # Fields go by number, because a parameter may be called `copy`, `json` or `_x`.
        key = f"p{len(names)}"
        names[key] = parameter.name
        fields[key] = _field(annotation, parameter)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        model = create_model(tool_name, __config__=config, **fields)
    except PydanticUserError as error:
        raise TypeError(
            f"A parameter of tool {tool_name!r} has a type that JSON cannot carry: "
            f"{error.message.split('. ')[0]}."
        ) from None
    return model, names, context_parameter


def _field(annotation: Any, parameter: inspect.Parameter) -> tuple[Any, Any]:
    default = parameter.default
    if isinstance(default, FieldInfo):
        return Annotated[annotation, default], Field(alias=parameter.name)
    if default is inspect.Parameter.empty:
        return annotation, Field(alias=parameter.name)
    return annotation, Field(default=default, alias=parameter.name)


def _schema(tool_name: str, arguments: type[BaseModel]) -> dict[str, Any]:
    try:
        schema = arguments.model_json_schema()
    except PydanticUserError as error:
        raise TypeError(
            f"A parameter of tool {tool_name!r} has a type that JSON cannot carry: "
            f"{error.message.split('. ')[0]}."
        ) from None
    schema.pop("title", None)
    schema.setdefault("properties", {})
    for described in schema["properties"].values():
        described.pop("title", None)
    return schema
