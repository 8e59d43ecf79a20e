"""The tools that a workspace's `tools/*.py` define."""

from pathlib import Path

from everturn.errors import WorkspaceError
from everturn.tools import Tool
from everturn_activities.code_files import names_of
from everturn_activities.trust import require_trusted


def load_tools(workspace: Path, reserved: frozenset[str]) -> dict[str, tuple[Tool, str]]:
    """Every `Tool` that a file in `tools/` defines, and that file, by the tool's name.

    `reserved` names are those of the built-in tools.
    """
    folder = workspace / "tools"
    found: dict[str, tuple[Tool, str]] = {}
    if not folder.is_dir():
        return found
    require_trusted(folder)
    for path in sorted(folder.glob("*.py")):
        file = f"tools/{path.name}"
        for tool in _tools_of(path):
            if tool.name in reserved:
                raise WorkspaceError(
                    f"{path} defines a tool {tool.name!r}, which is the name of a built-in one;"
                    " give it another name."
                )
            if tool.name in found:
                raise WorkspaceError(
                    f"{path} defines a tool {tool.name!r}, and so does {found[tool.name][1]};"
                    " rename one of them."
                )
            found[tool.name] = (tool, file)
    return found


def _tools_of(path: Path) -> list[Tool]:
    tools = {id(value): value for value in names_of(path).values() if isinstance(value, Tool)}
    return list(tools.values())
