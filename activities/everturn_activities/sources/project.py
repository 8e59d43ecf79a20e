"""Source `project`: what the workspace is for, by `[project]` of its settings."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.sources import Asked


async def project(asked: Asked) -> Sequence[Item]:
    """One item with `name`, `description`, `instructions` and all of them as `text`; none for
    a workspace that names no project."""
    told = asked.spec.project
    if not told.name:
        return ()
    head = f"{told.name}: {told.description}" if told.description else told.name
    text = "\n\n".join(part for part in (head, told.instructions.strip()) if part)
    return ({**told.model_dump(), "text": text},)
