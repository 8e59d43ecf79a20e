"""The routes of tasks: handed in, looked at, waited for, tried anew, cancelled."""

import asyncio
import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from everturn.errors import UsageError
from everturn.inputs import checked_id
from everturn.session import SessionKey
from everturn.tasks import (
    NewTask,
    NewTasks,
    RequeueTask,
    TaskPage,
    TasksCame,
    TaskState,
    TaskView,
    checked_task,
    session_of,
)
from everturn.views import NewSession
from everturn_activities.store import SessionSettings
from everturn_activities.toolbox import broken_schema
from everturn_workers.doors.opening import session_settings
from everturn_workers.doors.parts import Name, Parts, authorize

WAIT_SECONDS_MAX = 60
_NO_BODY = RequeueTask()
_OF_SESSION = {"workspace", "agent", "model", "working_dir", "user", "folder", "webhook"}

Wait = Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)]


def add_tasks(routes: APIRouter, parts: Parts) -> None:
    tasks, front = parts.tasks, parts.front

    @routes.post("/tasks", status_code=202)
    async def submit_task(
        request: Request,
        body: NewTask,
        idempotency_key: Annotated[str | None, Header()] = None,
        wait: Wait = 0,
    ) -> TaskView:
        """Hand a task in; the same id, or `Idempotency-Key`, again answers with the one there is.

        With `wait`, the answer comes once it has ended, or after so many seconds.
        """
        tenant, name = authorize(request), _named(body, idempotency_key)
        given = await asyncio.to_thread(_checked, parts, tenant, name, body)
        (came,) = await tasks.submit(tenant, [given])
        await front.wake_all([came.wake])
        return await _ended(parts, tenant, name, wait)

    @routes.post("/tasks/batch", status_code=202)
    async def submit_tasks(request: Request, body: NewTasks) -> TasksCame:
        """Hand many in, in one transaction: all or none."""
        tenant = authorize(request)
        given = await asyncio.to_thread(
            lambda: [
                _checked(parts, tenant, _named(task, None, index), task)
                for index, task in enumerate(body.tasks)
            ]
        )
        came = await tasks.submit(tenant, given)
        await front.wake_all(each.wake for each in came)
        return TasksCame(tasks=tuple(each.id for each in came))

    @routes.get("/tasks")
    async def list_tasks(
        request: Request,
        state: Annotated[TaskState | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[str | None, Query()] = None,
    ) -> TaskPage:
        found = await tasks.tasks(authorize(request), state, limit, before)
        return TaskPage(tasks=tuple(found), before=found[-1].id if len(found) == limit else None)

    @routes.get("/tasks/{id}")
    async def read_task(request: Request, task: Name, wait: Wait = 0) -> TaskView:
        """The task; with `wait`, once it has ended, or after so many seconds."""
        return await _ended(parts, authorize(request), task, wait)

    @routes.post("/tasks/{id}/cancel", status_code=202)
    async def cancel_task(request: Request, task: Name) -> TaskView:
        """End a task; one that has ended stays as it is."""
        tenant = authorize(request)
        await front.wake_all([await tasks.cancel(tenant, task)])
        return await tasks.task(tenant, task)

    @routes.post("/tasks/{id}/retry", status_code=202)
    async def retry_task(request: Request, task: Name, body: RequeueTask = _NO_BODY) -> TaskView:
        """Begin anew a task that is dead or cancelled, or at once one that waits."""
        tenant = authorize(request)
        await front.wake_all([await tasks.requeue(tenant, task, body.deadline)])
        return await tasks.task(tenant, task)


def _named(task: NewTask, key: str | None, index: int | None = None) -> str:
    """The id that a task is handed in under."""
    if task.id is not None and key is not None and task.id != key:
        raise UsageError(
            f"The task's id is {task.id[:80]!a} and its Idempotency-Key {key[:80]!a}; send one of"
            " the two."
        )
    name = task.id or key
    if name is None and index is not None:
        raise UsageError(
            f"Field 'tasks.{index}.id' is missing; name each task of a batch, so that it can be"
            " sent again."
        )
    return checked_id(name, "task id") if name is not None else secrets.token_hex(8)


def _checked(
    parts: Parts, tenant: str, name: str, task: NewTask
) -> tuple[str, NewTask, SessionSettings]:
    """What a task is worked under, each part checked. Reads files."""
    checked_task(task)
    if task.output is not None:
        _check_output(task.output)
    key = SessionKey(tenant, session_of(name))
    asked = NewSession(**task.model_dump(include=_OF_SESSION))
    return name, task, session_settings(parts, asked, key)


def _check_output(schema: dict[str, Any]) -> None:
    if schema.get("type") != "object":
        raise UsageError("Field 'output' is wrong: the schema must be one of type object; mend it.")
    if (broken := broken_schema(schema)) is not None:
        raise UsageError(f"Field 'output' is no JSON schema: {broken}; mend it.")


async def _ended(parts: Parts, tenant: str, name: str, seconds: float) -> TaskView:
    """The task, once it has ended or so many seconds have passed."""
    view = await parts.tasks.task(tenant, name)
    if view.ended or not seconds:
        return view
    key = SessionKey(tenant, view.session)
    try:
        async with asyncio.timeout(seconds):
            # Told from the first event: it may have ended since it was read.
            async for batch in parts.events.watch(key, (1, 0)):
                if any(event.type == "task_ended" for event in batch):
                    view = await parts.tasks.task(tenant, name)
                    if view.ended:
                        return view
    except TimeoutError:
        pass
    return await parts.tasks.task(tenant, name)
