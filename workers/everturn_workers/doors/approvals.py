"""Approvals: the tool calls that wait for a person, and what the person says."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError

from everturn.approvals import ToolVerdict
from everturn.errors import UsageError
from everturn.views import AcceptedView, AnswerApproval, ApprovalPage
from everturn_activities.store import Inbound
from everturn_workers.doors.parts import Name, Parts, authorize, id_of, key_of


def add_approvals(routes: APIRouter, parts: Parts) -> None:
    store, front = parts.store, parts.front

    @routes.get("/approvals")
    async def list_approvals(
        request: Request, session: Annotated[str | None, Query()] = None
    ) -> ApprovalPage:
        """The tool calls that wait for a person's leave, newest first."""
        tenant = authorize(request)
        if session is not None:
            await store.session(key_of(request, session))
        return ApprovalPage(approvals=tuple(await store.approvals(tenant, session)))

    @routes.post("/sessions/{id}/approvals/{approval}", status_code=202)
    async def answer_approval(
        request: Request, session: Name, approval: int, body: AnswerApproval
    ) -> AcceptedView:
        """Say whether a tool call may run. The first verdict on it holds."""
        name = id_of(body.id, "answer id")
        try:
            verdict = ToolVerdict(approval=approval, **body.model_dump(exclude={"id"}))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = f"{first['loc'][0]}: " if first["loc"] else ""
            said = first["msg"].removeprefix("Value error, ")
            raise UsageError(f"The verdict is not possible: {where}{said}.") from None
        return await front.accept(
            key_of(request, session), Inbound(id=name, kind="approval", approval=verdict)
        )
