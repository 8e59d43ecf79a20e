"""Layers of documents: `documents`, `agents_md` and `files`."""

import os
from collections.abc import Sequence
from pathlib import Path

from everturn.context.layers import Item
from everturn.errors import WorkspaceError
from everturn_activities.documents import nested, resources
from everturn_activities.skills.places import Places
from everturn_activities.skills.shelf import places_of
from everturn_activities.sources import Asked, Sources
from everturn_activities.texts import EXCERPT_BYTES, Texts, TooLongError, UnreadableError
from everturn_activities.threads import in_thread

DOCUMENTS = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md")
FOLDER = "context"
NESTED = ("AGENTS.md",)
BYTES_MAX = 256 * 1024
"""Of the files of one layer together, unless its option `bytes_max` says otherwise: about 65,000
tokens, half of a common model's window. Of a longer file the beginning and the end are told."""

_HIGHEST = 16 * 1024 * 1024
_NAMED = 3


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
        `options.names` has other names for it, of which the first counts in a folder. Where they
        are too long together, the nearest stay."""
        names = _texts_of(asked.layer.options.get("names", NESTED))
        found = nested.folders(asked.spec.workspace, asked.spec.working_dir)
        # Told as seen from the workspace, where the chain begins.
        places = Places(asked.spec.working_dir, asked.spec.workspace, str(self._home))
        nearest_first = [one for one in reversed(nested.files(found, names)) if one]
        return [*reversed(await self._items(nearest_first, asked, places))]

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
        bytes_max = _bytes_max(asked)
        left = bytes_max
        items: list[Item] = []
        beyond: list[str] = []
        for file in found:
            shown = places.shown(file)
            if beyond:
                # Hundreds more are not read only to be left out.
                beyond.append(shown)
                continue
            try:
                text = await self._texts.of(file, shown, bytes_max)
            except TooLongError as error:
                asked.warn(
                    f"{shown} has {error.size:,} bytes and the limit is {bytes_max:,}, so only its"
                    " beginning and its end are told; shorten it, or raise the layer's option"
                    " bytes_max."
                )
                text = error.excerpt
            except UnreadableError as error:
                asked.warn(str(error))
                continue
            if text is None or not text.strip():
                continue
            length = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            if length > left:
                beyond.append(shown)
                continue
            left -= length
            items.append({"name": os.path.basename(file), "path": shown, "text": text})
        if beyond:
            asked.warn(_left_out(asked.layer.id, beyond, bytes_max))
        return items


def _bytes_max(asked: Asked) -> int:
    given: object = asked.layer.options.get("bytes_max", BYTES_MAX)
    if not isinstance(given, int) or not EXCERPT_BYTES <= given <= _HIGHEST:
        raise WorkspaceError(
            f"Layer {asked.layer.id} has the option bytes_max = {given!r}; give a number from"
            f" {EXCERPT_BYTES:,} to {_HIGHEST:,}."
        )
    return given


def _left_out(layer: str, beyond: Sequence[str], bytes_max: int) -> str:
    more = f" and {len(beyond) - _NAMED:,} more" if len(beyond) > _NAMED else ""
    are = "is" if len(beyond) == 1 else "are"
    return (
        f"The files of layer {layer} have more than {bytes_max:,} bytes together, so"
        f" {', '.join(beyond[:_NAMED])}{more} {are} left out; name fewer, or raise the layer's"
        " option bytes_max."
    )


def _texts_of(given: object) -> tuple[str, ...]:
    return tuple(str(one) for one in given) if isinstance(given, list | tuple) else (str(given),)
