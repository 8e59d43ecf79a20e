"""begin_executors: hand the tasks of a step's `delegate` calls to sessions of their own."""

from collections.abc import Iterable
from typing import Protocol

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.errors import UsageError
from everturn.executors import Delegation, ExecutorRules, executor_name
from everturn.session import Delegated, RunTools, SessionKey
from everturn_activities.capped import READ_MORE
from everturn_activities.heartbeat import heartbeating
from everturn_activities.store import FollowUp, Handed, Inbound, Store, StoredCall, Wake
from everturn_activities.toolbox import wrong_arguments


class Waker(Protocol):
    async def wake(self, wake: Wake) -> None: ...


class Agents(Protocol):
    def agent_names(self, spec: AgentSpec) -> tuple[str, ...]: ...


class ExecutorActivities:
    def __init__(self, store: Store, agents: Agents, messenger: "Messenger") -> None:
        self._store = store
        self._agents = agents
        self._messenger = messenger

    @activity.defn
    async def begin_executors(self, request: RunTools) -> Delegated:
        """Write the step's tasks down, once, and begin as many as may be at once; the others
        begin as these end."""
        async with heartbeating():
            key = SessionKey(request.tenant, request.session)
            spec = await self._store.spec(key, request.turn)
            stored = await self._store.tool_calls(key, request.turn, request.step)
            tasks: list[Delegation] = []
            refused: dict[int, str] = {}
            for call in stored:
                if call.index not in request.indexes or call.result is not None or call.waits:
                    continue
                try:
                    tasks.append(await self._task(request, key, spec, call))
                except UsageError as error:
                    refused[call.index] = str(error)
            width = spec.executors.concurrent_max
            await self._messenger.deliver(
                await self._store.hand_over(request, width, tasks, refused)
            )
            return await self._store.check_executors(request)

    @activity.defn
    async def check_executors(self, request: RunTools) -> Delegated:
        return await self._store.check_executors(request)

    async def _task(
        self, request: RunTools, key: SessionKey, spec: AgentSpec, call: StoredCall
    ) -> Delegation:
        """The call as it is checked; raises UsageError with what the model may mend."""
        described = spec.tool(call.name)
        if described is None:
            raise UsageError(f"Unknown tool: {call.name}")
        wrong = wrong_arguments(described, call.arguments, call.malformed)
        if wrong is not None:
            raise UsageError(wrong)
        arguments, policy = call.arguments, spec.executors
        named = arguments.get("agent") or None
        known = self._agents.agent_names(spec)
        if named is not None and named not in known:
            raise UsageError(
                f"There is no agent {named!r} to hand work to; there are {', '.join(known)}."
            )
        again = arguments.get("executor") or None
        if again is not None and not await self._store.has_executor(key, again):
            raise UsageError(
                f"There is no executor {again!r} of yours; leave it out to have a new one."
            )
        made = executor_name(key.session, request.turn, request.step, call.index)
        return Delegation(
            index=call.index,
            executor=again or made,
            task=arguments["task"],
            rules=ExecutorRules(
                level=spec.level + 1,
                access=spec.agent.access,
                minus_tools=policy.minus_tools,
                steps_max=policy.steps_max,
            ),
            agent=named or spec.agent.name,
            model=None if named else policy.model or spec.agent.model,
            background=bool(arguments.get("background")),
            tail=policy.parent_tail,
            reads_on=READ_MORE in spec.runs,
        )


class Messenger:
    """Carries what one session's turn decided to other sessions. All of it may be repeated."""

    def __init__(self, store: Store, waker: Waker) -> None:
        self._store = store
        self._waker = waker

    async def deliver(self, tasks: Iterable[Handed]) -> None:
        for task in tasks:
            wake = await self._store.open_executor(task)
            if wake is not None:
                await self._waker.wake(wake)

    async def ended(self, turn: int, end: FollowUp) -> None:
        """Do what follows from the end of a turn elsewhere."""
        # First: who is cancelled may not have its task yet, nor a session.
        await self.deliver(end.begun)
        for child in end.left:
            cancel = Inbound(id=f"parent-ended/{turn}", kind="cancel")
            accepted = await self._store.accept(child, cancel)
            if accepted.wake is not None:
                await self._waker.wake(accepted.wake)
        if end.wake is not None:
            await self._waker.wake(end.wake)
