"""The client's requests about tasks and webhooks."""

import secrets
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from everturn.inputs import checked_id
from everturn.tasks import (
    NewTask,
    NewTasks,
    RequeueTask,
    TaskPage,
    TasksCame,
    TaskState,
    TaskView,
)
from everturn.webhooks import WebhookPage, WebhookState, WebhookView

WAIT_SECONDS = 20
"""One request waits less long than a client waits for its answer."""

_View = TypeVar("_View", bound=BaseModel)


class _Nothing(BaseModel):
    """A body without content."""


class TaskRequests:
    """Mixed into the client, whose requests can all be sent twice without harm."""

    async def _get(self, path: str, view: type[_View], **query: str | int | None) -> _View:
        raise NotImplementedError

    async def _post(self, path: str, body: BaseModel, view: type[_View]) -> _View:
        raise NotImplementedError

    async def submit_task(self, task: NewTask | None = None, **given: Any) -> TaskView:
        """Hand a task in, or what `given` makes; the same id again changes nothing."""
        made = task if task is not None else NewTask(**given)
        named = made.model_copy(update={"id": made.id or secrets.token_hex(8)})
        return await self._post("/v1/tasks", named, TaskView)

    async def submit_tasks(self, tasks: Sequence[NewTask]) -> tuple[str, ...]:
        """Hand many in together; each has an id."""
        body = NewTasks(tasks=tuple(tasks))
        return (await self._post("/v1/tasks/batch", body, TasksCame)).tasks

    async def task(self, task: str, wait: int | None = None) -> TaskView:
        """The task; with `wait`, once it has ended or after so many seconds."""
        return await self._get(_path(task), TaskView, wait=wait)

    async def wait_for_task(self, task: str) -> TaskView:
        """The task once it has ended."""
        while not (view := await self.task(task, WAIT_SECONDS)).ended:
            pass
        return view

    async def tasks(
        self, state: TaskState | None = None, limit: int = 50, before: str | None = None
    ) -> TaskPage:
        return await self._get("/v1/tasks", TaskPage, state=state, limit=limit, before=before)

    async def cancel_task(self, task: str) -> TaskView:
        return await self._post(f"{_path(task)}/cancel", _Nothing(), TaskView)

    async def retry_task(self, task: str, deadline: str | float | None = None) -> TaskView:
        """Begin a task anew that is dead or cancelled, or at once one that waits."""
        body = RequeueTask.model_validate({"deadline": deadline})
        return await self._post(f"{_path(task)}/retry", body, TaskView)

    async def webhooks(
        self, state: WebhookState | None = None, limit: int = 50, before: str | None = None
    ) -> WebhookPage:
        return await self._get("/v1/webhooks", WebhookPage, state=state, limit=limit, before=before)

    async def retry_webhook(self, webhook: str) -> WebhookView:
        path = f"/v1/webhooks/{checked_id(webhook, 'webhook id')}/retry"
        return await self._post(path, _Nothing(), WebhookView)


def _path(task: str) -> str:
    return f"/v1/tasks/{quote(checked_id(task, 'task id'), safe=':')}"
