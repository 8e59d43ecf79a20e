"""compact: a summary of what a conversation began with, paid for once."""

import json
import logging
import traceback
from collections.abc import Callable
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everturn.agents import AgentSpec
from everturn.context.compaction import Plan, bounded, summary_request, summary_tokens_max, usable
from everturn.context.compose import Context
from everturn.context.window import Frame
from everturn.errors import (
    Fenced,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    StaleHost,
    TurnCancelled,
    UnknownModel,
)
from everturn.session import Compact, Compacted, SessionKey
from everturn_activities.admission import Admission, Admitted, failed, must_wait, replied
from everturn_activities.calling import caller, whole_reply
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.frames import Frames
from everturn_activities.gateways import Usage
from everturn_activities.gathering import Gatherer
from everturn_activities.governor import Wait
from everturn_activities.heartbeat import heartbeating
from everturn_activities.model import GatewayChoice, Prices
from everturn_activities.store import Store
from everturn_activities.store.side_journal import content_key

ATTEMPTS_MAX = 3
"""Failures of the provider's side, with the pauses between, that make a compaction fail."""
WAIT_SECONDS_MAX = 60.0
"""A provider that asks to wait longer makes it fail: the turn itself may yet go on."""

log = logging.getLogger(__name__)


class UnusableSummary(Exception):  # noqa: N818 - an answer that was paid for
    def __init__(self, reason: str, usage: Usage) -> None:
        super().__init__(reason)
        self.usage = usage


