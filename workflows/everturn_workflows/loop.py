"""TurnLoop: the main loop, on one screen. Only it holds a turn's state."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from everturn_workflows import calls
from everturn_workflows.home import at_home

with workflow.unsafe.imports_passed_through():
    from everturn import limits
    from everturn.session import (
        Approved,
        AwaitHome,
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
    """Works one turn. `woken` is set by whoever commits to the session's inbox; `begun` is the
    turn's next step, where that is begun already."""

    def __init__(self, turn: TurnHead, begun: BegunStep | None = None) -> None:
        self.turn = turn
        self._begun = begun
        self.woken = True
        self._cursor = 0
        self._tried = 0
        self._shortened = 0
        self._gathered = False
        self._away = False

    async def run(self, too_long: Callable[[], bool]) -> limits.Ended | None:
        """How the turn ended; None where the history is too long and it must continue as new."""
        begun_at, waited = self.turn.step, False
        while self.turn.folder_due and limits.ended(self.turn) is None:
            made = (await self._attend([self._there(calls.prepare_folder)]))[0]
            if made is not None and not made.ready:
                return limits.WITHOUT_FOLDER
            if made is None or made.home in ("", self.turn.home):
                break
            # Nobody could have made it when the turn began: its home is known only now.
            self.turn = replace(self.turn, home=made.home)
        if self.turn.hooks_seconds and limits.ended(self.turn) is None:
            await self._attend([self._there(calls.run_hooks)])
        while (ended := limits.ended(self.turn)) is None:
            # A run that took no step and did not wait would continue as new for ever.
            if (self.turn.step > begun_at or waited) and too_long():
                return None
            step = await self._begin_step()
            if step.lost:
                return limits.WITHOUT_FOLDER
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
                await self._wait(step, too_long)
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

    async def _begin_step(self) -> BegunStep:
        tried = self._tried == self.turn.step + 1
        if self._begun is not None:
            step, self._begun = self._begun, None
        elif not self._away:
            self.woken = False  # The step sees all that came before it.
            step = await calls.begin_step(self.turn, tried, self._gathered)
        if not self._away and not step.elsewhere:
            return step
        # Whichever worker has the next task of this run, it is asked there from now on.
        self._away = True
        self.woken = False
        asked = self._there(calls.begin_step_at_home, tried, self._gathered)
        begun: BegunStep | None = (await self._attend([asked]))[0]
        # It was cancelled while nobody took it.
        return begun or calls.cancelled_step(self.turn)

    def _there(self, start: Callable[..., Any], *asked: Any) -> Any:
        """Start a call that comes to the session's files: at its home, where it has one."""
        turn = self.turn
        if not turn.home:
            return start(turn, *asked, None)
        at = AwaitHome(turn.tenant, turn.session, turn.turn, turn.home, str(turn.step + 1))
        return asyncio.create_task(at_home(at, lambda seconds: start(turn, *asked, seconds)))

    async def _gather(self, queue: str) -> None:
        """Have the agent's servers launched where the step was begun, which is begun again then."""
        try:
            asked = (
                calls.gather_tools(self.turn, queue, None)
                if calls.is_of_one_worker(queue)
                else self._there(calls.gather_tools, queue)
            )
            gathered = (await self._attend([asked]))[0]
        except ActivityError as error:
            if not calls.is_unattended(error):
                raise
            return
        if gathered is None:
            return
        self._gathered = True
        if gathered.failure is not None:
            self.turn = replace(self.turn, failure=gathered.failure)

    async def _wait(self, step: BegunStep, too_long: Callable[[], bool]) -> None:
        """Wait in no slot for other calls to end, or for what a person says."""
        if step.blocked == "asked":
            # A shard's history grows by its other items: who waits must not hold them up.
            await workflow.wait_condition(lambda: self.woken or too_long())
            await self._check_inbox([])
        else:
            await self._pause(step.wait_seconds)

    async def _ask(self, reply: StepHead, too_long: Callable[[], bool]) -> Approved | None:
        """Wait, in no slot, until a person has decided about each call that asks for leave;
        None where the history has grown too long meanwhile."""
        await self._attend([self._there(calls.ask_approvals, reply.step)])
        while not self.turn.cancelled:
            # Asked anew: a verdict may have come while the question was still being written.
            approved = await calls.check_approvals(self.turn, reply.step)
            if not approved.waiting:
                return approved
            if too_long():
                return None
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self.woken or too_long(), timeout=approved.wait_seconds
                )
            self.woken = False
            await self._check_inbox([])
        return Approved(0)

    async def _gate(self, reply: StepHead) -> StepHead:
        """`reply` with the calls that no hook keeps from running."""
        if self.turn.cancelled:
            return replace(reply, calls=[])
        running = self._there(calls.before_calls, reply.step, reply.calls)
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
            else self._there(calls.run_queued, reply.step, head)
            for head in reply.calls
            if head.placement == "queued"
        ]
        if inline:
            handles.append(self._run_inline(reply.step, inline))
        if handed:
            handles.append(calls.begin_executors(self.turn, reply.step, handed))
        ended: list[ToolsDone | Delegated | None] = await self._attend(handles)
        if handed and not await self._wait_for_executors(reply.step, too_long):
            return None
        if any(head.after_seconds for head in reply.calls) and not self.turn.cancelled:
            await self._attend([self._there(calls.after_calls, reply.step, reply.calls)])
        return any(isinstance(done, ToolsDone) and done.responded for done in ended)

    def _run_inline(self, step: int, heads: list[ToolHead]) -> Any:
        """The step's inline tools, where the session's files are."""
        if not self.turn.home:
            return calls.run_inline(self.turn, step, heads)
        return asyncio.create_task(self._run_with_files(step, heads))

    async def _run_with_files(self, step: int, heads: list[ToolHead]) -> ToolsDone:
        if not self._away:
            done: ToolsDone = await calls.run_inline(self.turn, step, heads)
            if not done.elsewhere:
                return done
            self._away = True
        ended: ToolsDone = await self._there(calls.run_at_home, step, heads)
        return ended

    async def _wait_for_executors(self, step: int, too_long: Callable[[], bool]) -> bool:
        """Wait, in no slot, until each executor of the step has reported. The last one wakes us."""
        while not self.turn.cancelled:
            if not (await calls.check_executors(self.turn, step)).left:
                return True
            if too_long():
                return False
            await workflow.wait_condition(lambda: self.woken or too_long())
            self.woken = False
            await self._check_inbox([])
        return True

    async def _run_later(self, step: int, head: ToolHead) -> ToolsDone:
        """A call that polls waits as a timer, in nobody's slot. One whose worker is gone goes to
        whoever is there."""
        if head.delay_seconds:
            await asyncio.sleep(head.delay_seconds)
        if head.queue:
            try:
                return await calls.run_queued(self.turn, step, head, None)
            except ActivityError as error:
                if not calls.is_unattended(error):
                    raise
        done: ToolsDone = await self._there(calls.run_queued, step, replace(head, queue=""))
        return done

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
