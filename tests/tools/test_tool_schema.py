"""`@tool`: what a model is told of a function, and what the function is given."""

import enum
from collections.abc import Callable
from threading import Lock
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from everturn import Tool, ToolContext, tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 2


@tool
def paint(
    point: Point,
    color: Color,
    width: Annotated[int, Field(ge=1, description="In pixels.")] = 3,
    copy: Literal["yes", "no"] = "no",
    *,
    _label: str | None = None,
    tags: list[str] = Field(default=["new"], description="Free words."),  # noqa: B008
    context: ToolContext,
) -> str:
    """Paint a point."""
    return ""


def test_a_schema_tells_types_defaults_descriptions_and_choices():
    properties = paint.parameters["properties"]

    assert paint.parameters["required"] == ["point", "color"]
    assert paint.parameters["additionalProperties"] is False
    assert paint.parameters["$defs"]["Color"]["enum"] == ["red", "blue"]
    assert properties["width"] == {
        "default": 3,
        "description": "In pixels.",
        "minimum": 1,
        "type": "integer",
    }
    assert properties["copy"] == {"default": "no", "enum": ["yes", "no"], "type": "string"}
    assert properties["tags"]["default"] == ["new"]
    assert properties["tags"]["description"] == "Free words."
    assert set(properties) == {"point", "color", "width", "copy", "_label", "tags"}


def test_a_function_is_given_the_types_that_it_names():
    assert paint.convert is not None

    given = paint.convert({"point": {"x": 1}, "color": "blue"})

    assert given == {
        "point": Point(x=1, y=2),
        "color": Color.BLUE,
        "width": 3,
        "copy": "no",
        "_label": None,
        "tags": ["new"],
    }
    assert paint.context_parameter == "context"


def test_a_tool_without_parameters_has_an_empty_schema():
    @tool(effect="pure")
    async def now() -> str:
        """Tell the time."""
        return ""

    assert now.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert (now.name, now.description, now.effect) == ("now", "Tell the time.", "pure")


def _star(*paths: str) -> None: ...
def _stars(**paths: str) -> None: ...
def _positional(path: str, /) -> None: ...
def _bare(path) -> None: ...  # type: ignore[no-untyped-def]
def _missing(path: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821
def _lock(lock: Lock) -> None: ...
def _callback(then: Callable[[], int]) -> None: ...
def _two(first: ToolContext, second: ToolContext) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_star, "'paths' of tool '_star' cannot be given by name"),
        (_stars, "'paths' of tool '_stars' cannot be given by name"),
        (_positional, "'path' of tool '_positional' cannot be given by name"),
        (_bare, "'path' of tool '_bare' has no annotation"),
        (_missing, "tool '_missing' cannot be resolved: name 'Nowhere' is not defined"),
        (_lock, "tool '_lock' has a type that JSON cannot carry"),
        (_callback, "tool '_callback' has a type that JSON cannot carry"),
        (_two, "two parameters of type ToolContext"),
        (lambda: None, "Tool name '<lambda>' must be 1 to 64 letters"),
    ],
)
def test_a_function_that_no_model_could_call_is_refused_with_the_reason(
    function: Callable[..., Any], reason: str
):
    with pytest.raises(TypeError, match=reason.replace("(", r"\(")):
        tool(function)


def test_only_a_once_tool_may_have_a_verify_function():
    def made(effect: Any) -> Tool:
        return tool(effect=effect, verify=lambda context: None)(_nothing)

    assert made("once").verify is not None
    with pytest.raises(TypeError, match="only a 'once' tool is asked"):
        made("pure")
    with pytest.raises(TypeError, match="'twice' of tool '_nothing' is none of pure"):
        tool(effect="twice")(_nothing)  # type: ignore[call-overload]


@pytest.mark.parametrize("secrets", ["TOKEN", ["token"], ["A TOKEN"]])
def test_secrets_are_a_list_of_names_as_settings_have_them(secrets: Any):
    assert tool(secrets=["TOKEN"])(_nothing).secrets == ("TOKEN",)
    with pytest.raises(TypeError, match="must be a list of names in upper case"):
        tool(secrets=secrets)(_nothing)


def _nothing() -> None: ...
