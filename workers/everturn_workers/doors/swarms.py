"""The routes of swarms: begun, given items, watched, paused, gone on with, cancelled."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from everturn.inputs import checked_id
from everturn.session import SessionKey
from everturn.swarm_views import (
    ItemPage,
    ItemView,
    NewItems,
    NewSwarm,
    ResumeSwarm,
    SwarmPage,
    SwarmView,
)
from everturn.swarms import ItemState, SwarmSpec, checked_name, checked_spec
from everturn.views import NewSession
from everturn_activities.store import SessionSettings
from everturn_workers.doors.opening import session_settings
from everturn_workers.doors.parts import Name, Parts, authorize, key_of

WAIT_SECONDS_MAX = 60
LOOK_SECONDS = 0.25
LOOK_SHARE = 10
"""How many times longer than a look the pause before the next one is."""
RESULTS_PAGE = 500
_NO_BODY = ResumeSwarm()
_OF_SESSION = {"workspace", "working_dir", "user", "folder"}

Order = Literal["completion", "item"]
After = Annotated[int, Query(ge=0, le=2**31)]
Limit = Annotated[int, Query(ge=1, le=500)]


def add_swarms(routes: APIRouter, parts: Parts) -> None:
    _changes(routes, parts)
    _looks(routes, parts)
    _results(routes, parts)


def _changes(routes: APIRouter, parts: Parts) -> None:
    swarms, front = parts.swarms, parts.front

    @routes.post("/swarms", status_code=201)
    async def create_swarm(request: Request, body: NewSwarm) -> SwarmView:
        """Begin a swarm; the same id again answers with the one there is."""
        name = secrets.token_hex(4) if body.id is None else checked_name(body.id)
        key = SessionKey(authorize(request), name)
        spec, settings = await asyncio.to_thread(_checked, parts, key, body)
        view = await swarms.create(key, spec, settings, body.items, last=not body.open)
        await front.wake_swarm(key)
        return view

    @routes.post("/swarms/{id}/items")
    async def add_items(request: Request, swarm: Name, body: NewItems) -> SwarmView:
        """Append items from number `first` on; those that are there already must be the same."""
        key = key_of(request, swarm)
        view = await swarms.add(key, body.first, body.items, body.last)
        await front.wake_swarm(key)
        return view

    @routes.post("/swarms/{id}/pause")
    async def pause_swarm(request: Request, swarm: Name) -> SwarmView:
        """Begin no more items; those under way are worked to their ends."""
        return await swarms.pause(key_of(request, swarm))

    @routes.post("/swarms/{id}/resume")
    async def resume_swarm(
        request: Request, swarm: Name, body: ResumeSwarm = _NO_BODY
    ) -> SwarmView:
        """Go on with a paused swarm, or with what failed or was left out in one."""
        key = key_of(request, swarm)
        view = await swarms.resume(key, body.retry_failed)
        await front.wake_swarm(key)
        return view

    @routes.post("/swarms/{id}/cancel")
    async def cancel_swarm(request: Request, swarm: Name) -> SwarmView:
        """Cancel the items under way and leave out the rest; one that has ended stays as it is."""
        key = key_of(request, swarm)
        view = await swarms.cancel(key)
        await front.wake_swarm(key)
        return view


def _looks(routes: APIRouter, parts: Parts) -> None:
    swarms = parts.swarms

    @routes.get("/swarms")
    async def list_swarms(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[str | None, Query()] = None,
    ) -> SwarmPage:
        """The tenant's swarms, newest first."""
        if before is not None:
            checked_id(before, "swarm id")
        found = await swarms.every(authorize(request), limit, before)
        return SwarmPage(swarms=tuple(found), before=found[-1].id if len(found) == limit else None)

    @routes.get("/swarms/{id}")
    async def read_swarm(
        request: Request,
        swarm: Name,
        wait: Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)] = 0,
        seen: Annotated[str | None, Query(max_length=200)] = None,
    ) -> SwarmView:
        """How a swarm stands; with `wait`, once it stands otherwise than the view whose `seen` is
        named, or than now, or after so many seconds."""
        key, began = key_of(request, swarm), time.monotonic()
        view = await swarms.swarm(key)
        # To count a hundred thousand items takes a while.
        pause = max(LOOK_SECONDS, LOOK_SHARE * (time.monotonic() - began))
        known = seen or view.seen
        while view.seen == known and (left := began + wait - time.monotonic()) > 0:
            if await parts.streams.rest(min(left, pause)):
                break
            view = await swarms.swarm(key)
        return view

    @routes.get("/swarms/{id}/items")
    async def read_items(
        request: Request,
        swarm: Name,
        after: After = 0,
        limit: Limit = 100,
        state: Annotated[ItemState | None, Query()] = None,
    ) -> ItemPage:
        """The items behind number `after`, in their order."""
        found = await swarms.items(key_of(request, swarm), after, limit, state)
        return ItemPage(items=tuple(found), after=found[-1].n if len(found) == limit else None)


