"""Sources `file` and `tool_prompts`: texts that stand in files of the workspace."""

from collections.abc import Sequence
from pathlib import Path

from everturn.context.layers import Item
from everturn.errors import WorkspaceError
from everturn_activities.sources import Asked
from everturn_activities.trust import read_text


async def file(asked: Asked) -> Sequence[Item]:
    """The file `options.path` of the workspace; nothing where there is none."""
    path = str(asked.layer.options.get("path", ""))
    text = _text(asked, path)
    return () if text is None else ({"name": Path(path).name, "path": path, "text": text},)


async def tool_prompts(asked: Asked) -> Sequence[Item]:
    """`<folder>/tool-<name>.md` for each tool that the agent has, where there is such a file."""
    folder = str(asked.layer.options.get("folder", "prompts"))
    items = []
    for tool in asked.spec.tools:
        text = _text(asked, f"{folder}/tool-{tool.name}.md")
        if text is not None:
            items.append({"name": tool.name, "text": text})
    return items


def _text(asked: Asked, name: str) -> str | None:
    root = Path(asked.spec.workspace)
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        asked.warn(f"{path} is outside of the workspace, so it is left out; name a file inside.")
        return None
    if not path.is_file():
        return None
    try:
        return read_text(path).strip()
    except WorkspaceError as error:
        asked.warn(str(error))
        return None
