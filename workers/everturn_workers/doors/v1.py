"""Our own door: sessions, messages, events under `/v1`."""

import asyncio
import base64
import binascii
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute

from everturn.budgets import Budget, BudgetVerdict
from everturn.errors import UsageError
from everturn.events import cursor_from_text
from everturn.inputs import checked_id, checked_message, checked_text
from everturn.messages import (
    Document,
    Image,
    PromptInvocation,
    ResourceMention,
    SkillInvocation,
    UserMessage,
    user_text,
)
from everturn.session import SessionKey
from everturn.views import (
    AcceptedView,
    AgentPage,
    AnswerBudget,
    BudgetPage,
    BudgetView,
    CancelTurn,
    CompactionUndoneView,
    CompactionView,
    CompactSession,
    ContextView,
    ImportedView,
    ImportMessages,
    MessagePage,
    NewBudget,
    NewMessage,
    NewSession,
    Problem,
    SessionPage,
    SessionView,
    SkillPage,
    TurnPage,
    Undo,
    UsageBy,
    UsagePage,
)
from everturn_activities.store import Inbound
from everturn_activities.store.usage import start_of
from everturn_workers.doors.approvals import add_approvals
from everturn_workers.doors.checkpoints import add_checkpoints
from everturn_workers.doors.folders import add_folders
from everturn_workers.doors.forks import add_forks
from everturn_workers.doors.knowledge import add_knowledge
from everturn_workers.doors.memory import add_memory
from everturn_workers.doors.opening import session_settings
from everturn_workers.doors.parts import Name, Parts, authorize, id_of, key_of
from everturn_workers.doors.schedules import add_schedules
from everturn_workers.doors.servers import add_servers
from everturn_workers.doors.swarms import add_swarms
from everturn_workers.doors.tasks import add_tasks
from everturn_workers.doors.webhooks import add_webhooks
from everturn_workers.doors.workers import add_workers
from everturn_workers.invocations import may_ask
from everturn_workers.known_session import demand_same
from everturn_workers.roster import roster

EVENTS_PAGE = 1000
_NO_CANCEL_BODY, _NO_COMPACT_BODY, _NO_UNDO_BODY = CancelTurn(), CompactSession(), Undo()

_SETTINGS = {"workspace", "agent", "model", "working_dir", "user", "folder"}


class _StrictRequest(Request):
    async def json(self) -> Any:
        # Refuses what the standard parser lets in or dies of: lone surrogates, bytes that
        # are not UTF-8, nesting by the thousand.
        return orjson.loads(await self.body())


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Any]:
        answer = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await answer(_StrictRequest(request.scope, request.receive))

        return strict


def router(parts: Parts) -> APIRouter:
    routes = APIRouter(
        prefix="/v1",
        route_class=_StrictRoute,
        responses={"default": {"model": Problem, "description": "A problem document (RFC 9457)"}},
    )
    for add in (
        _sessions,
        _messages,
        _events,
        _controls,
        _budgets,
        _compactions,
        add_approvals,
        add_checkpoints,
        add_folders,
        add_forks,
        add_memory,
        add_knowledge,
        add_servers,
        add_tasks,
        add_webhooks,
        add_workers,
        add_schedules,
        add_swarms,
    ):
        add(routes, parts)
    return routes


def _sessions(routes: APIRouter, parts: Parts) -> None:
    store = parts.store

    @routes.post("/sessions", status_code=201)
    async def create_session(request: Request, body: NewSession) -> SessionView:
        name = secrets.token_hex(8) if body.id is None else checked_id(body.id, "session id")
        key = SessionKey(authorize(request), name)
        settings = await asyncio.to_thread(session_settings, parts, body, key)
        view = await store.create_session(key, settings)
        # Of one that exists, only what this request names must be as it says.
        named = body.model_dump(include=_SETTINGS, exclude_none=True)
        demand_same(view, **{setting: getattr(settings, setting) for setting in named})
        return view

    @routes.get("/sessions")
    async def list_sessions(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[str | None, Query()] = None,
        parent: Annotated[str | None, Query()] = None,
    ) -> SessionPage:
        for name in (before, parent):
            if name is not None:
                checked_id(name, "session id")
        found = await store.sessions(authorize(request), limit, before, parent)
        return SessionPage(
            sessions=tuple(found), before=found[-1].id if len(found) == limit else None
        )

    @routes.get("/sessions/{id}")
    async def read_session(request: Request, session: Name) -> SessionView:
        return await store.session(key_of(request, session))


