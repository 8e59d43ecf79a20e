"""Layers of documents: `documents`, `agents_md` and `files`."""

import os
from collections.abc import Sequence
from pathlib import Path

from everturn.context.layers import Item
from everturn_activities.documents import nested, resources
from everturn_activities.skills.places import Places
from everturn_activities.skills.shelf import places_of
from everturn_activities.sources import Asked, Sources
from everturn_activities.texts import Texts, UnreadableError
from everturn_activities.threads import in_thread

DOCUMENTS = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md")
FOLDER = "context"
NESTED = ("AGENTS.md",)


class DocumentSources:
    """Gives `name`, `path` and `text` of each document; blank and missing ones are left out."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._texts = Texts()

    def named(self) -> Sources:
        return {
            "documents": self.documents,
            "agents_md": self.agents_md,
            "files": self.files,
        }

    async def documents(self, asked: Asked) -> Sequence[Item]:
        """The workspace's documents that `options.names` lists, in that order, from its folder
        `options.folder`."""
        places = places_of(asked.spec, self._home)
        folder = places.at(str(asked.layer.options.get("folder", FOLDER)))
        names = _texts_of(asked.layer.options.get("names", DOCUMENTS))
        return await self._items([f"{folder}/{name}" for name in names], asked, places)

    async def agents_md(self, asked: Asked) -> Sequence[Item]:
        """Each AGENTS.md from the workspace down to the working folder, the nearest last;
        `options.names` has other names for it, of which the first counts in a folder."""
        names = _texts_of(asked.layer.options.get("names", NESTED))
        found = nested.folders(asked.spec.workspace, asked.spec.working_dir)
        # Told as seen from the workspace, where the chain begins.
        places = Places(asked.spec.working_dir, asked.spec.workspace, str(self._home))
        return await self._items([one for one in nested.files(found, names) if one], asked, places)

    async def files(self, asked: Asked) -> Sequence[Item]:
        """Every byte of the files that the agent, and `options.resources`, name by `file://`."""
        places = places_of(asked.spec, self._home)
        named = (*_texts_of(asked.layer.options.get("resources", ())), *asked.spec.agent.resources)
        problems: list[str] = []
        found: list[str] = []
        for resource in dict.fromkeys(named):
            if not resource.startswith(resources.SCHEME):
                continue
            if "**" in resource:
                found += await in_thread(resources.files, resource, places, problems)
            else:
                found += resources.files(resource, places, problems)
        for problem in problems:
            asked.warn(problem)
        return await self._items(list(dict.fromkeys(found)), asked, places)

    async def _items(self, found: Sequence[str], asked: Asked, places: Places) -> Sequence[Item]:
        items = []
        for file in found:
            shown = places.shown(file)
            try:
                text = await self._texts.of(file, shown)
            except UnreadableError as error:
                asked.warn(str(error))
                continue
            if text is not None and text.strip():
                items.append({"name": os.path.basename(file), "path": shown, "text": text})
        return items


def _texts_of(given: object) -> tuple[str, ...]:
    return tuple(str(one) for one in given) if isinstance(given, list | tuple) else (str(given),)
