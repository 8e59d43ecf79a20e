"""begin_step: prepare a step, and do at once what is inline of it.

Every local activity costs the worker milliseconds, whatever it does. A step whose calls
are all quick is one local activity instead of three; each of its parts is still a row of
its own that the first writer wins, so a re-run repeats none of them.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.context.window import Frame
from everturn.errors import OVERFLOW
from everturn.session import (
    BegunStep,
    ContextHead,
    Placement,
    PrepareStep,
    RunTools,
    SessionKey,
    StepHead,
)
from everturn_activities import own_folders
from everturn_activities.admission import Admission, GivenUp
from everturn_activities.candidates import Candidates
from everturn_activities.flights import Flights
from everturn_activities.frames import Frames
from everturn_activities.gathering import Gatherer
from everturn_activities.governor import Wait
from everturn_activities.heartbeat import heartbeating
from everturn_activities.mcp.rendering import Renderer
from everturn_activities.mcp.servers import Servers
from everturn_activities.model import CallFailed, ModelActivities
from everturn_activities.placement import Placements
from everturn_activities.session_homes import SessionHomes
from everturn_activities.store import Blocked, CallStarted, StepLayers, Store
from everturn_activities.threads import in_thread
from everturn_activities.tools import ToolActivities

RERUNS_MAX = 3
BUDGET_SECONDS = 1.0
"""How long, on average, a call waits for others to end that reserved what it needs."""


class StepActivities:
    def __init__(
        self,
        store: Store,
        candidates: Candidates,
        placements: Placements,
        frames: Frames,
        gatherer: Gatherer,
        admission: Admission,
        models: ModelActivities,
        tools: ToolActivities,
        servers: Servers | None,
        own_queue: Callable[[], Awaitable[str]],
        renderer: Renderer,
        homes: SessionHomes,
        calls_models: bool,
    ) -> None:
        """`servers` is None where this worker runs none. `own_queue` names a queue whose workers
        do: of this one alone, where it runs them. Unless it `calls_models` all their calls are
        queued."""
        self._store = store
        self._candidates = candidates
        self._frames = frames
        self._gatherer = gatherer
        self._placements = placements
        self._admission = admission
        self._models = models
        self._tools = tools
        self._servers = servers
        self._own_queue = own_queue
        self._renderer = renderer
        self._homes = homes
        self._calls_models = calls_models
        self._flights = Flights()

    @activity.defn
    async def begin_step(self, request: PrepareStep) -> BegunStep:
        """Record what the step reads; make its model call and run its tools if they are inline.

        An inline call that fails is left to the workflow, which makes it as an activity
        with retries of its own.
        """
        if self._homes.is_elsewhere(request.home):
            return replace(_begin_again(request, 0.0), elsewhere=True)
        call = (request.tenant, request.session, request.turn, request.step)
        return await self._flights.join(call, lambda: self._begin(request))

    @activity.defn
    async def begin_step_at_home(self, request: PrepareStep) -> BegunStep:
        """As `begin_step`, as an activity on a worker that has the session's files."""
        async with heartbeating():
            key = SessionKey(request.tenant, request.session)
            spec = await self._store.spec(key, request.turn)
            if not await in_thread(Path(spec.working_dir).is_dir):
                said = own_folders.gone(spec.working_dir)
                await self._store.folder_failed(key, request.turn, request.epoch, said)
                return replace(_begin_again(request, 0.0), lost=True)
            return await self.begin_step(request)

    async def _begin(self, request: PrepareStep) -> BegunStep:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        if spec.servers and not self._is_ready(request, key, spec):
            # Before anything is recorded of the step: a model is told of no tool that this worker,
            # or the one that runs tools for it, does not have.
            return replace(_begin_again(request, 0.0), gather=await self._own_queue())
        made = await self._gatherer.gather(key, request.turn, request.step, spec)
        layers = self._gatherer.unrecorded(key, spec, made)
        model = spec.agent.model
        if spec.agent.fallback_models and self._candidates.is_open(model):
            # Each step asks the agent's own model again, unless it is known to fail.
            frame = self._frames.of(spec, made.manifest)
            tokens = await self._store.context_tokens(key) + frame.overhead
            if (other := self._candidates.after(spec, model, tokens)) is not None:
                request, model = replace(request, resting=model), other
        frame = self._frames.of(spec, made.manifest, model)
        placement: Placement = "queued"
        if self._calls_models:
            placement = await self._placements.of_model(model)
        if placement == "queued":
            context = await self._store.prepare_step(request, placement, model, frame, layers)
            self._gatherer.recorded(key, layers, context)
            if context.renders:
                return await self._after_rendering(request, key, spec)
            # What another worker recorded as inline is inline only for who makes such calls.
            if not context.ready or context.placement == "queued" or not self._calls_models:
                if context.ready and context.budgeted:
                    blocked = await self._store.check_budget(context, model)
                    if blocked is not None:
                        return _held_up(context, blocked)
                return BegunStep(context)
        asked = await self._admission.ask(key, request.turn, request.step, spec, model)
        if isinstance(asked, Wait):
            return _begin_again(request, asked.seconds)
        try:
            if isinstance(asked, GivenUp):
                context, begun = await self._begin_inline(request, model, frame, layers)
                if context.renders:
                    return await self._after_rendering(request, key, spec)
                if begun is None:
                    return BegunStep(context)
                if isinstance(begun, Blocked):
                    return _held_up(context, begun)
                reply = await self._models.give_up(context, begun, asked)
            else:
                async with asked as admitted:
                    context, begun = await self._begin_inline(request, model, frame, layers)
                    if context.renders:
                        return await self._after_rendering(request, key, spec)
                    if begun is None:
                        return BegunStep(context)
                    if isinstance(begun, Blocked):
                        return _held_up(context, begun)
                    if isinstance(begun, StepHead):
                        reply = begun
                    else:
                        reply = await self._models.make(context, begun, admitted)
        except CallFailed as failed:
            overflowed = failed.kind == OVERFLOW
            return BegunStep(
                context, None, failed.refused, failed.pause_seconds, compact=overflowed
            )
        return BegunStep(context, await self._run_inline(context, reply))

    def _is_ready(self, request: PrepareStep, key: SessionKey, spec: AgentSpec) -> bool:
        """Whether the spec's servers have been launched, and offer what it says."""
        if self._servers is None:
            return request.gathered and not spec.is_pending
        return self._servers.is_ready(key, spec)

    async def _after_rendering(
        self, request: PrepareStep, key: SessionKey, spec: AgentSpec
    ) -> BegunStep:
        queue = await self._renderer.queue(key, request.turn, spec)
        return replace(_begin_again(request, 0.0), gather=queue)

    async def _begin_inline(
        self, request: PrepareStep, model: str, frame: Frame, layers: StepLayers
    ) -> tuple[ContextHead, CallStarted | StepHead | Blocked | None]:
        context, begun = await self._models.begin_inline(request, model, frame, layers)
        self._gatherer.recorded(SessionKey(request.tenant, request.session), layers, context)
        return context, begun

    async def _run_inline(self, context: ContextHead, reply: StepHead) -> StepHead:
        """`reply` without its calls where all were inline and have run."""
        if context.reruns >= RERUNS_MAX:
            # Perhaps one of them ends the worker: as activities their beginnings are counted.
            calls = [
                replace(call, placement="queued") if call.placement == "inline" else call
                for call in reply.calls
            ]
            return replace(reply, calls=calls)
        alone = all(call.placement == "inline" and call.alone for call in reply.calls)
        if not reply.calls or not alone:
            return reply
        done = await self._tools.run(
            RunTools(
                context.tenant,
                context.session,
                context.turn,
                context.step,
                context.epoch,
                [call.index for call in reply.calls],
            )
        )
        return replace(reply, calls=[], stop="response" if done.responded else reply.stop)


def _held_up(context: ContextHead, blocked: Blocked) -> BegunStep:
    # Those that wait for one budget do not all look again at one moment.
    wait = random.uniform(0.5, 1.5) * BUDGET_SECONDS  # noqa: S311
    return BegunStep(context, wait_seconds=wait, blocked=blocked.how)


def _begin_again(request: PrepareStep, seconds: float) -> BegunStep:
    """A step that nothing is recorded of yet: what arrives during the wait joins it."""
    nothing = ContextHead(
        request.tenant, request.session, request.turn, request.step, request.epoch, 0, 0, "inline"
    )
    return BegunStep(nothing, wait_seconds=seconds, begin_again=True)