def _messages(routes: APIRouter, parts: Parts) -> None:
    store, front = parts.store, parts.front

    @routes.post("/sessions/{id}/messages", status_code=202)
    async def send_message(request: Request, session: Name, body: NewMessage) -> AcceptedView:
        key = key_of(request, session)
        message = _user_message(body)
        if body.text is not None and may_ask(body.text):
            asked = await parts.invocations.of(key, body.agent, body.text)
            message = message if asked is None else UserMessage(parts=asked)
        inbound = Inbound(
            id=id_of(body.id, "message id"),
            kind="message",
            message=message,
            mode=body.mode,
            agent=body.agent,
            model=body.model,
        )
        if body.agent is not None or body.model is not None:
            view = await store.session(key)
            agent, model = body.agent or view.agent, body.model or view.model
            await asyncio.to_thread(parts.check, Path(view.workspace), agent, model)
        return await front.accept(key, inbound)

    @routes.get("/sessions/{id}/skills")
    async def list_skills(request: Request, session: Name) -> SkillPage:
        """The skills of the session's agent."""
        return await parts.invocations.page(key_of(request, session))

    @routes.get("/sessions/{id}/agents")
    async def list_agents(request: Request, session: Name) -> AgentPage:
        """The visible agents of the session's workspace."""
        return await asyncio.to_thread(roster, await store.session(key_of(request, session)))

    @routes.get("/sessions/{id}/messages")
    async def read_messages(
        request: Request,
        session: Name,
        after: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> MessagePage:
        found = await store.messages(key_of(request, session), after, limit)
        return MessagePage(
            messages=tuple(found), after=found[-1].position if len(found) == limit else None
        )

    @routes.get("/sessions/{id}/context")
    async def read_context(
        request: Request,
        session: Name,
        turn: Annotated[int | None, Query(ge=1, le=2**31)] = None,
        step: Annotated[int | None, Query(ge=1, le=2**31)] = None,
    ) -> ContextView:
        """What the request of a step was composed of; by default of the newest."""
        return await store.context(key_of(request, session), turn, step)

    @routes.post("/sessions/{id}/import")
    async def import_messages(
        request: Request, session: Name, body: ImportMessages
    ) -> ImportedView:
        """Give a session that has no messages a conversation from elsewhere."""
        key = key_of(request, session)
        return ImportedView(messages=await store.import_messages(key, body.messages))

    @routes.get("/sessions/{id}/turns")
    async def read_turns(
        request: Request, session: Name, first: Annotated[int, Query(ge=1, le=2**31)] = 1
    ) -> TurnPage:
        return TurnPage(turns=tuple(await store.turns(key_of(request, session), first)))


def _events(routes: APIRouter, parts: Parts) -> None:
    store, events = parts.store, parts.events

    @routes.get(
        "/sessions/{id}/events",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {}, "application/json": {}}}},
    )
    async def read_events(
        request: Request,
        session: Name,
        after: Annotated[str | None, Query()] = None,
        until: Annotated[Literal["turn_finished"] | None, Query()] = None,
        turn: Annotated[int | None, Query(ge=1, le=2**31)] = None,
    ) -> Response:
        """The session's events after a cursor: a stream, or a page of them as JSON.

        The page is answered to `Accept: application/json`; `until=turn_finished` ends the
        stream with the turn, or with any turn where none is named.
        """
        key = key_of(request, session)
        cursor = _cursor(request.headers.get("last-event-id") or after or "0")
        end = await events.end(key, cursor)
        if cursor > end:
            raise _not_reached(session, cursor, end)
        if request.headers.get("accept", "").startswith("application/json"):
            page = await events.read(key, cursor, EVENTS_PAGE)
            last = page[-1].cursor if page else f"{cursor[0]}.{cursor[1]}"
            told = {"events": [event.flat() for event in page], "cursor": last}
            return Response(orjson.dumps(told), media_type="application/json")
        if until is None:
            return parts.streams.open(key, cursor, until_turn=None, over=False)
        over = turn is not None and any(
            found.turn == turn and found.ended_at is not None
            for found in await store.turns(key, turn)
        )
        return parts.streams.open(key, cursor, until_turn=turn or 0, over=over)


def _not_reached(session: str, cursor: tuple[int, int], end: tuple[int, int]) -> UsageError:
    """Nobody who waits behind the log's end would ever be told of it."""
    return UsageError(
        f"The cursor {cursor[0]}.{cursor[1]} lies behind the end of session {session!r},"
        f" which is {end[0]}.{end[1]}: it is another session's, or the store was put back"
        " since; begin anew at 0, or at that end."
    )


