"""TurnLoop: the main loop, on one screen. Only it holds a turn's state."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from everturn_workflows import calls

with workflow.unsafe.imports_passed_through():
    from everturn import limits
    from everturn.session import (
        Approved,
        BegunStep,
        CheckInbox,
        Compacted,
        ContextHead,
        Delegated,
        Gated,
        StepHead,
        ToolHead,
        ToolsDone,
        TurnHead,
    )


class TurnLoop:
    """Works one turn. `woken` is set by whoever commits to the session's inbox."""

    def __init__(self, turn: TurnHead) -> None:
        self.turn = turn
        self.woken = True
        self._cursor = 0
        self._tried = 0
        self._shortened = 0

    async def run(self, too_long: Callable[[], bool]) -> limits.Ended | None:
        """How the turn ended; None where the history is too long and it must continue as new."""
        begun_at, waited = self.turn.step, False
        if self.turn.folder_due and limits.ended(self.turn) is None:
            made = (await self._attend([calls.prepare_folder(self.turn)]))[0]
            if made is not None and not made.ready:
                return limits.WITHOUT_FOLDER
        if self.turn.hooks_seconds and limits.ended(self.turn) is None:
            await self._attend([calls.run_hooks(self.turn)])
        while (ended := limits.ended(self.turn)) is None:
            # A run that took no step and did not wait would continue as new for ever.
            if (self.turn.step > begun_at or waited) and too_long():
                return None
            self.woken = False  # The step sees all that came before it.
            step = await calls.begin_step(self.turn, self._tried == self.turn.step + 1)
            if step.context.cancelled:
                self.turn = self.turn.cancelling()
                continue
            if step.gather:
                await self._gather(step.gather)
                waited = True
                continue
            if step.begin_again:
                await self._pause(step.wait_seconds)
                waited = True
                continue
            if step.context.compaction:
                made = await self._compact(step.context)
                if made.blocked is None:
                    continue
                step = replace(step, blocked=made.blocked, wait_seconds=1.0)
            if step.context.overfull:
                return limits.overfull(step.context)
            if step.blocked is not None:
                if (stopped := limits.blocked(step.blocked)) is not None:
                    return stopped
                await self._wait(step)
                waited = True
                continue
            if step.compact and await self._shorten(step.context):
                continue
            if step.refused:
                return limits.Ended("model_failed")
            try:
                reply = step.reply or await self._call_model(step)
            except ActivityError as error:
                if calls.is_stale(error) or calls.is_fault(error):
                    raise
                if calls.is_blocked(error):
                    continue
                if not self.turn.cancelled and (seconds := calls.left_off(error)) is not None:
                    await self._pause(seconds)
                    waited = True
                    continue
                if calls.is_overflow(error) and await self._shorten(step.context):
                    continue
                return limits.CANCELLED if self.turn.cancelled else limits.Ended("model_failed")
            if reply is None:
                return limits.CANCELLED
            ends = False
            if any(head.before_seconds for head in reply.calls):
                reply = await self._gate(reply)
            if any(head.asks for head in reply.calls):
                approved = await self._ask(reply, too_long)
                if approved is None:
                    return None
                ends = approved.ends
                allowed = [head for head in reply.calls if head.index not in approved.answered]
                reply = replace(reply, calls=[] if self.turn.cancelled else allowed)
                if any(head.asks and head.before_seconds for head in allowed):
                    # A person may have changed what is to run.
                    reply = await self._gate(reply)
            if reply.calls:
                responded = await self._run_tools(reply, too_long)
                if responded is None:
                    return None
                if responded:
                    reply = replace(reply, stop="response")
            if ends:
                reply = replace(reply, stop="denied")
            self.turn = self.turn.after(reply)
        return ended

    async def _gather(self, queue: str) -> None:
        """Have the agent's servers launched where the step was begun, which is begun again then."""
        try:
            gathered = (await self._attend([calls.gather_tools(self.turn, queue)]))[0]
        except ActivityError as error:
            if not calls.is_unattended(error):
                raise
            return
        if gathered is not None and gathered.failure is not None:
            self.turn = replace(self.turn, failure=gathered.failure)

    async def _wait(self, step: BegunStep) -> None:
        """Wait in no slot for other calls to end, or for what a person says."""
        if step.blocked == "asked":
            await workflow.wait_condition(lambda: self.woken)
            await self._check_inbox([])
        else:
            await self._pause(step.wait_seconds)

    async def _ask(self, reply: StepHead, too_long: Callable[[], bool]) -> Approved | None:
        """Wait, in no slot, until a person has decided about each call that asks for leave;
        None where the history has grown too long meanwhile."""
        await self._attend([calls.ask_approvals(self.turn, reply.step)])
        while not self.turn.cancelled:
            # Asked anew: a verdict may have come while the question was still being written.
            approved = await calls.check_approvals(self.turn, reply.step)
            if not approved.waiting:
                return approved
            if too_long():
                return None
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: self.woken, timeout=approved.wait_seconds)
            self.woken = False
            await self._check_inbox([])
        return Approved(0)

    async def _gate(self, reply: StepHead) -> StepHead:
        """`reply` with the calls that no hook keeps from running."""
        if self.turn.cancelled:
            return replace(reply, calls=[])
        running = calls.before_calls(self.turn, reply.step, reply.calls)
        gated: Gated | None = (await self._attend([running]))[0]
        if gated is None or self.turn.cancelled:
            return replace(reply, calls=[])
        allowed = [head for head in reply.calls if head.index not in gated.answered]
        return replace(reply, calls=allowed)

    async def _call_model(self, step: BegunStep) -> StepHead | None:
        """The reply of a call that is not inline, or failed so; None once it is cancelled."""
        if step.wait_seconds:
            await self._pause(step.wait_seconds)
        if self.turn.cancelled:
            return None
        reply: StepHead | None = (await self._attend([calls.call_model(step.context)]))[0]
        return reply

    async def _pause(self, seconds: float) -> None:
        """Wait on a timer of the server's: it outlives any worker and holds no place in one."""
        await self._attend([asyncio.create_task(asyncio.sleep(seconds))])

    async def _compact(self, context: ContextHead, forced: bool = False) -> Compacted:
        """Make room before a step, which is then begun again."""
        try:
            made: Compacted | None = (await self._attend([calls.compact(context, forced)]))[0]
        except ActivityError as error:
            if calls.is_stale(error):
                raise
            made = None
        if made is None or not (made.cut or made.blocked):
            self._tried = context.step
        return made or Compacted(0)

    async def _shorten(self, context: ContextHead) -> bool:
        """Compact because the provider found the request too long, once a step."""
        if self._shortened == context.step or self.turn.cancelled:
            return False
        self._shortened = context.step
        made = await self._compact(context, forced=True)
        # Where a budget has no room for a summary, the step itself asks it next.
        return bool(made.cut or made.blocked)

    async def _run_tools(self, reply: StepHead, too_long: Callable[[], bool]) -> bool | None:
        """All the step's tools at once; their results go to the store, in call order. Whether
        one of them was the answer to the user; None where executors still work and the history
        has grown too long meanwhile."""
        handed = [head for head in reply.calls if head.placement == "executor"]
        inline = [head for head in reply.calls if head.placement == "inline"]
        handles: list[Any] = [
            asyncio.create_task(self._run_later(reply.step, head))
            if head.delay_seconds or head.queue
            else calls.run_queued(self.turn, reply.step, head)
            for head in reply.calls
            if head.placement == "queued"
        ]
        if inline:
            handles.append(calls.run_inline(self.turn, reply.step, inline))
        if handed:
            handles.append(calls.begin_executors(self.turn, reply.step, handed))
        ended: list[ToolsDone | Delegated | None] = await self._attend(handles)
        if handed and not await self._wait_for_executors(reply.step, too_long):
            return None
        if any(head.after_seconds for head in reply.calls) and not self.turn.cancelled:
            await self._attend([calls.after_calls(self.turn, reply.step, reply.calls)])
        return any(isinstance(done, ToolsDone) and done.responded for done in ended)

    async def _wait_for_executors(self, step: int, too_long: Callable[[], bool]) -> bool:
        """Wait, in no slot, until each executor of the step has reported. The last one wakes us."""
        while not self.turn.cancelled:
            if not (await calls.check_executors(self.turn, step)).left:
                return True
            if too_long():
                return False
            await workflow.wait_condition(lambda: self.woken)
            self.woken = False
            await self._check_inbox([])
        return True

    async def _run_later(self, step: int, head: ToolHead) -> ToolsDone:
        """A call that polls waits as a timer, in nobody's slot. One whose worker is gone goes to
        whoever is there."""
        if head.delay_seconds:
            await asyncio.sleep(head.delay_seconds)
        try:
            return await calls.run_queued(self.turn, step, head)
        except ActivityError as error:
            if not head.queue or not calls.is_unattended(error):
                raise
        return await calls.run_queued(self.turn, step, replace(head, queue=""))

    async def _attend(self, handles: list[Any]) -> list[Any]:
        """The results of `handles`, None for a cancelled one; what arrives meanwhile takes
        effect at once."""
        running = asyncio.gather(*handles, return_exceptions=True)
        await workflow.wait_condition(lambda: self.woken or running.done())
        while not running.done():
            self.woken = False
            await self._check_inbox(handles)
            await workflow.wait_condition(lambda: self.woken or running.done())
        results = []
        for result in running.result():
            if not isinstance(result, BaseException):
                results.append(result)
            elif is_cancelled_exception(result):
                results.append(None)
            else:
                raise result
        return results

    async def _check_inbox(self, handles: list[Any]) -> None:
        turn = self.turn
        inbox = await calls.check_inbox(
            CheckInbox(turn.tenant, turn.session, turn.turn, self._cursor)
        )
        self._cursor = inbox.cursor
        if inbox.cancelled and not turn.cancelled:
            self.turn = turn.cancelling()
            for handle in handles:
                handle.cancel()
