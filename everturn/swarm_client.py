"""Swarms by HTTP: what `Client.swarms` offers."""

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from everturn.folders import FolderKind
from everturn.inputs import checked_id
from everturn.swarm_views import (
    ItemPage,
    ItemView,
    NewItems,
    NewSwarm,
    ResumeSwarm,
    SwarmPage,
    SwarmView,
)
from everturn.swarms import ItemState, SwarmSpec

WAIT_SECONDS = 20.0
"""One request waits less long than a client waits for its answer."""
PAGE = 500

_View = TypeVar("_View", bound=BaseModel)


class Get(Protocol):
    async def __call__(
        self, path: str, view: type[_View], **query: str | float | None
    ) -> _View: ...


class Post(Protocol):
    async def __call__(self, path: str, body: BaseModel, view: type[_View]) -> _View: ...


class _Nothing(BaseModel):
    """A body without content."""


class Swarms:
    """One agent's work on many items."""

    def __init__(self, get: Get, post: Post) -> None:
        self._get = get
        self._post = post

    async def create(
        self,
        spec: SwarmSpec,
        items: Sequence[dict[str, Any]] = (),
        *,
        id: str | None = None,  # noqa: A002
        open: bool = False,  # noqa: A002
        workspace: str | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        folder: FolderKind | None = None,
    ) -> SwarmView:
        """A new swarm, or the one of this `id` where it exists already; `open`: more items
        follow by `add`."""
        body = NewSwarm(
            id=id or secrets.token_hex(4),
            workspace=workspace,
            working_dir=working_dir,
            user=user,
            folder=folder,
            spec=spec,
            items=tuple(items),
            open=open,
        )
        return await self._post("/v1/swarms", body, SwarmView)

    async def add(
        self, swarm: str, first: int, items: Sequence[dict[str, Any]], last: bool = False
    ) -> SwarmView:
        """Append items from number `first` on; those that the swarm has must be the same."""
        body = NewItems(first=first, items=tuple(items), last=last)
        return await self._post(f"{_path(swarm)}/items", body, SwarmView)

    async def get(self, swarm: str) -> SwarmView:
        return await self._get(_path(swarm), SwarmView)

    async def changed(
        self, swarm: str, seen: str | None = None, wait: float = WAIT_SECONDS
    ) -> SwarmView:
        """The swarm once it stands otherwise than the view of that `seen`, or than now, or after
        `wait` seconds."""
        return await self._get(_path(swarm), SwarmView, wait=wait, seen=seen)

    async def done(self, swarm: str) -> SwarmView:
        """The swarm once it is done."""
        view = await self.get(swarm)
        while view.state != "done":
            view = await self.changed(swarm, view.seen)
        return view

    async def list(self, limit: int = 50, before: str | None = None) -> SwarmPage:
        """The swarms, newest first."""
        return await self._get("/v1/swarms", SwarmPage, limit=limit, before=before)

    async def items(
        self, swarm: str, after: int = 0, limit: int = 100, state: ItemState | None = None
    ) -> ItemPage:
        """The items behind number `after`, in their order."""
        path = f"{_path(swarm)}/items"
        return await self._get(path, ItemPage, after=after, limit=limit, state=state)

    async def results(
        self,
        swarm: str,
        after: int = 0,
        limit: int = PAGE,
        order: Literal["completion", "item"] = "completion",
    ) -> ItemPage:
        """Items that have ended, behind `after`: in the order of their ends, or by their
        numbers as far as all have ended."""
        path = f"{_path(swarm)}/results"
        return await self._get(path, ItemPage, after=after, limit=limit, order=order)

    async def each(self, swarm: str) -> AsyncIterator[ItemView]:
        """Each item as it ends, until the swarm is done."""
        after: int | None = 0
        while after is not None:
            page = await self.results(swarm, after)
            for item in page.items:
                yield item
            after = page.after
            if after is not None and not page.items:
                await self.changed(swarm, wait=1.0)

    async def pause(self, swarm: str) -> SwarmView:
        """Begin no more items; those under way are worked to their ends."""
        return await self._post(f"{_path(swarm)}/pause", _Nothing(), SwarmView)

    async def resume(self, swarm: str, retry_failed: bool = False) -> SwarmView:
        """Go on with a paused swarm, or with what failed or was left out in one."""
        body = ResumeSwarm(retry_failed=retry_failed)
        return await self._post(f"{_path(swarm)}/resume", body, SwarmView)

    async def cancel(self, swarm: str) -> SwarmView:
        """Cancel the items under way and leave out the rest."""
        return await self._post(f"{_path(swarm)}/cancel", _Nothing(), SwarmView)


def _path(swarm: str) -> str:
    return f"/v1/swarms/{quote(checked_id(swarm, 'swarm id'), safe=':')}"
