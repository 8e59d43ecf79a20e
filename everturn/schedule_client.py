"""Schedules by HTTP: what `Client.schedules` offers."""

import secrets
from typing import Protocol, TypeVar

from pydantic import BaseModel

from everturn.schedules import (
    ChangeSchedule,
    NewSchedule,
    RunSchedule,
    RunView,
    SchedulePage,
    ScheduleRemoved,
    ScheduleView,
    checked_name,
)

_View = TypeVar("_View", bound=BaseModel)


class Get(Protocol):
    async def __call__(self, path: str, view: type[_View], **query: str | int | None) -> _View: ...


class Send(Protocol):
    async def __call__(
        self, method: str, path: str, body: BaseModel | None, view: type[_View]
    ) -> _View: ...


class Schedules:
    """Messages that are sent at set times."""

    def __init__(self, get: Get, send: Send) -> None:
        self._get = get
        self._send = send

    async def add(self, schedule: NewSchedule) -> ScheduleView:
        """The schedule of that name, new or as it is; IdempotencyConflict where it is another."""
        return await self._send("POST", "/v1/schedules", schedule, ScheduleView)

    async def list(self, session: str | None = None) -> tuple[ScheduleView, ...]:
        """All schedules, or those that send to a session."""
        page = await self._get("/v1/schedules", SchedulePage, session=session)
        return page.schedules

    async def get(self, name: str, next_count: int | None = None) -> ScheduleView:
        """One with its last runs and so many next times; UnknownSchedule where there is none."""
        return await self._get(_path(name), ScheduleView, next=next_count)

    async def change(self, name: str, change: ChangeSchedule) -> ScheduleView:
        return await self._send("PATCH", _path(name), change, ScheduleView)

    async def run(self, name: str, id: str | None = None) -> RunView:  # noqa: A002
        """Send its message now; the same `id` again is the same run."""
        body = RunSchedule(id=id or secrets.token_hex(16))
        return await self._send("POST", f"{_path(name)}/run", body, RunView)

    async def remove(self, name: str) -> None:
        await self._send("DELETE", _path(name), None, ScheduleRemoved)


def _path(name: str) -> str:
    return f"/v1/schedules/{checked_name(name)}"
