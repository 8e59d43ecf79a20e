"""Sources `file` and `tool_prompts`: texts that stand in files of the workspace."""

import os
from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.sources import Asked
from everturn_activities.texts import UnreadableError, read


async def file(asked: Asked) -> Sequence[Item]:
    """The file `options.path` of the workspace; nothing where there is none."""
    path = str(asked.layer.options.get("path", ""))
    text = _text(asked, path)
    return () if text is None else ({"name": os.path.basename(path), "path": path, "text": text},)


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
    # A link that leads back to itself has no real path; `read` tells of it.
    root = os.path.realpath(asked.spec.workspace)
    path = os.path.join(root, name)
    if not os.path.realpath(path).startswith(root.rstrip("/") + "/"):
        asked.warn(f"{name} is outside of the workspace, so it is left out; name a file inside.")
        return None
    if not name or not os.path.lexists(path):
        return None
    try:
        return read(path, name)[1].strip()
    except UnreadableError as error:
        asked.warn(str(error))
        return None
