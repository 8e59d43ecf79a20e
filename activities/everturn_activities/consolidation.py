"""consolidate: few facts in place of many, paid for once, after a turn has ended."""

import logging
from collections.abc import Callable
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn.agents import AgentSpec
from everturn.context.consolidation import (
    Merged,
    Told,
    UnusableAnswer,
    consolidation_request,
    loaded,
    merged_facts,
)
from everturn.errors import Fenced, ModelError, ModelRefused, ModelUnavailable, UnknownModel
from everturn.session import Consolidate
from everturn_activities.admission import Admission, Admitted, failed, must_wait, replied
from everturn_activities.calling import caller, whole_reply
from everturn_activities.gateways import Usage
from everturn_activities.governor import Wait
from everturn_activities.heartbeat import heartbeating
from everturn_activities.model import GatewayChoice, Prices
from everturn_activities.store import Store
from everturn_activities.store.consolidations import Due
from everturn_activities.store.side_journal import content_key
from everturn_activities.store.sql_memories import SqlMemories

ATTEMPTS_MAX = 3
WAIT_SECONDS_MAX = 600.0
"""A provider that asks to wait longer is left alone: nobody waits for a smaller memory."""

log = logging.getLogger(__name__)


class ConsolidationActivities:
    def __init__(
        self,
        store: Store,
        memories: SqlMemories,
        gateways: GatewayChoice,
        prices: Prices,
        count: Callable[[str], int],
        admission: Admission,
        worker: str,
        know: Callable[[AgentSpec], None] = lambda spec: None,
    ) -> None:
        self._store = store
        self._memories = memories
        self._gateways = gateways
        self._prices = prices
        self._count = count
        self._admission = admission
        self._worker = worker
        self._know = know

    @activity.defn
    async def consolidate(self, request: Consolidate) -> int:
        """How many facts the memory has then; 0 where there was nothing to do, or it failed."""
        async with heartbeating():
            due = await self._memories.due_for(request.memory)
            if due is None:
                return 0
            spec = await self._store.spec(due.key, due.turn)
            # This worker may have had nothing to do with the turn.
            self._know(spec)
            rules = spec.profile.memory
            model = rules.model or spec.agent.model
            name = f"{due.turn}/memory/{due.memory}"
            asked = await self._admission.ask_beside(due.key, name, spec, model)
            if isinstance(asked, Wait):
                raise must_wait(asked)
            async with asked as admitted:
                return await self._consolidate(due, spec, model, admitted)

    async def _consolidate(self, due: Due, spec: AgentSpec, model: str, admitted: Admitted) -> int:
        tokens_max = spec.profile.memory.consolidate_tokens or 0
        begun = await self._memories.begin(due, tokens_max, model, caller(self._worker))
        if begun is None:
            return 0
        usage, cost = Usage(), None
        try:
            asked = consolidation_request(spec, model, begun.facts)
            content = content_key(asked)
            known = await self._memories.known_reply(due.key.tenant, content)
            if known:
                changes, cost = loaded(known), 0.0
            else:
                reply = await whole_reply(self._gateways.for_context(asked), asked)
                usage, cost = reply.usage, self._prices(model, reply.usage)
                admitted.ending = replied(usage)
                changes = merged_facts(reply.message, begun.facts)
                self._demand_smaller(changes, begun.facts)
            left = await self._memories.complete(due, begun.attempt, changes, content, usage, cost)
        except Fenced:
            raise
        except Exception as error:
            # Whatever a gateway raises ends this attempt only, and the facts stay as they are.
            if not isinstance(error, UnusableAnswer):
                admitted.ending = failed(error)
            await self._failed(due, begun.attempt, error, usage, cost)
            return 0
        log.info("a memory of %d facts was consolidated to %d", len(begun.facts), left)
        return left

    def _demand_smaller(self, changes: list[Merged], facts: list[Told]) -> None:
        """Raises UnusableAnswer for a set that takes no less than what it replaces."""
        tokens = {fact.n: fact.tokens for fact in facts}
        old = sum(tokens[n] for change in changes for n in change.of)
        new = sum(self._count(change.text) for change in changes)
        if new >= old:
            raise UnusableAnswer(f"it takes {new:,} tokens, and what it replaces {old:,}")

    async def _failed(
        self, due: Due, attempt: int, error: Exception, usage: Usage, cost: float | None
    ) -> None:
        """Record a failure; raises where another attempt is to be made."""
        wait = error.retry_after_seconds if isinstance(error, ModelUnavailable) else None
        given_up = isinstance(error, UnusableAnswer | ModelRefused | UnknownModel)
        attempts_max = 1 if given_up or (wait or 0) > WAIT_SECONDS_MAX else ATTEMPTS_MAX
        if isinstance(error, UnusableAnswer):
            reason = f"The model's answer cannot be used: {error}."
        elif isinstance(error, ModelError | UnknownModel):
            reason = str(error)
        else:
            reason = f"It failed with {type(error).__name__}."
        final = await self._memories.fail(due, attempt, reason, attempts_max, usage, cost)
        log.warning("a consolidation failed with %s", type(error).__name__)
        if not final:
            raise ApplicationError(
                "The consolidation failed; it is tried again.",
                type=type(error).__name__,
                next_retry_delay=None if wait is None else timedelta(seconds=wait),
            ) from None
