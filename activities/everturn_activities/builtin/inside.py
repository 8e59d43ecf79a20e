"""What our own tools may know of a call, and a workspace's tools may not."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from everturn.agents import AgentSpec, ToolSpec
from everturn.errors import ToolFailed
from everturn.memory import FactSource, MemoryPlace
from everturn.schedules import Definition, ScheduleView, Status
from everturn.search import Search
from everturn.session import SessionKey
from everturn.tools import Tool, ToolContext
from everturn.views import FactView, KnowledgeView, PassageView
from everturn_activities.call_clock import CallClock
from everturn_activities.skills.shelf import Skills
from everturn_activities.store import Answer, AskPerson
from everturn_activities.vault import Vault


class Facts(Protocol):
    """The store's side for the tools of memory."""

    async def save(
        self, at: MemoryPlace, text: str, key: str, source: FactSource | None
    ) -> FactView: ...
    async def facts(self, places: Sequence[MemoryPlace]) -> list[FactView]: ...
    async def forget(self, at: MemoryPlace, n: int) -> None: ...


class Passages(Protocol):
    """Pieces of files, the best first, and what was not looked at."""

    @property
    def passages(self) -> tuple[PassageView, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


class Library(Protocol):
    """The side of knowledge for its tool, and for the layer that lists it."""

    async def query(
        self, tenant: str, workspace: str, text: str, limit: int, name: str | None = None
    ) -> Passages: ...
    async def list(self, tenant: str, workspace: str) -> list[KnowledgeView]: ...


class Results(Protocol):
    """Results that were too long to be shown whole."""

    async def whole_result(
        self, key: SessionKey, turn: int, step: int, index: int
    ) -> str | None: ...


class Served(Protocol):
    """The tools of MCP servers."""

    def tool(self, spec: ToolSpec) -> Tool: ...


class Asks(Protocol):
    """Questions to a person, in the midst of a call."""

    async def ask(self, key: SessionKey, asked: AskPerson) -> Answer: ...


class Schedules(Protocol):
    """The store's side for the tool of schedules."""

    async def add(
        self, tenant: str, name: str, given: Definition, status: Status = "active"
    ) -> tuple[ScheduleView, object]: ...
    async def remove_own(self, tenant: str, name: str, session: str) -> None: ...
    async def schedules(self, tenant: str, session: str | None = None) -> list[ScheduleView]: ...


@dataclass(frozen=True)
class Services:
    """What a worker lends to its own tools; None where it has none of it."""

    facts: Facts | None = None
    library: Library | None = None
    skills: Skills | None = None
    results: Results | None = None
    vault: Vault | None = None
    servers: Served | None = None
    questions: Asks | None = None
    schedules: Schedules | None = None


NO_SERVICES = Services()


@dataclass(frozen=True, kw_only=True)
class InsideContext(ToolContext):
    """What one of our own tools receives; `spec` is what the turn runs under."""

    spec: AgentSpec
    turn: int
    step: int
    index: int = 0
    services: Services
    search: Search | None = None
    """Who searches the web, where the workspace's settings say so."""
    clock: CallClock = field(default_factory=CallClock, compare=False, repr=False)
    value_of: Callable[[str], Awaitable[str]] = field(compare=False, repr=False)
    """The value of any secret that the workspace names; raises SecretMissing."""

    async def ask(
        self, part: int, name: str, question: str, schema: dict[str, Any] | None = None
    ) -> Answer:
        """What a person answers to the `part`-th question of the call, from 1: of a call that is
        run again the same question. `name` is who asks; the call's time stands still meanwhile."""
        if self.services.questions is None:
            raise ToolFailed("Nobody can be asked here.")
        seconds = self.spec.agent.approvals.expires_seconds
        place = (self.turn, self.step, self.index, part)
        asked = AskPerson(*place, name, question, schema, seconds)
        with self.clock.stopped():
            return await self.services.questions.ask(SessionKey(self.tenant, self.session), asked)

    def outside(self) -> ToolContext:
        """The part that any tool may know."""
        return ToolContext(**{name: getattr(self, name) for name in _OUTSIDE})


_OUTSIDE = [one.name for one in fields(ToolContext)]
