"""The routes of webhooks: what was told outside, and what could not be."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from everturn.webhooks import WebhookPage, WebhookState, WebhookView
from everturn_workers.doors.parts import Name, Parts, authorize


def add_webhooks(routes: APIRouter, parts: Parts) -> None:
    tasks = parts.tasks

    @routes.get("/webhooks")
    async def list_webhooks(
        request: Request,
        state: Annotated[WebhookState | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[str | None, Query()] = None,
    ) -> WebhookPage:
        found = await tasks.webhooks(authorize(request), state, limit, before)
        last = found[-1].id if len(found) == limit else None
        return WebhookPage(webhooks=tuple(found), before=last)

    @routes.post("/webhooks/{id}/retry", status_code=202)
    async def retry_webhook(request: Request, webhook: Name) -> WebhookView:
        """Send it again, under the same id: a receiver tells by that whether it had it."""
        return await tasks.send_again(authorize(request), webhook)
