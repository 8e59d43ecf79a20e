"""call_model: one request, one reply, paid for once."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everturn.agents import Agent, AgentSpec, Candidate
from everturn.context.compose import Context, compose
from everturn.context.thoughts import thought_by
from everturn.context.window import Frame
from everturn.errors import Fenced, StaleHost, TurnCancelled
from everturn.hooks import seconds_of
from everturn.mcp_tools import is_served
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.session import ContextHead, PrepareStep, SessionKey, StepHead, Stop, ToolHead
from everturn.tools import DELEGATE
from everturn_activities import recovery
from everturn_activities.admission import Admission, Admitted, GivenUp, failed, must_wait, replied
from everturn_activities.calling import caller, whole_reply
from everturn_activities.candidates import Candidates, addressed
from everturn_activities.deltas import DeltaWriter
from everturn_activities.event_log import EventLog
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.frames import demand_room
from everturn_activities.gateways import ModelGateway, Usage
from everturn_activities.gateways.allowances import Allowance
from everturn_activities.gathering import Gatherer
from everturn_activities.governor import Route, Wait
from everturn_activities.heartbeat import heartbeating
from everturn_activities.mcp.homes import Homes
from everturn_activities.placement import Placements
from everturn_activities.request_log import RequestLog
from everturn_activities.store import Blocked, CallFailure, CallStarted, StepLayers, Store
from everturn_activities.toolbox import fits

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.01
"""A switch waits for nothing; 0 would mean the server's own pause."""
CALLS_MAX = 128
"""Tool calls of one step that are run; a model is told of the ones beyond."""


class GatewayChoice(Protocol):
    def for_context(self, context: Context) -> ModelGateway: ...
    def route(self, candidate: Candidate) -> Route: ...
    def left_out(self, agent: Agent) -> str | None:
        """Which settings of the agent its model cannot have, in a sentence."""
        ...


class Prices(Protocol):
    def __call__(self, model: str, usage: Usage) -> float | None: ...


class Estimate(Protocol):
    def __call__(self, message: AssistantMessage) -> int: ...


class CallFailed(Exception):  # noqa: N818 - a recorded outcome, not a fault of ours
    """A call that failed, as Temporal may know it: the reason stays in the store.

    A provider's text may quote the prompt, so none of it enters the history.
    """

    def __init__(self, kind: str, refused: bool, pause_seconds: float) -> None:
        super().__init__("The model call failed; the session's events tell why.")
        self.kind = kind
        self.refused = refused
        self.pause_seconds = pause_seconds


@dataclass(frozen=True)
class _Ended:
    message: AssistantMessage
    stop: Stop
    usage: Usage
    allowances: tuple[Allowance, ...] = ()


