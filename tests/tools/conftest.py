"""A working folder, and calls of the built-in tools in it."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everturn import ToolContext
from everturn_activities.builtin import builtins
from everturn_activities.toolbox import ToolOutcome, call_tool
from everturn_activities.workspace import protected_paths, tool_spec

Call = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def context(folder: Path) -> ToolContext:
    return ToolContext("tenant", "session", folder, "k" * 64, protected_paths(folder))


@pytest.fixture
def call(context: ToolContext) -> Call:
    """Call a built-in tool; `changes` replace fields of its context."""

    async def call(
        name: str, arguments: dict[str, Any], malformed: str | None = None, **changes: Any
    ) -> ToolOutcome:
        tool = builtins()[name]
        changed = replace(context, **changes)
        return await call_tool(tool, tool_spec(tool), arguments, malformed, changed)

    return call
