"""Client: the typed HTTP client. It outlives restarts of the API that it talks to."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import httpx_sse
from pydantic import BaseModel

from everturn import errors
from everturn.approvals import ToolVerdict
from everturn.budgets import BudgetVerdict
from everturn.errors import EverturnError, RuntimeUnavailable, UsageError
from everturn.events import Event, cursor_from_text
from everturn.folders import FolderKind
from everturn.forks import ForkSession, RewindSession
from everturn.inputs import checked_id
from everturn.memory import FactScope
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.reading import TurnResult
from everturn.schedule_client import Schedules
from everturn.session import Mode
from everturn.swarm_client import Swarms
from everturn.task_requests import TaskRequests
from everturn.trajectories import Difference
from everturn.views import (
    AcceptedView,
    AgentPage,
    AnswerApproval,
    AnswerBudget,
    ApprovalPage,
    ApprovalView,
    BudgetPage,
    BudgetView,
    CancelTurn,
    CheckpointPage,
    CheckpointView,
    CompactionUndoneView,
    CompactionView,
    CompactSession,
    ContextView,
    FactPage,
    FactView,
    FolderRemovedView,
    ImportedView,
    ImportMessages,
    KnowledgePage,
    KnowledgeView,
    MessagePage,
    NewBudget,
    NewFact,
    NewKnowledge,
    NewMessage,
    NewSession,
    PassagePage,
    Problem,
    RestoredView,
    RestoreFiles,
    RewindUndoneView,
    RewoundView,
    ServersAcceptedView,
    SessionPage,
    SessionView,
    SkillPage,
    TurnPage,
    TurnView,
    Undo,
    UsageBy,
    UsagePage,
    UsageRow,
)
from everturn.webhooks import Webhook
from everturn.workers import WorkerPage, WorkerView

PATIENCE_SECONDS = 60.0

# The server sends a comment every 15 s; longer silence means that the connection is dead.
SILENCE_SECONDS = 45.0

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0

_View = TypeVar("_View", bound=BaseModel)


class Client(TaskRequests):
    """Sessions of one runtime.

    Every request can be sent twice without harm: what creates or sends something carries
    an id. So a client that has reached the runtime once goes on trying for
    `patience_seconds` when it dies, and raises RuntimeUnavailable then; one that never
    reached it raises at once, unless the runtime is `kept_alive` by somebody, who starts it
    again. Answers that are problems raise the error that they name.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        *,
        kept_alive: bool = False,
    ) -> None:
        self._url = base_url.rstrip("/")
        self._patience = patience_seconds
        self._reached = kept_alive
        self._http = httpx.AsyncClient(
            base_url=self._url,
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(30.0, connect=5.0),
            # Proxies of the environment have no business between us and our own runtime.
            trust_env=False,
        )

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def create_session(
        self,
        id: str | None = None,  # noqa: A002
        *,
        workspace: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        folder: FolderKind | None = None,
        webhook: Webhook | None = None,
    ) -> SessionView:
        """A new session, or the one of this `id` where it exists already.

        Raises IdempotencyConflict where that one has other settings than are named here.
        """
        body = NewSession(
            id=id or secrets.token_hex(8),
            workspace=workspace,
            agent=agent,
            model=model,
            working_dir=working_dir,
            user=user,
            folder=folder,
            webhook=webhook,
        )
        return await self._post("/v1/sessions", body, SessionView)

    async def fork(self, session: str, wanted: ForkSession) -> SessionView:
        """A new session that begins with the messages of `session` up to a step."""
        body = wanted.model_copy(update={"id": wanted.id or secrets.token_hex(8)})
        return await self._post(f"/v1/sessions/{_segment(session)}/fork", body, SessionView)

    async def diff(self, a: str, b: str, turn: int | None = None) -> Difference:
        """What two sessions did, step by step, and where they part."""
        return await self._get("/v1/diff", Difference, a=a, b=b, turn=turn)

    async def rewind(self, session: str, turn: int, step: int | None = None) -> RewoundView:
        """Take a session that rests back behind a step, and its files with it."""
        path = f"/v1/sessions/{_segment(session)}/rewind"
        body = RewindSession(id=secrets.token_hex(16), turn=turn, step=step)
        return await self._post(path, body, RewoundView)

    async def undo_rewind(self, session: str) -> RewindUndoneView:
        """Send again what the newest rewind left out; files stay as they are."""
        path = f"/v1/sessions/{_segment(session)}/rewind/undo"
        return await self._post(path, Undo(id=secrets.token_hex(16)), RewindUndoneView)

    async def remove_folder(self, session: str, force: bool = False) -> FolderRemovedView:
        """Remove the session's own folder; with `force` also where work would be lost with it."""
        path = f"/v1/sessions/{_segment(session)}/folder"
        params = {"force": str(force).lower()}
        answer = await self._request("DELETE", path, params=params)
        return FolderRemovedView.model_validate_json(answer.content)

    async def checkpoints(self, session: str) -> tuple[CheckpointView, ...]:
        """What the session's tools did to files, step by step."""
        path = f"/v1/sessions/{_segment(session)}/checkpoints"
        return (await self._get(path, CheckpointPage)).checkpoints

    async def restore_files(self, session: str, turn: int, step: int = 1) -> RestoredView:
        """Put files back as they were before that step, but those that others changed since."""
        path = f"/v1/sessions/{_segment(session)}/checkpoints/restore"
        return await self._post(path, RestoreFiles(turn=turn, step=step), RestoredView)

    async def session(self, session: str) -> SessionView:
        return await self._get(f"/v1/sessions/{_segment(session)}", SessionView)

    async def sessions(
        self, limit: int = 50, before: str | None = None, parent: str | None = None
    ) -> SessionPage:
        """The sessions that are no executors, or the executors of `parent`; newest first."""
        return await self._get(
            "/v1/sessions", SessionPage, limit=limit, before=before, parent=parent
        )

    async def turns(self, session: str, first: int = 1) -> list[TurnView]:
        """The session's turns from number `first` on, with their steps."""
        path = f"/v1/sessions/{_segment(session)}/turns"
        return list((await self._get(path, TurnPage, first=first)).turns)

    async def context(
        self, session: str, turn: int | None = None, step: int | None = None
    ) -> ContextView:
        """What the request of a step was composed of; by default of the newest."""
        path = f"/v1/sessions/{_segment(session)}/context"
        return await self._get(path, ContextView, turn=turn, step=step)

    async def skills(self, session: str) -> SkillPage:
        """The skills of the session's agent."""
        return await self._get(f"/v1/sessions/{_segment(session)}/skills", SkillPage)

    async def agents(self, session: str) -> AgentPage:
        """Who can be asked in the session: the visible agents of its workspace."""
        return await self._get(f"/v1/sessions/{_segment(session)}/agents", AgentPage)

    async def messages(self, session: str, after: int = 0, limit: int = 100) -> MessagePage:
        path = f"/v1/sessions/{_segment(session)}/messages"
        return await self._get(path, MessagePage, after=after, limit=limit)

    async def send(
        self,
        session: str,
        message: str | UserMessage,
        *,
        id: str | None = None,  # noqa: A002
        mode: Mode = "queue",
        agent: str | None = None,
        model: str | None = None,
    ) -> AcceptedView:
        """Commit a message to the session's inbox; the same `id` again changes nothing."""
        body = NewMessage(
            id=id or secrets.token_hex(16),
            text=message if isinstance(message, str) else None,
            message=None if isinstance(message, str) else message,
            mode=mode,
            agent=agent,
            model=model,
        )
        return await self._post(f"/v1/sessions/{_segment(session)}/messages", body, AcceptedView)

    async def import_messages(
        self, session: str, messages: Sequence[UserMessage | AssistantMessage | ToolMessage]
    ) -> int:
        """Give a new session a conversation from elsewhere; how many messages it has then."""
        path = f"/v1/sessions/{_segment(session)}/import"
        body = ImportMessages(messages=tuple(messages))
        return (await self._post(path, body, ImportedView)).messages

    async def cancel(
        self,
        session: str,
        turn: int | None = None,
        id: str | None = None,  # noqa: A002
    ) -> AcceptedView:
        """Ask the turn, by default the open one, to end."""
        body = CancelTurn(id=id or secrets.token_hex(16), turn=turn)
        return await self._post(f"/v1/sessions/{_segment(session)}/cancel", body, AcceptedView)

    async def usage(self, by: UsageBy = "session", since: str | None = None) -> list[UsageRow]:
        """Tokens and cost of calls that began on the UTC day `since` (2026-01-31), or later."""
        return list((await self._get("/v1/usage", UsagePage, by=by, since=since)).rows)

    async def budgets(self) -> list[BudgetView]:
        """What the tenant, its days and its sessions may spend, and have spent."""
        return list((await self._get("/v1/budgets", BudgetPage)).budgets)

    async def put_budget(self, budget: NewBudget) -> BudgetView:
        """Set all limits of the tenant, of each of its UTC days, or of a session."""
        return await self._send("PUT", "/v1/budgets", budget, BudgetView)

    async def answer_budget(
        self,
        session: str,
        verdict: BudgetVerdict,
        id: str | None = None,  # noqa: A002
    ) -> AcceptedView:
        """Raise a limit of the session, or answer what it asks about one."""
        body = AnswerBudget(id=id or secrets.token_hex(16), **verdict.model_dump())
        return await self._post(f"/v1/sessions/{_segment(session)}/budget", body, AcceptedView)

    async def workers(self) -> tuple[WorkerView, ...]:
        """The workers of the runtime, the oldest first, and those that died and are not buried."""
        return (await self._get("/v1/workers", WorkerPage)).workers

    async def approvals(self, session: str | None = None) -> list[ApprovalView]:
        """The tool calls that wait for a person's leave, newest first."""
        return list((await self._get("/v1/approvals", ApprovalPage, session=session)).approvals)

    async def answer_approval(
        self,
        session: str,
        verdict: ToolVerdict,
        id: str | None = None,  # noqa: A002
    ) -> AcceptedView:
        """Say whether a tool call may run; `too_late` where another verdict came first."""
        said = verdict.model_dump(exclude={"approval"})
        body = AnswerApproval(id=id or secrets.token_hex(16), **said)
        path = f"/v1/sessions/{_segment(session)}/approvals/{verdict.approval}"
        return await self._post(path, body, AcceptedView)

    async def facts(
        self,
        scope: FactScope | None = None,
        *,
        session: str | None = None,
        workspace: str | None = None,
        user: str | None = None,
        replaced: bool = False,
    ) -> list[FactView]:
        """What is remembered in a scope, or in all that a turn of the session reads."""
        query = {"scope": scope, "session": session, "workspace": workspace, "user": user}
        shown = {"replaced": "true"} if replaced else {}
        return list((await self._get("/v1/memory", FactPage, **query, **shown)).facts)

    async def add_fact(self, fact: NewFact) -> FactView:
        """Remember a fact; the same `id`, or the same text, answers with the one there is."""
        named = fact.model_copy(update={"id": fact.id or secrets.token_hex(16)})
        return await self._post("/v1/memory", named, FactView)

    async def forget_fact(
        self,
        scope: FactScope,
        fact: int,
        *,
        session: str | None = None,
        workspace: str | None = None,
        user: str | None = None,
    ) -> None:
        """Forget a fact for good; UsageError where there is none of that number."""
        query = {"scope": scope, "session": session, "workspace": workspace, "user": user}
        given = {name: value for name, value in query.items() if value is not None}
        given["fact"] = str(fact)
        await self._request("DELETE", "/v1/memory", params=given)

    async def knowledge(self, workspace: str | None = None) -> list[KnowledgeView]:
        """The folders that are searched for a workspace, by default the server's own."""
        return list((await self._get("/v1/knowledge", KnowledgePage, workspace=workspace)).bases)

    async def add_knowledge(self, knowledge: NewKnowledge) -> KnowledgeView:
        """Have a folder searched; the view says whether it is still being read."""
        return await self._post("/v1/knowledge", knowledge, KnowledgeView)

    async def query_knowledge(
        self,
        query: str,
        *,
        name: str | None = None,
        limit: int = 5,
        workspace: str | None = None,
    ) -> PassagePage:
        """The passages that fit best, of one folder or of all of the workspace's."""
        given = {"q": query, "name": name, "workspace": workspace}
        return await self._get("/v1/knowledge/query", PassagePage, limit=limit, **given)

    async def remove_knowledge(self, name: str, workspace: str | None = None) -> None:
        """Search a folder no more; UsageError where there is none of that name."""
        given = {"name": name} | ({} if workspace is None else {"workspace": workspace})
        await self._request("DELETE", "/v1/knowledge", params=given)

    @property
    def schedules(self) -> Schedules:
        """Messages that are sent at set times."""
        return Schedules(self._get, self._send)

    @property
    def swarms(self) -> Swarms:
        """One agent's work on many items."""
        return Swarms(self._get, self._post)

    async def compact(self, session: str) -> None:
        """Have the session's older messages summarised before its next step."""
        path = f"/v1/sessions/{_segment(session)}/compact"
        await self._post(path, CompactSession(), CompactionView)

    async def undo_compaction(self, session: str) -> CompactionUndoneView:
        """Send again what the newest compaction has left out; UsageError without one."""
        path = f"/v1/sessions/{_segment(session)}/compact/undo"
        return await self._post(path, Undo(id=secrets.token_hex(16)), CompactionUndoneView)

    async def accept_servers(self, session: str) -> None:
        """Let the session take its MCP servers, from its next turn on, as they are then."""
        path = f"/v1/sessions/{_segment(session)}/servers/accept"
        await self._post(path, CompactSession(), ServersAcceptedView)

    async def events(
        self, session: str, after: str = "0", until_turn: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Events after the cursor, each once and in order, for ever or until a turn has finished.

        Reconnects where it was when the runtime dies and comes back. Who leaves before the
        end closes the generator (`contextlib.aclosing`), and with it the connection.
        """
        last = cursor_from_text(after)
        path = f"/v1/sessions/{_segment(session)}/events"
        until = {} if until_turn is None else {"until": "turn_finished", "turn": str(until_turn)}
        unreachable = _Patience(self)
        while True:
            cursor = f"{last[0]}.{last[1]}"
            try:
                async with aclosing(self._stream(path, {**until, "after": cursor})) as stream:
                    async for event in stream:
                        unreachable.reset()
                        if (event.epoch, event.seq) <= last:
                            continue
                        last = (event.epoch, event.seq)
                        yield event
                        if event.type == "turn_finished" and event.turn == until_turn:
                            return
                # A server that shuts down ends its streams in good order too.
                if until_turn is not None and await self._is_over(session, until_turn):
                    return
                raise _ServerAway("The event stream ended.")
            except (httpx.TransportError, _ServerAway) as error:
                await unreachable.pause(error)

    async def wait(self, session: str, message_id: str, after: str = "0") -> TurnResult:
        """How the turn ended that worked the message; `after` is the cursor it was accepted at."""
        turn = None
        async with aclosing(self.events(session, after)) as events:
            async for event in events:
                if event.type == "gap":
                    break
                if took_up(event, message_id):
                    turn = event.turn
                if event.type == "turn_finished" and event.turn == turn:
                    return TurnResult.from_event(event)
        # The turn may be in what was trimmed away; from the beginning the store tells all of it.
        return await self.wait(session, message_id)

    async def _is_over(self, session: str, turn: int) -> bool:
        """Whether the turn had finished, and so all of its events were told before."""
        turns = await self.turns(session, first=turn)
        return any(found.turn == turn and found.ended_at is not None for found in turns)

    async def _stream(self, path: str, query: dict[str, str]) -> AsyncGenerator[Event, None]:
        headers = {"accept": "text/event-stream", "last-event-id": query["after"]}
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=5.0)
        async with httpx_sse.aconnect_sse(
            self._http, "GET", path, params=query, headers=headers, timeout=timeout
        ) as source:
            if source.response.status_code != httpx.codes.OK:
                await source.response.aread()
                raise _error(source.response)
            self._reached = True
            async for sent in source.aiter_sse():
                if sent.data:
                    yield event_from_flat(json.loads(sent.data))

    async def _get(self, path: str, view: type[_View], **query: str | float | None) -> _View:
        given = {name: value for name, value in query.items() if value is not None}
        return view.model_validate_json((await self._request("GET", path, params=given)).content)

    async def _post(self, path: str, body: BaseModel, view: type[_View]) -> _View:
        return await self._send("POST", path, body, view)

    async def _send(
        self, method: str, path: str, body: BaseModel | None, view: type[_View]
    ) -> _View:
        if body is None:
            return view.model_validate_json((await self._request(method, path)).content)
        try:
            content = body.model_dump_json(exclude_none=True)
        except ValueError:
            raise UsageError("The message is not valid UTF-8; convert it to UTF-8.") from None
        answer = await self._request(
            method, path, content=content, headers={"content-type": "application/json"}
        )
        return view.model_validate_json(answer.content)

    async def _request(self, method: str, path: str, **details: Any) -> httpx.Response:
        unreachable = _Patience(self)
        while True:
            try:
                answer = await self._http.request(method, path, **details)
                if answer.is_success and _is_json(answer):
                    self._reached = True
                    return answer
                if answer.is_success or answer.is_redirect:
                    raise UsageError(_no_runtime(self._url, answer))
                raise _error(answer)
            except (httpx.TransportError, _ServerAway) as error:
                await unreachable.pause(error)


def _is_json(answer: httpx.Response) -> bool:
    media_type = answer.headers.get("content-type", "")
    return media_type.startswith("application/json") or not answer.content


def _no_runtime(url: str, answer: httpx.Response) -> str:
    if answer.next_request is None:
        return f"What answers at {url} is no Everturn; check the address."
    there = answer.next_request.url
    return (
        f"What answers at {url} leads on to {there.scheme}://{there.netloc.decode()}; name the"
        " address where the API is."
    )


class _ServerAway(RuntimeUnavailable):
    """An answer that says: not now."""


class _Patience:
    """How long a client goes on trying, with growing pauses."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pause = _FIRST_PAUSE_SECONDS
        self._since: float | None = None

    def reset(self) -> None:
        self._pause = _FIRST_PAUSE_SECONDS
        self._since = None

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt, or raise RuntimeUnavailable when it is enough."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        waited = now - self._since
        if not self._client._reached or waited + self._pause > self._client._patience:
            raise RuntimeUnavailable(self._sentence(error, waited)) from None
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)

    def _sentence(self, error: Exception, waited: float) -> str:
        if isinstance(error, _ServerAway):
            return str(error)
        tried = f" for {waited:.0f} s" if waited >= 1 else ""
        why = str(error) or type(error).__name__
        return (
            f"No runtime answers at {self._client._url}{tried} ({why}); start one with"
            " 'everturn up', or check the host and port."
        )


def took_up(event: Event, message_id: str) -> bool:
    """Whether `event` says that its turn works this message."""
    if event.type == "turn_started":
        return message_id in event.body.get("messages", ())
    return event.type == "message_admitted" and event.body.get("message_id") == message_id


def event_from_flat(flat: dict[str, Any]) -> Event:
    """The event that `Event.flat` made `flat` of."""
    head = {name: flat.pop(name) for name in Event.model_fields if name != "body"}
    return Event(**head, body=flat)


def _segment(session: str) -> str:
    """A session id as one segment of a path."""
    return quote(checked_id(session, "session id"), safe=":")


def _error(answer: httpx.Response) -> EverturnError:
    """The error that a problem document names."""
    try:
        problem = Problem.model_validate_json(answer.content)
        detail, name = problem.detail, problem.type.rpartition(":")[2]
    except ValueError:
        detail, name = f"The server answered {answer.status_code} without a reason.", ""
    named = getattr(errors, name, None)
    if isinstance(named, type) and issubclass(named, UsageError):
        return named(detail)
    if answer.status_code in (502, 503, 504):
        return _ServerAway(detail)
    if answer.is_client_error:
        return UsageError(detail)
    return RuntimeUnavailable(detail)