def _results(routes: APIRouter, parts: Parts) -> None:
    swarms = parts.swarms

    async def page(key: SessionKey, order: Order, after: int, limit: int) -> list[ItemView]:
        if order == "item":
            return await swarms.results_in_order(key, after, limit)
        return await swarms.results(key, after, limit)

    @routes.get(
        "/swarms/{id}/results",
        response_model=ItemPage,
        responses={200: {"content": {"application/x-ndjson": {}}}},
    )
    async def read_results(
        request: Request,
        swarm: Name,
        after: After = 0,
        limit: Limit = 100,
        order: Annotated[Order, Query()] = "completion",
        follow: Annotated[bool, Query()] = False,
    ) -> Response | ItemPage:
        """Items that have ended, behind `after`: in the order of their ends, `settled`, or by
        their numbers, `n`, as far as all have ended.

        To `Accept: application/x-ndjson` all of them, one a line; with `follow` also those that
        end from now on, until the swarm is done.
        """
        key = key_of(request, swarm)
        view = await swarms.swarm(key)
        if request.headers.get("accept", "").startswith("application/x-ndjson"):
            lines = _lines(key, order, after, follow)
            return StreamingResponse(lines, media_type="application/x-ndjson")
        found = await page(key, order, after, limit)
        over = len(found) < limit and view.state == "done"
        last = cursor_of(found[-1], order) if found else after
        return ItemPage(items=tuple(found), after=None if over else last)

    async def _lines(
        key: SessionKey, order: Order, after: int, follow: bool
    ) -> AsyncIterator[bytes]:
        done = False
        while True:
            found = await page(key, order, after, RESULTS_PAGE)
            if found:
                yield b"".join(orjson.dumps(item.model_dump()) + b"\n" for item in found)
                after = cursor_of(found[-1], order)
            if len(found) == RESULTS_PAGE:
                continue
            if done or not follow or await parts.streams.rest(LOOK_SECONDS):
                return
            # What ended before this look is told before the end.
            done = (await swarms.swarm(key)).state == "done"


def cursor_of(item: ItemView, order: Order) -> int:
    """What to ask the results behind `item` with."""
    return item.n if order == "item" else item.settled or 0


def _checked(parts: Parts, key: SessionKey, body: NewSwarm) -> tuple[SwarmSpec, SessionSettings]:
    """What a swarm is begun with, each part checked. Reads files."""
    spec = body.spec
    checked_spec(spec, None if body.open else len(body.items))
    asked = NewSession(
        agent=spec.agent if "agent" in spec.model_fields_set else None,
        model=spec.model,
        **body.model_dump(include=_OF_SESSION),
    )
    settings = session_settings(parts, asked, key)
    if spec.reduce is not None:
        parts.check(Path(settings.workspace), spec.reduce, None)
    named = {"agent": settings.agent, "model": settings.model}
    # Where items have folders of their own, the swarm itself has none.
    return spec.model_copy(update=named), replace(settings, own_dir=None)