class ModelActivities:
    def __init__(
        self,
        store: Store,
        events: EventLog,
        gateways: GatewayChoice,
        prices: Prices,
        estimate: Estimate,
        gatherer: Gatherer,
        candidates: Candidates,
        placements: Placements,
        watch: CancelWatch,
        admission: Admission,
        homes: Homes,
        worker: str,
        request_log: RequestLog | None = None,
        know: Callable[[AgentSpec], None] = lambda spec: None,
    ) -> None:
        self._store = store
        self._events = events
        self._gateways = gateways
        self._prices = prices
        self._estimate = estimate
        self._gatherer = gatherer
        self._candidates = candidates
        self._placements = placements
        self._watch = watch
        self._admission = admission
        self._homes = homes
        self._worker = worker
        self._request_log = request_log
        self._know = know
        self._flights = Flights()

    @activity.defn
    async def call_model(self, context: ContextHead) -> StepHead:
        """The step's reply, as an activity of its own."""
        async with heartbeating():
            try:
                return await self.reply(context)
            except CallFailed as failed:
                where = (failed.kind, context.turn, context.session)
                log.warning("%s in turn %d of session %s; its events tell why", *where)
                raise ApplicationError(
                    str(failed),
                    type=failed.kind,
                    non_retryable=failed.refused,
                    next_retry_delay=timedelta(seconds=failed.pause_seconds),
                    # A provider's failure comes from nowhere in our code: no traceback.
                    category=ApplicationErrorCategory.BENIGN,
                ) from None

    async def reply(self, context: ContextHead) -> StepHead:
        """From the journal where it is paid for, else from the provider; or CallFailed.

        Raises `must_wait` where the governor does not let it begin yet.
        """
        call = (context.tenant, context.session, context.turn, context.step)
        return await self._flights.join(call, lambda: self._call(context))

    async def begin_inline(
        self, request: PrepareStep, model: str, frame: Frame, layers: StepLayers
    ) -> tuple[ContextHead, CallStarted | StepHead | Blocked | None]:
        """Prepare a step whose call is inline, and begin that call in the same transaction."""
        return await self._store.begin_inline_step(
            request, model, caller(self._worker), frame, layers
        )

    async def _call(self, context: ContextHead) -> StepHead:
        key = SessionKey(context.tenant, context.session)
        spec = await self._store.spec(key, context.turn)
        model = spec.agent.model
        asked = await self._admission.ask(
            key, context.turn, context.step, spec, model, context.tokens
        )
        if isinstance(asked, Wait):
            raise must_wait(asked)
        if isinstance(asked, GivenUp):
            begun = await self._store.begin_model_call(context, model, caller(self._worker))
            return await self.give_up(context, begun, asked)
        async with asked as admitted:
            begun = await self._store.begin_model_call(context, model, caller(self._worker))
            if isinstance(begun, StepHead):
                return begun
            if isinstance(begun, Blocked):
                raise CallFailed("BudgetBlocked", True, 0.0)
            return await self.make(context, begun, admitted)

    async def give_up(
        self, context: ContextHead, begun: CallStarted | StepHead | Blocked, given_up: GivenUp
    ) -> StepHead:
        """Leave a model that fails without calling it, unless the reply is there."""
        if isinstance(begun, StepHead):
            return begun
        if isinstance(begun, Blocked):
            raise CallFailed("BudgetBlocked", True, 0.0)
        failure = CallFailure(given_up.reason, 1, given_up.next_model)
        after = await self._store.fail_model_call(context, begun.attempt, failure)
        raise CallFailed("ModelUnavailable", after.then == "end", SWITCH_SECONDS)

    async def make(self, context: ContextHead, begun: CallStarted, admitted: Admitted) -> StepHead:
        """Make the call that has begun, and journal what comes of it."""
        key = SessionKey(context.tenant, context.session)
        spec = await self._store.spec(key, context.turn)
        # This process may be new to the turn, and a secret already in its conversation.
        self._know(spec)
        writer = DeltaWriter(self._events, key, context.turn, context.step, begun.attempt)
        started = time.monotonic()
        try:
            composed = addressed(await self._compose(context, spec), spec, begun.model)
            if context.step == 1:
                _log_sizes(context, composed, spec.profile.recipe.mode == "pair")
            if self._request_log is not None:
                await self._request_log.write(context, composed)
            demand_room(context, composed)
            stream = self._stream(composed, spec.agent.output, writer)
            ended = await self._watch.guard(key, context.turn, stream)
        except TurnCancelled:
            ended = self._cut(context, writer)
        except (StaleHost, Fenced):
            raise
        except Exception as error:
            # Whatever a gateway raises ends this attempt only, and is told in plain words.
            admitted.ending = failed(error)
            await writer.close()
            raise await self._failed(context, spec, begun, error) from None
        finally:
            await writer.stop()
        if ended.stop != "cancelled":
            admitted.ending = replied(ended.usage, ended.allowances)
        head = await self._head(context, spec, ended)
        recorded = await self._store.complete_model_call(
            context,
            begun.attempt,
            ended.message,
            ended.stop,
            ended.usage,
            self._prices(begun.model, ended.usage),
            head,
            writer.rest(),
            spec.changing,
        )
        if ended.stop != "cancelled":
            self._placements.record("model", begun.model, time.monotonic() - started)
        return recorded

    async def _compose(self, context: ContextHead, spec: AgentSpec) -> Context:
        """The step's request, of nothing but what is recorded."""
        key = SessionKey(context.tenant, context.session)
        prompt = await self._gatherer.snapshot(context.layers)
        return compose(spec, prompt.texts, await self._store.history(key, context.extent))

    async def _stream(
        self, composed: Context, output: dict[str, Any] | None, writer: DeltaWriter
    ) -> _Ended:
        reply = await whole_reply(self._gateways.for_context(composed), composed, writer.add)
        stop: Stop = reply.stop
        if stop == "end_turn" and _says_nothing(reply.message, composed):
            stop = "empty"
        elif stop == "end_turn" and output is not None and not fits(reply.message.text, output):
            stop = "unfit"
        message = thought_by(reply.message, composed.model)
        return _Ended(message, stop, reply.usage, reply.allowances)

    def _cut(self, context: ContextHead, writer: DeltaWriter) -> _Ended:
        """What a cancelled call leaves: the text so far, and an estimate of what it cost."""
        message = writer.message()
        usage = Usage(
            input_tokens=context.tokens, output_tokens=self._estimate(message), estimated=True
        )
        return _Ended(message, "cancelled", usage)

    async def _head(self, context: ContextHead, spec: AgentSpec, ended: _Ended) -> StepHead:
        calls = []
        key = SessionKey(context.tenant, context.session)
        for index, call in enumerate(ended.message.tool_calls[:CALLS_MAX]):
            tool = spec.tool(call.name)
            hands_on = tool is not None and (tool.runs or tool.name) == DELEGATE
            calls.append(
                ToolHead(
                    index=index,
                    name=call.name[:64],
                    placement="executor" if hands_on else await self._placements.of_tool(tool),
                    timeout_seconds=tool.timeout_seconds if tool is not None else 1.0,
                    may_ask=tool is not None and is_served(tool),
                    asks=tool is not None and spec.asks_about(tool, call.arguments),
                    before_seconds=seconds_of(spec.hooks_before(tool)) if tool else 0.0,
                    after_seconds=seconds_of(spec.hooks_after(tool)) if tool else 0.0,
                    queue="" if tool is None else await self._homes.queue(key, spec, tool),
                )
            )
        return StepHead(step=context.step, stop=ended.stop, calls=calls)

    async def _failed(
        self, context: ContextHead, spec: AgentSpec, begun: CallStarted, error: Exception
    ) -> CallFailed:
        """Keep the reason in the store, and say whether and when to try again."""
        agent = spec.agent
        next_model = self._candidates.after(spec, begun.model, context.tokens)
        failure = recovery.judged(error, agent, next_model)
        if failure.next_model is not None and self._candidates.is_open(begun.model):
            failure = replace(failure, tries_max=1)
        after = await self._store.fail_model_call(context, begun.attempt, failure)
        pause = SWITCH_SECONDS
        if after.then == "again":
            pause = recovery.pause_seconds(error, agent, max(after.tries, 1))
        return CallFailed(type(error).__name__, after.then == "end", pause)


def _log_sizes(context: ContextHead, composed: Context, paired: bool) -> None:
    """What a turn begins with, by its size: nothing of what is said may enter a log."""
    prompt = len(composed.system)
    if paired and isinstance(composed.messages[0], UserMessage):
        prompt = sum(len(part.text) for part in composed.messages[0].parts if part.type == "text")
    log.info(
        "turn %d of session %s: instructions_chars=%d context_messages=%d",
        *(context.turn, context.session, prompt, len(composed.messages)),
    )


def _says_nothing(message: AssistantMessage, asked: Context) -> bool:
    """Whether a reply leaves its reader without an answer. After results of tools there may be
    nothing to add."""
    if message.tool_calls or message.text.strip():
        return False
    return not (asked.messages and isinstance(asked.messages[-1], ToolMessage))