def _controls(routes: APIRouter, parts: Parts) -> None:
    front = parts.front

    @routes.post("/sessions/{id}/cancel", status_code=202)
    async def cancel_turn(
        request: Request, session: Name, body: CancelTurn = _NO_CANCEL_BODY
    ) -> AcceptedView:
        name = id_of(body.id, "cancel id")
        inbound = Inbound(id=name, kind="cancel", target=body.turn)
        return await front.accept(key_of(request, session), inbound)


def _budgets(routes: APIRouter, parts: Parts) -> None:
    store, front = parts.store, parts.front

    @routes.post("/sessions/{id}/budget", status_code=202)
    async def answer_budget(request: Request, session: Name, body: AnswerBudget) -> AcceptedView:
        """Raise a limit of the session, or answer what it asks about one."""
        name = id_of(body.id, "answer id")
        verdict = BudgetVerdict(**body.model_dump(exclude={"id"}))
        inbound = Inbound(id=name, kind="budget", budget=verdict)
        return await front.accept(key_of(request, session), inbound)

    @routes.get("/usage")
    async def read_usage(
        request: Request,
        by: Annotated[UsageBy, Query()] = "session",
        since: Annotated[str | None, Query()] = None,
    ) -> UsagePage:
        """Tokens and cost of the tenant's calls that began on the UTC day `since` or later."""
        try:
            start = 0.0 if since is None else start_of(since)
        except ValueError:
            raise UsageError(
                f"The day {str(since)[:40]!a} is not possible; write one such as 2026-01-31."
            ) from None
        return UsagePage(rows=tuple(await store.usage(authorize(request), by, start)))

    @routes.get("/budgets")
    async def list_budgets(request: Request) -> BudgetPage:
        """What the tenant, its days and its sessions may spend, and have spent."""
        return BudgetPage(budgets=tuple(await store.budgets(authorize(request))))

    @routes.put("/budgets")
    async def put_budget(request: Request, body: NewBudget) -> BudgetView:
        """Set all limits of the tenant, of each of its UTC days, or of a session."""
        if (body.scope == "session") != (body.session is not None):
            raise UsageError("A budget of scope 'session' names its 'session', and no other does.")
        name = None if body.session is None else key_of(request, body.session).session
        budget = Budget(**body.model_dump(exclude={"scope", "session"}))
        return await front.put_budget(authorize(request), body.scope, name, budget)


def _compactions(routes: APIRouter, parts: Parts) -> None:
    store = parts.store

    @routes.post("/sessions/{id}/compact", status_code=202)
    async def compact_session(
        request: Request, session: Name, body: CompactSession = _NO_COMPACT_BODY
    ) -> CompactionView:
        """A summary replaces the older messages in what is sent from the next step on."""
        await store.ask_compaction(key_of(request, session))
        return CompactionView()

    @routes.post("/sessions/{id}/compact/undo")
    async def undo_compaction(
        request: Request, session: Name, body: Undo = _NO_UNDO_BODY
    ) -> CompactionUndoneView:
        """Send again what the newest compaction left out."""
        name = id_of(body.id, "undo id")
        undone = await store.undo_compaction(key_of(request, session), name)
        return CompactionUndoneView(first=undone.first, last=undone.last)


def _user_message(body: NewMessage) -> UserMessage:
    if (body.text is None) == (body.message is None):
        raise UsageError("A message has either 'text' or 'message'; send one of the two.")
    if body.text is not None:
        return user_text(checked_text(body.text))
    assert body.message is not None
    for part in body.message.parts:
        if isinstance(part, Image | Document):
            _check_base64(part)
        elif isinstance(part, SkillInvocation | PromptInvocation):
            raise UsageError(
                f"A message cannot bring a {part.type}'s text along; send 'text':"
                f" {part.said[:80]!a}."
            )
        elif isinstance(part, ResourceMention):
            raise UsageError(
                "A message cannot bring a resource's text along; send 'text':"
                f" {f'@{part.server}:{part.uri}'[:80]!a}."
            )
    return checked_message(body.message)


def _check_base64(part: Image | Document) -> None:
    try:
        base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"The {part.type}'s 'data' is not base64; encode it.") from None


def _cursor(text: str) -> tuple[int, int]:
    try:
        cursor = cursor_from_text(text)
        if max(cursor) < 2**62:
            return cursor
    except ValueError:
        pass
    raise UsageError(
        f"The cursor {text[:80]!a} is not possible; send an event's id such as 1.42, or 0."
    )
