"""The routes of schedules: messages that are sent at set times."""

import asyncio
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath

from everturn.errors import UsageError
from everturn.inputs import checked_id, checked_text
from everturn.memory import USER
from everturn.schedules import (
    NEXT_SHOWN,
    ChangeSchedule,
    Definition,
    NewSchedule,
    Rules,
    RunSchedule,
    RunView,
    SchedulePage,
    ScheduleRemoved,
    ScheduleView,
    Status,
    checked_name,
)
from everturn.session import SessionKey
from everturn.views import NewSession
from everturn_workers.doors.opening import session_settings
from everturn_workers.doors.parts import Parts, authorize, id_of, key_of

Name = Annotated[str, InPath(alias="name")]
_NO_BODY = RunSchedule()


def add_schedules(routes: APIRouter, parts: Parts) -> None:
    keeper, front = parts.keeper, parts.front
    schedules = keeper.schedules

    @routes.post("/schedules", status_code=201)
    async def add_schedule(request: Request, body: NewSchedule) -> ScheduleView:
        """Have a message sent at set times; the same name again answers with the same schedule."""
        tenant, name = authorize(request), checked_name(body.name)
        checked_text(body.prompt, "prompt")
        if body.session is not None:
            definition = await _for_session(parts, request, body)
        else:
            definition = await asyncio.to_thread(_for_new_sessions, parts, tenant, body)
        status: Status = "paused" if body.paused else "active"
        view, told = await schedules.add(tenant, name, definition, status)
        return view.model_copy(update={"problem": await keeper.tell_soon(told)})

    @routes.get("/schedules")
    async def list_schedules(
        request: Request, session: Annotated[str | None, Query()] = None
    ) -> SchedulePage:
        """The schedules, or those that send to a session."""
        named = None if session is None else checked_id(session, "session id")
        return SchedulePage(schedules=tuple(await schedules.schedules(authorize(request), named)))

    @routes.get("/schedules/{name}")
    async def read_schedule(
        request: Request,
        name: Name,
        next_count: Annotated[int, Query(alias="next", ge=1, le=100)] = NEXT_SHOWN,
    ) -> ScheduleView:
        """A schedule with its next times and its last runs."""
        return await schedules.schedule(authorize(request), name, next_count)

    @routes.patch("/schedules/{name}")
    async def change_schedule(request: Request, name: Name, body: ChangeSchedule) -> ScheduleView:
        """Change what is named of it; `paused` lets it rest, or go on."""
        if body.prompt is not None:
            checked_text(body.prompt, "prompt")
        view, told = await schedules.change(authorize(request), name, body)
        return view.model_copy(update={"problem": await keeper.tell_soon(told)})

    @routes.delete("/schedules/{name}")
    async def remove_schedule(request: Request, name: Name) -> ScheduleRemoved:
        """Let it fire no more; what it has sent goes on."""
        told = await schedules.remove(authorize(request), name)
        await keeper.tell_soon(told)
        return ScheduleRemoved(name=name)

    @routes.post("/schedules/{name}/run", status_code=202)
    async def run_schedule(request: Request, name: Name, body: RunSchedule = _NO_BODY) -> RunView:
        """Send its message now, whether or not it is paused; the same `id` is the same run."""
        run_id = id_of(body.id, "run id")
        view, fired = await schedules.run(authorize(request), name, f"by-hand:{run_id}")
        await front.wake_all(fired.wakes)
        return view


async def _for_session(parts: Parts, request: Request, body: NewSchedule) -> Definition:
    """For messages to a session that there is: it keeps what it was made with."""
    named = [field for field in ("workspace", "working_dir", "folder") if getattr(body, field)]
    if named or body.user != USER:
        raise UsageError(
            f"Session {body.session!r} keeps what it was created with; leave"
            f" {' and '.join(named or ['user'])} out, or leave 'session' out for new sessions."
        )
    view = await parts.store.session(key_of(request, body.session or ""))
    if body.agent is not None or body.model is not None:
        agent, model = body.agent or view.agent, body.model or view.model
        await asyncio.to_thread(parts.check, Path(view.workspace), agent, model)
    return Definition(**_said(body))


def _for_new_sessions(parts: Parts, tenant: str, body: NewSchedule) -> Definition:
    """For new sessions: what those begin with, checked. Reads files."""
    asked = NewSession(**body.model_dump(include=set(NewSession.model_fields) - {"id"}))
    begins = session_settings(parts, asked, SessionKey(tenant, body.name))
    return Definition(
        **{**_said(body), "agent": begins.agent, "model": begins.model},
        workspace=begins.workspace,
        working_dir=begins.working_dir,
        folder=begins.folder,
    )


def _said(body: NewSchedule) -> dict[str, object]:
    return {field: getattr(body, field) for field in Rules.model_fields}
