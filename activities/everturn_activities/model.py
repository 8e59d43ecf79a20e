"""call_model: one request, one reply, paid for once."""

import logging
import secrets
import time
import traceback
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn.agents import AgentSpec
from everturn.context.compose import Context, compose
from everturn.errors import (
    Fenced,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
    StaleHost,
    TurnCancelled,
    UnknownModel,
)
from everturn.messages import AssistantMessage
from everturn.session import ContextHead, PrepareStep, SessionKey, StepHead, Stop, ToolHead
from everturn_activities.deltas import DeltaWriter
from everturn_activities.event_log import EventLog
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.gateways import ModelGateway, Reply, Usage
from everturn_activities.heartbeat import heartbeating, seconds_from
from everturn_activities.placement import Placements
from everturn_activities.store import Caller, CallStarted, Store

FAILURES_MAX = 10
"""A provider that is overloaded or away comes back within minutes; then a person should know."""
UNREACHABLE_MAX = 4
"""About four seconds of trying, with the pauses between."""
RETRY_AFTER_SECONDS_MAX = 3600.0

CALLS_MAX = 128
"""Tool calls of one step that are run; a model is told of the ones beyond."""


class GatewayChoice(Protocol):
    def for_context(self, context: Context) -> ModelGateway: ...


class Prices(Protocol):
    def __call__(self, model: str, usage: Usage) -> float | None: ...


class Estimate(Protocol):
    def __call__(self, message: AssistantMessage) -> int: ...


log = logging.getLogger(__name__)


class CallFailed(Exception):  # noqa: N818 - a recorded outcome, not a fault of ours
    """A call that failed, as Temporal may know it: the reason stays in the store.

    A provider's text may quote the prompt, so none of it enters the history.
    """

    def __init__(self, kind: str, refused: bool, retry_after_seconds: float | None) -> None:
        super().__init__("The model call failed; the session's events tell why.")
        self.kind = kind
        self.refused = refused
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True)
class _Ended:
    message: AssistantMessage
    stop: Stop
    usage: Usage


class ModelActivities:
    def __init__(
        self,
        store: Store,
        events: EventLog,
        gateways: GatewayChoice,
        prices: Prices,
        estimate: Estimate,
        placements: Placements,
        watch: CancelWatch,
        worker: str,
    ) -> None:
        self._store = store
        self._events = events
        self._gateways = gateways
        self._prices = prices
        self._estimate = estimate
        self._placements = placements
        self._watch = watch
        self._worker = worker
        self._flights = Flights()

    @activity.defn
    async def call_model(self, context: ContextHead) -> StepHead:
        """The step's reply, as an activity of its own."""
        async with heartbeating():
            try:
                return await self.reply(context)
            except CallFailed as failed:
                raise ApplicationError(
                    str(failed),
                    type=failed.kind,
                    non_retryable=failed.refused,
                    next_retry_delay=seconds_from(failed.retry_after_seconds),
                ) from None

    async def reply(self, context: ContextHead) -> StepHead:
        """From the journal where it is paid for, else from the provider; or CallFailed."""
        call = (context.tenant, context.session, context.turn, context.step)
        return await self._flights.join(call, lambda: self._call(context))

    async def begin_inline(
        self, request: PrepareStep, model: str
    ) -> tuple[ContextHead, CallStarted | StepHead | None]:
        """Prepare a step whose call is inline, and begin that call in the same transaction."""
        return await self._store.begin_inline_step(request, model, self._caller())

    async def _call(self, context: ContextHead) -> StepHead:
        spec = await self._store.spec(SessionKey(context.tenant, context.session), context.turn)
        begun = await self._store.begin_model_call(context, spec.agent.model, self._caller())
        if isinstance(begun, StepHead):
            return begun
        return await self.make(context, begun)

    def _caller(self) -> Caller:
        info = activity.info()
        token = None if info.is_local else info.task_token
        return Caller(self._worker, secrets.token_hex(8), token)

    async def make(self, context: ContextHead, begun: CallStarted) -> StepHead:
        """Make the call that has begun, and journal what comes of it."""
        key = SessionKey(context.tenant, context.session)
        spec = await self._store.spec(key, context.turn)
        writer = DeltaWriter(self._events, key, context.turn, context.step, begun.attempt)
        started = time.monotonic()
        try:
            composed = compose(spec, await self._store.history(key, context.upto, context.cuts))
            ended = await self._watch.guard(key, context.turn, self._stream(composed, writer))
        except TurnCancelled:
            ended = self._cut(context, writer)
        except (StaleHost, Fenced):
            raise
        except Exception as error:
            # Whatever a gateway raises ends this attempt only, and is told in plain words.
            await writer.close()
            raise await self._failed(context, begun.attempt, error) from None
        finally:
            await writer.stop()
        head = await self._head(context, spec, ended)
        recorded = await self._store.complete_model_call(
            context,
            begun.attempt,
            ended.message,
            ended.stop,
            ended.usage,
            self._prices(spec.agent.model, ended.usage),
            head,
            writer.rest(),
        )
        if ended.stop != "cancelled":
            self._placements.record("model", spec.agent.model, time.monotonic() - started)
        return recorded

    async def _stream(self, composed: Context, writer: DeltaWriter) -> _Ended:
        gateway = self._gateways.for_context(composed)
        reply = None
        async with aclosing(gateway.stream(composed)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    writer.add(item)
        if reply is None:
            raise ModelUnavailable(f"Model {composed.model} ended its stream without a reply.")
        return _Ended(reply.message, reply.stop, reply.usage)

    def _cut(self, context: ContextHead, writer: DeltaWriter) -> _Ended:
        """What a cancelled call leaves: the text so far, and an estimate of what it cost."""
        message = writer.message()
        usage = Usage(
            input_tokens=context.tokens, output_tokens=self._estimate(message), estimated=True
        )
        return _Ended(message, "cancelled", usage)

    async def _head(self, context: ContextHead, spec: AgentSpec, ended: _Ended) -> StepHead:
        calls = []
        for index, call in enumerate(ended.message.tool_calls[:CALLS_MAX]):
            tool = spec.tool(call.name)
            calls.append(
                ToolHead(
                    index=index,
                    name=call.name[:64],
                    placement=await self._placements.of_tool(tool),
                    timeout_seconds=tool.timeout_seconds if tool is not None else 1.0,
                )
            )
        return StepHead(step=context.step, stop=ended.stop, calls=calls)

    async def _failed(self, context: ContextHead, attempt: int, error: Exception) -> CallFailed:
        """Keep the reason in the store, and say whether and when to try again."""
        failures_max = FAILURES_MAX
        reason = str(error)
        asked = error.retry_after_seconds if isinstance(error, ModelUnavailable) else None
        if isinstance(error, ModelRefused | UnknownModel):
            failures_max = 1
        elif isinstance(error, ModelUnreachable):
            # An address where nothing answers is rather wrong than busy: say so soon.
            failures_max = UNREACHABLE_MAX
        elif asked is not None and asked > RETRY_AFTER_SECONDS_MAX:
            failures_max = 1
            reason += f" It asks to wait longer than {RETRY_AFTER_SECONDS_MAX:g} s."
        elif not isinstance(error, ModelError):
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in a gateway at\n%s", type(error).__name__, where)
            reason = (
                f"The gateway failed with {type(error).__name__}; the worker's log tells where."
            )
        final = await self._store.fail_model_call(context, attempt, reason, failures_max)
        wait = None if asked is None else min(asked, RETRY_AFTER_SECONDS_MAX)
        return CallFailed(type(error).__name__, final, wait)
