"""Source `project`: what the workspace is for, by `[project]` of its settings."""

from collections.abc import Sequence
from pathlib import Path

from everturn.context.layers import Item
from everturn.errors import WorkspaceError
from everturn_activities.sources import Asked
from everturn_activities.workspace import load


async def project(asked: Asked) -> Sequence[Item]:
    """One item with `name`, `description`, `instructions` and all of them as `text`; none for
    a workspace that names no project."""
    try:
        told = load(Path(asked.spec.workspace)).settings.project
    except WorkspaceError as error:
        asked.warn(str(error))
        return ()
    if not told.name:
        return ()
    head = f"{told.name}: {told.description}" if told.description else told.name
    text = "\n\n".join(part for part in (head, told.instructions.strip()) if part)
    return ({**told.model_dump(), "text": text},)
