"""The source `knowledge`: which folders can be searched, and nothing of what they hold."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.builtin.inside import Library
from everturn_activities.sources import Asked, Source


def knowledge_source(library: Library) -> Source:
    """An item for each: its `name`, its `folder`, how many `files` it has, and a `text` that
    says so."""

    async def items(asked: Asked) -> Sequence[Item]:
        views = await library.list(asked.key.tenant, asked.spec.workspace)
        return [
            {
                "name": view.name,
                "folder": view.folder,
                "files": str(view.files),
                "text": f"{view.name}: {view.files} file{'' if view.files == 1 else 's'}",
            }
            for view in views
        ]

    return items
