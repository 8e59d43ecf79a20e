"""The six things that a manager of servers can be asked for (K22), and no others."""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from everturn.errors import UsageError
from everturn.mcp import ServerConfig
from everturn.messages import Frozen


class LaunchServer(Frozen):
    request: Literal["LaunchServer"] = "LaunchServer"
    server_name: str
    config: ServerConfig


class GetToolSpecs(Frozen):
    request: Literal["GetToolSpecs"] = "GetToolSpecs"
    server_name: str


class GetPrompts(Frozen):
    request: Literal["GetPrompts"] = "GetPrompts"
    server_name: str


class GetPrompt(Frozen):
    request: Literal["GetPrompt"] = "GetPrompt"
    server_name: str
    name: str
    arguments: dict[str, str] = Field(default_factory=dict)


class ExecuteTool(Frozen):
    request: Literal["ExecuteTool"] = "ExecuteTool"
    server_name: str
    tool_name: str
    args: dict[str, Any] = Field(default_factory=dict)


class Terminate(Frozen):
    request: Literal["Terminate"] = "Terminate"


Request = Annotated[
    LaunchServer | GetToolSpecs | GetPrompts | GetPrompt | ExecuteTool | Terminate,
    Field(discriminator="request"),
]
_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


def parse(text: str) -> Request:
    """The request that `text`, as JSON, is. Raises UsageError for any other."""
    try:
        return _REQUEST.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        at = f" at {where}" if where else ""
        raise UsageError(
            f"That is no request to a manager of servers{at}: {first['msg']}."
        ) from None
