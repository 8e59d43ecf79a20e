"""The route of workers: who takes what, and what of it is under way."""

from fastapi import APIRouter, Request

from everturn.workers import WorkerPage, WorkerState, WorkerView
from everturn_activities.store.workers import Listed
from everturn_workers.doors.parts import Parts, authorize


def add_workers(routes: APIRouter, parts: Parts) -> None:
    @routes.get("/workers")
    async def list_workers(request: Request) -> WorkerPage:
        """All workers, and of those that were killed each until its calls were given away."""
        authorize(request)
        return WorkerPage(workers=tuple(map(_view, await parts.workers.listed())))


def _view(listed: Listed) -> WorkerView:
    member, work = listed.member, listed.work
    return WorkerView(
        id=member.instance,
        state=_state(listed),
        home=member.home,
        home_path=member.path,
        host=member.host,
        roles=tuple(member.roles.split(",")),
        slots=dict(work.slots),
        under_way=dict(work.under_way),
        version=member.build.removeprefix("everturn-"),
        started_at=listed.started_at,
        heard_at=listed.heard_at,
        seconds_since=listed.seconds_since,
    )


def _state(listed: Listed) -> WorkerState:
    if not listed.alive:
        return "gone"
    return "drains" if listed.work.draining else "works"
