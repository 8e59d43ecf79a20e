"""The governor: which model call may begin now, for the whole fleet.

It shares out what providers allow, pauses a key that a provider has refused, and keeps
calls from a model that fails. One interface, whatever keeps its state. Its state can be
lost at any time: what follows is a moment of caution, never a turn that waits for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from everturn.tasks import PERSONS, Priority
from everturn_activities.gateways.allowances import Allowance
from everturn_activities.governor.limits import Limits as Limits

Cause = Literal["rate", "careful", "paused", "busy", "open"]
EndedHow = Literal["ok", "rate_limited", "overloaded", "unreachable", "failed", "abandoned"]

FAILURES: frozenset[EndedHow] = frozenset({"overloaded", "unreachable", "failed"})
"""What a breaker counts. A refusal of the request itself shows that the provider works."""


@dataclass(frozen=True)
class Route:
    """Where a call goes. `key` stands for the provider's address and the account's key and
    tells neither; `provider` is the address without what could be secret in it."""

    key: str
    provider: str
    model: str


@dataclass(frozen=True)
class ModelCall:
    """A call that wants to begin. `id` is the same whenever it asks again; `tokens` are
    what it will take, as far as that is known. `caller` is whose call it is, such as a
    session; it is `crowded` where many callers ask at once."""

    id: str
    tenant: str
    route: Route
    tokens: int = 0
    caller: str = ""
    crowded: bool = False
    priority: Priority = PERSONS

    @property
    def lines(self) -> list[str]:
        """The lines of its tenant that are as urgent as its own, or more; its own is the last."""
        return [f"{self.tenant}/{each}" for each in range(1, self.priority + 1)]


@dataclass(frozen=True)
class Permit:
    """Leave to begin, once `after_seconds` have passed.

    `leased`: others wait until it is settled or no longer renewed. `began` is by the clock
    of the process that asked, and `alone` where it gave the leave itself, since what it shares
    with others was away.
    """

    call: ModelCall
    began: float
    leased: bool = False
    after_seconds: float = 0.0
    alone: bool = False


@dataclass(frozen=True)
class Wait:
    """Ask again after `seconds`. `ahead` stand before it in line; it has asked since
    `waited_seconds`. `failing` tells how an open breaker's last call failed."""

    seconds: float
    cause: Cause
    ahead: int = 0
    waited_seconds: float = 0.0
    failing: EndedHow = "failed"


@dataclass(frozen=True)
class Ending:
    """What came of a call. `tokens` are those it took, None where nobody knows;
    `seen_per_second` is how fast calls went where nobody counted them for the fleet;
    `allowances` is what the provider told of its limits."""

    how: EndedHow
    retry_after_seconds: float | None = None
    tokens: int | None = None
    seen_per_second: float | None = None
    allowances: tuple[Allowance, ...] = ()


@dataclass(frozen=True)
class KeyState:
    """What is known of a provider key. `rate` is what was learnt of its limit, in calls a
    second, None where nothing was; `pace` is how fast a crowd's calls may go meanwhile;
    `told`: the provider says that little is left, and calls are counted against it."""

    key: str
    provider: str
    paused_seconds: float
    rate: float | None
    waiting: int
    running: int
    pace: float | None = None
    told: bool = False


@dataclass(frozen=True)
class BreakerState:
    """The breaker of a model that failed lately. `seconds` until a call is let through."""

    provider: str
    model: str
    state: Literal["closed", "open", "half_open"]
    failures: int
    seconds: float


@dataclass(frozen=True)
class GovernorState:
    keys: Sequence[KeyState] = ()
    breakers: Sequence[BreakerState] = ()
    note: str | None = None
    """What whoever runs the fleet should know, such as a server that is away."""


class Governor(Protocol):
    async def ask(self, call: ModelCall) -> Permit | Wait:
        """May `call` begin? A call that holds a permit and asks again gives the old one up."""
        ...

    async def settle(self, permit: Permit, ending: Ending) -> None:
        """Tell what came of a call; to tell nothing only costs the time of its lease."""
        ...

    async def renew(self, permits: Sequence[Permit]) -> None:
        """Keep leases that their holder still works under."""
        ...

    async def state(self) -> GovernorState: ...

    def now(self) -> float:
        """The clock by which permits say when they began."""
        ...

    async def close(self) -> None: ...


def sentence(call: ModelCall, wait: Wait) -> str:
    """Why a turn waits, in one sentence for whoever watches it."""
    model, provider = call.route.model, call.route.provider
    about = f"about {max(1, round(wait.seconds))} s"
    match wait.cause:
        case "open":
            return f"Waits {about}: model {model} at {provider} has failed several times in a row."
        case "paused":
            return f"Waits {about}: {provider} has asked for a pause."
        case "busy":
            return f"Waits {about}: as many calls of model {model} run as are allowed at once."
        case "rate":
            return f"Waits {about}: {provider} is at its limit, and {wait.ahead} calls go first."
        case "careful":
            return (
                f"Waits {about}: calls to {provider} begin one after another while its limit is"
                f" not known, and {wait.ahead} go first."
            )


def given_up(call: ModelCall, wait: Wait) -> str:
    """Why a model that fails is not waited for."""
    model, provider = call.route.model, call.route.provider
    what = "cannot be reached" if wait.failing == "unreachable" else "failed every call of late"
    waited = f", also after a wait of {wait.waited_seconds:.0f} s" if wait.waited_seconds else ""
    return f"Model {model} at {provider} {what}{waited}; choose another or try again later."
