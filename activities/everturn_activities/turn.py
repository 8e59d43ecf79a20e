"""The local activities of a turn: they read and commit, and nothing else."""

from typing import Protocol

from temporalio import activity

from everturn.agents import Agent, AgentSpec
from everturn.errors import StaleHost, UsageError
from everturn.mcp import still
from everturn.mcp_tools import with_catalogues
from everturn.session import (
    BeginTurn,
    CheckInbox,
    Finished,
    FinishTurn,
    InboxHead,
    SessionKey,
    TurnHead,
)
from everturn_activities.executors import Messenger
from everturn_activities.session_homes import SessionHomes
from everturn_activities.store import Assignment, Idle, Store, TakeoverNeeded
from everturn_activities.toolbox import broken_schema


class Workspaces(Protocol):
    def spec(self, assignment: Assignment) -> AgentSpec:
        """What a turn would run under; raises UsageError where the workspace cannot be used."""
        ...

    def agent_names(self, spec: AgentSpec) -> tuple[str, ...]:
        """The agents of the spec's workspace that others may hand work to."""
        ...


class Hosts(Protocol):
    async def open_run(self, workflow_id: str) -> str | None:
        """The open run of a workflow, None where it is closed or unknown."""
        ...


class TurnActivities:
    def __init__(
        self,
        store: Store,
        workspaces: Workspaces,
        hosts: Hosts,
        messenger: Messenger,
        homes: SessionHomes,
    ) -> None:
        self._store = store
        self._workspaces = workspaces
        self._hosts = hosts
        self._messenger = messenger
        self._homes = homes

    @activity.defn
    async def begin_turn(self, request: BeginTurn) -> TurnHead | None:
        """Host the session and open or resume a turn; None where there is nothing to do."""
        return await self.begin(request)

    async def begin(self, request: BeginTurn, known: AgentSpec | None = None) -> TurnHead | None:
        """As `begin_turn`; a turn that is opened runs under `known`, where that is given."""
        key = SessionKey(request.tenant, request.session)
        closed = None
        while True:
            spec, known = known, None
            assignment = await self._store.assignment(key) if spec is None else None
            if assignment is not None and assignment.pinned is None:
                assignment = await self._homes.placed(key, assignment)
                spec = self.spec(assignment)
                if spec.servers or assignment.served.get(spec.agent.name):
                    spec = await self._served(key, assignment, spec)
            begun = await self._store.begin_turn(request, spec, closed)
            if isinstance(begun, TurnHead):
                return begun
            if isinstance(begun, Idle):
                return None
            if isinstance(begun, TakeoverNeeded):
                if not await self._may_take_over(request, begun):
                    return None
                closed = begun
            # Otherwise a message came in between: look again for whom it is.

    def spec(self, assignment: Assignment) -> AgentSpec:
        """What a turn runs under; one that says why where the workspace cannot be used."""
        try:
            return self._workspaces.spec(assignment)
        except UsageError as error:
            return AgentSpec(
                agent=Agent(name=assignment.agent),
                workspace=assignment.workspace,
                working_dir=assignment.working_dir,
                settings_error=str(error),
            )

    async def _served(self, key: SessionKey, assignment: Assignment, spec: AgentSpec) -> AgentSpec:
        """The spec with what its MCP servers offer as far as that is pinned in the session."""
        count = assignment.served.get(spec.agent.name)
        if spec.settings_error is not None or spec.lifecycle != "frozen" or count is None:
            return spec
        if count == 0:
            return spec.but(servers=())
        pins = await self._store.served_tools(key, spec.agent.name)
        if not pins:
            return spec
        try:
            servers = still(pins, spec.servers)
        except ValueError as error:
            mend = (
                f"Mend that, or let the session take them so by: everturn mcp accept {key.session}"
            )
            return spec.but(settings_error=f"{error} {mend}")
        return with_catalogues(spec.but(servers=servers), broken_schema)[0]

    async def _may_take_over(self, request: BeginTurn, host: TakeoverNeeded) -> bool:
        """Whether the session's host is no more. Temporal allows one open run a workflow id."""
        open_run = await self._hosts.open_run(host.workflow_id)
        if host.workflow_id == request.workflow_id and open_run != request.run_id:
            raise StaleHost(f"Run {request.run_id} of {request.workflow_id} is closed.")
        return open_run != host.run_id

    @activity.defn
    async def check_inbox(self, request: CheckInbox) -> InboxHead:
        return await self._store.check_inbox(request)

    @activity.defn
    async def finish_turn(self, request: FinishTurn) -> Finished:
        end = await self._store.finish_turn(request)
        await self._messenger.ended(request.turn, end)
        return end.finished