class CompactionActivities:
    def __init__(
        self,
        store: Store,
        gateways: GatewayChoice,
        prices: Prices,
        frames: Frames,
        gatherer: Gatherer,
        count: Callable[[str], int],
        watch: CancelWatch,
        admission: Admission,
        worker: str,
        know: Callable[[AgentSpec], None] = lambda spec: None,
    ) -> None:
        self._store = store
        self._gateways = gateways
        self._prices = prices
        self._frames = frames
        self._gatherer = gatherer
        self._count = count
        self._watch = watch
        self._admission = admission
        self._worker = worker
        self._know = know
        self._flights = Flights()

    @activity.defn
    async def compact(self, request: Compact) -> Compacted:
        """Let a summary stand for the older messages; a failure is recorded, and none is cut."""
        call = (request.tenant, request.session, request.turn, request.ordinal)
        async with heartbeating():
            return await self._flights.join(call, lambda: self._admitted(request))

    async def _admitted(self, request: Compact) -> Compacted:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        # This worker may have had nothing to do with the turn so far.
        self._know(spec)
        model = spec.agent.compaction.model or spec.agent.model
        name = f"{request.turn}/compaction/{request.ordinal}"
        asked = await self._admission.ask_beside(key, name, spec, model)
        if isinstance(asked, Wait):
            if asked.seconds > WAIT_SECONDS_MAX or asked.waited_seconds > WAIT_SECONDS_MAX:
                return await self._give_up(request, spec, model)
            raise must_wait(asked)
        async with asked as admitted:
            return await self._compact(request, spec, model, admitted)

    async def _give_up(self, request: Compact, spec: AgentSpec, model: str) -> Compacted:
        """Count a failure where the governor lets nobody ask the model for long: a turn whose
        window is full would come back for the same answer at once."""
        rules = spec.agent.compaction
        begun = await self._store.begin_compaction(
            request,
            await self._frame(request, spec),
            model,
            rules.failures_max,
            caller(self._worker),
        )
        if isinstance(begun, Compacted):
            return begun
        held = ModelRefused(f"Model {model} may not be asked within {WAIT_SECONDS_MAX:g} s.")
        await self._failed(request, begun.attempt, model, rules.failures_max, held)
        return Compacted(0)

    async def _compact(
        self, request: Compact, spec: AgentSpec, model: str, admitted: Admitted
    ) -> Compacted:
        key = SessionKey(request.tenant, request.session)
        rules = spec.agent.compaction
        frame = await self._frame(request, spec)
        begun = await self._store.begin_compaction(
            request, frame, model, rules.failures_max, caller(self._worker)
        )
        if isinstance(begun, Compacted):
            return begun
        try:
            asked = await self._request(key, spec, begun.plan, model)
            content = content_key(asked)
            cost: float | None = 0.0
            known = await self._store.known_reply(request.tenant, content)
            if known is not None:
                text, usage = str(json.loads(known)["text"]), Usage()
            else:
                asking = self._ask(asked, begun.plan)
                text, usage = await self._watch.guard(key, request.turn, asking)
                cost = self._prices(model, usage)
                admitted.ending = replied(usage)
            return await self._store.complete_compaction(
                request, begun.attempt, text, content, usage, cost, frame
            )
        except TurnCancelled:
            await self._store.cancel_compaction(request, begun.attempt)
            return Compacted(0)
        except (StaleHost, Fenced):
            raise
        except Exception as error:
            # Whatever a gateway raises ends this attempt only, and is told in plain words.
            if isinstance(error, UnusableSummary):
                admitted.ending = replied(error.usage)
            else:
                admitted.ending = failed(error)
            await self._failed(request, begun.attempt, model, rules.failures_max, error)
            return Compacted(0)

    async def _frame(self, request: Compact, spec: AgentSpec) -> Frame:
        """What the step has to fit into that waits for the compaction."""
        key = SessionKey(request.tenant, request.session)
        made = await self._gatherer.of_step(key, request.turn, request.step)
        return self._frames.of(spec, made.manifest)

    async def _request(self, key: SessionKey, spec: AgentSpec, plan: Plan, model: str) -> Context:
        messages = (await self._store.history(key, plan.extent)).whole
        window = self._frames.window(spec, model) >> plan.failures
        return summary_request(spec, window, messages, model)

    async def _ask(self, asked: Context, plan: Plan) -> tuple[str, Usage]:
        """The summary; raises UnusableSummary for an answer that is none."""
        reply = await whole_reply(self._gateways.for_context(asked), asked)
        text = usable(reply.message)
        if text is None or reply.stop == "refusal":
            what = "a tool call" if reply.message.tool_calls else "no summary"
            raise UnusableSummary(f"Model {asked.model} answered with {what}.", reply.usage)
        tokens, tokens_max = self._count(text), asked.tokens_max or summary_tokens_max(0)
        if tokens > tokens_max:
            text = bounded(text, len(text) * tokens_max // tokens)
        if tokens >= plan.tokens:
            raise UnusableSummary(
                f"The summary takes {tokens:,} tokens, and what it replaces {plan.tokens:,}.",
                reply.usage,
            )
        return text, reply.usage

    async def _failed(
        self, request: Compact, attempt: int, model: str, failures_max: int, error: Exception
    ) -> None:
        """Record a failure; raises where another attempt is to be made."""
        attempts_max = ATTEMPTS_MAX
        usage, cost = Usage(), None
        reason = str(error)
        wait = error.retry_after_seconds if isinstance(error, ModelUnavailable) else None
        if isinstance(error, UnusableSummary):
            attempts_max, usage = 1, error.usage
            cost = self._prices(model, usage)
        elif isinstance(error, ModelRefused | UnknownModel) or (wait or 0) > WAIT_SECONDS_MAX:
            attempts_max = 1
        elif not isinstance(error, ModelError):
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in a compaction at\n%s", type(error).__name__, where)
            reason = f"It failed with {type(error).__name__}; the worker's log tells where."
        final = await self._store.fail_compaction(
            request, attempt, reason, attempts_max, failures_max, usage, cost
        )
        if not final:
            # A provider's text may quote the prompt, so none of it enters the history.
            raise ApplicationError(
                "The compaction failed; it is tried again.",
                type=type(error).__name__,
                next_retry_delay=None if wait is None else timedelta(seconds=wait),
                category=ApplicationErrorCategory.BENIGN,
            ) from None
