"""Leave for a model call to begin: from the governor, or from the journal where it is paid for."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Protocol

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everturn.agents import AgentSpec, Candidate
from everturn.errors import (
    EverturnError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
    UnknownModel,
)
from everturn.session import SessionKey
from everturn.tasks import PERSONS
from everturn_activities.candidates import Candidates
from everturn_activities.gateways import Usage
from everturn_activities.gateways.allowances import Allowance
from everturn_activities.governor import (
    Ending,
    ModelCall,
    Permit,
    Route,
    Wait,
    given_up,
    sentence,
)
from everturn_activities.governor.quick import QuickGovernor
from everturn_activities.store import Store

TOLD_SECONDS = 2.0
"""Whoever watches is told of a wait that is longer."""
TOLD_KEPT = 10_000
OUTPUT_TOKENS = 500
"""What a reply is taken to cost until it is known."""
PATIENCE_SECONDS = 300.0
"""How long a turn waits for a model that fails all who ask it."""
PATIENCE_UNREACHABLE_SECONDS = 20.0
"""An address where nothing answers is rather wrong than busy: say so soon."""

ABANDONED = Ending("abandoned")


class Routes(Protocol):
    def route(self, candidate: Candidate) -> Route: ...


@dataclass(frozen=True)
class GivenUp:
    """The model fails, and is not waited for; `reason` is for whoever watches."""

    reason: str
    next_model: str | None = None


class Admitted:
    """A call that may begin. Used as a context, within which it runs; then the governor is
    told its `ending`."""

    def __init__(self, governor: QuickGovernor, permit: Permit) -> None:
        self._governor = governor
        self._permit = permit
        self.ending = ABANDONED

    async def __aenter__(self) -> "Admitted":
        if self._permit.after_seconds:
            await asyncio.sleep(self._permit.after_seconds)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._governor.settle(self._permit, self.ending)


class Admission:
    def __init__(
        self, store: Store, governor: QuickGovernor, candidates: Candidates, routes: Routes
    ) -> None:
        self._store = store
        self._governor = governor
        self._candidates = candidates
        self._routes = routes
        self._told: OrderedDict[str, None] = OrderedDict()

    async def ask(
        self,
        key: SessionKey,
        turn: int,
        step: int,
        spec: AgentSpec,
        model: str,
        tokens: int | None = None,
    ) -> Admitted | Wait | GivenUp:
        """May the step's call begin? `tokens` are those of its context where they are known.

        The model that was chosen for the step already is asked instead of `model`.
        """
        route = self._route(spec, model)
        caller = f"{key.tenant}/{key.session}"
        urgent = spec.priority or PERSONS
        call = ModelCall(
            f"{caller}/{turn}/{step}", key.tenant, route, caller=caller, priority=urgent
        )
        if spec.agent.fallback_models or not self._governor.is_free(call):
            standing = await self._store.standing(key, turn, step)
            if standing.model is not None and standing.model != model:
                model = standing.model
                route = self._route(spec, model)
            call = replace(call, route=route)
            if standing.replied:
                return Admitted(self._governor, Permit(call, self._governor.now()))
            if tokens is None and self._governor.counts_tokens(route):
                tokens = await self._store.context_tokens(key)
            call = replace(call, tokens=(tokens or 0) + OUTPUT_TOKENS)
        answer = await self._governor.ask(call)
        if isinstance(answer, Permit):
            self._told.pop(call.id, None)
            return Admitted(self._governor, answer)
        if answer.cause == "open":
            held = tokens if tokens is not None else await self._store.context_tokens(key)
            next_model = self._candidates.after(spec, model, held)
            left = _patience(answer) - answer.waited_seconds
            if next_model is not None or left <= 0:
                return GivenUp(given_up(call, answer), next_model)
            answer = replace(answer, seconds=min(answer.seconds, left))
        if answer.seconds > TOLD_SECONDS and call.id not in self._told:
            await self._store.tell_waiting(key, turn, step, sentence(call, answer))
            self._told[call.id] = None
            if len(self._told) > TOLD_KEPT:
                self._told.popitem(last=False)
        return answer

    async def ask_beside(
        self, key: SessionKey, name: str, spec: AgentSpec, model: str
    ) -> Admitted | Wait:
        """May a call begin that is no step's, such as a summary's?"""
        route = self._route(spec, model)
        caller = f"{key.tenant}/{key.session}"
        urgent = spec.priority or PERSONS
        call = ModelCall(f"{caller}/{name}", key.tenant, route, caller=caller, priority=urgent)
        if self._governor.counts_tokens(route):
            tokens = await self._store.context_tokens(key)
            call = replace(call, tokens=tokens + OUTPUT_TOKENS)
        answer = await self._governor.ask(call)
        return Admitted(self._governor, answer) if isinstance(answer, Permit) else answer

    def _route(self, spec: AgentSpec, model: str) -> Route:
        for one in spec.agent.candidates:
            if one.model == model:
                return self._routes.route(one)
        return self._routes.route(Candidate(model=model))


def _patience(wait: Wait) -> float:
    unreachable = wait.failing == "unreachable"
    return PATIENCE_UNREACHABLE_SECONDS if unreachable else PATIENCE_SECONDS


def must_wait(wait: Wait) -> ApplicationError:
    """What a queued call raises that may not begin yet: the server waits, in no slot, and
    nothing has failed."""
    return ApplicationError(
        "The governor lets the call begin later.",
        wait.seconds,
        type="GovernorWait",
        next_retry_delay=timedelta(seconds=wait.seconds),
        # Nothing that a log should warn of, with a traceback, some times for each call.
        category=ApplicationErrorCategory.BENIGN,
    )


def replied(usage: Usage, allowances: tuple[Allowance, ...] = ()) -> Ending:
    tokens = usage.input_tokens + usage.output_tokens
    return Ending("ok", tokens=tokens, allowances=allowances)


def failed(error: Exception) -> Ending:
    """What an error tells of the provider."""
    match error:
        case ModelUnreachable():
            return Ending("unreachable")
        case ModelRateLimited():
            return Ending("rate_limited", error.retry_after_seconds)
        case ModelUnavailable():
            return Ending("overloaded", error.retry_after_seconds)
        case ModelRefused() | UnknownModel():
            # It works, and does not want this request.
            return Ending("ok")
        case EverturnError():
            return ABANDONED
        case _:
            return Ending("failed")
