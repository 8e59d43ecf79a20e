"""Running a hook at its place: once it has ended there, it is never run there again.

A hook that was cut off with its worker is run again: what it does must bear that.
"""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from everturn.agents import AgentSpec
from everturn.errors import OwnerAlive, ToolFailed
from everturn.events import Draft
from everturn.hooks import BLOCKS, Hook, HookMoment, ToolHook
from everturn.session import SessionKey
from everturn_activities.calling import caller
from everturn_activities.hooks import Command, HookRan, demand_over, not_run
from everturn_activities.store import HookEnd, HookInterrupted, Store

T = TypeVar("T")

ATTEMPTS_MAX = 5
"""Beginnings of a hook that left no end: it may be what ends the workers."""

TEXT_CHARACTERS = 500
"""Of what a hook said that watchers are told."""

FAILED = "The hook {hook} ended with exit code {code}, which is neither 0 nor 2."
TOO_OFTEN = "The hook {hook} was begun {times} times, and its worker was lost each time."


@dataclass(frozen=True)
class Placed:
    """A hook at its place in a session. `epoch` is None once its turn is over; `about` is what
    watchers are told beside how it ended."""

    key: SessionKey
    turn: int
    epoch: int | None
    hook: Hook
    moment: HookMoment
    place: str
    step: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    def refused_by(self, end: HookEnd) -> bool:
        """Whether the hook, which ended so, keeps its call from running."""
        if self.moment != "PreToolUse" or end.exit_code == 0:
            return False
        strict = isinstance(self.hook, ToolHook) and self.hook.on_error == "block"
        return end.exit_code == BLOCKS or strict

    def told(self, end: HookEnd, seconds: float) -> Draft:
        """What watchers are told of it."""
        said = end.output.strip()
        return Draft(
            id=f"hook/{self.place}/{self.hook.digest[:16]}",
            type="hook_finished",
            turn=self.turn,
            step=self.step,
            body={
                "moment": self.moment,
                "hook": self.hook.shown,
                **self.about,
                "exit_code": end.exit_code,
                "blocked": self.refused_by(end),
                "text": said if len(said) <= TEXT_CHARACTERS else f"{said[: TEXT_CHARACTERS - 1]}…",
                "duration_seconds": round(seconds, 4),
            },
        )


class HookRunner:
    def __init__(
        self,
        store: Store,
        command: Command,
        worker: str,
        is_alive: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._command = command
        self._worker = worker
        self._is_alive = is_alive

    async def end_of(
        self,
        at: Placed,
        spec: AgentSpec,
        given: dict[str, Any],
        guard: Callable[[Awaitable[HookRan]], Awaitable[HookRan]],
    ) -> HookEnd:
        """How the hook has ended there, whoever ran it; `given` is what it reads. `guard` waits
        for it."""
        begun = await self._begun(at)
        if begun is not None:
            return begun
        stdin = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")
        started = time.monotonic()
        try:
            ran = await guard(self._command(spec, at.hook, stdin))
        except ToolFailed as error:
            end = HookEnd(None, not_run(at.hook, error))
        else:
            end = _judged(at, ran)
        return await self._complete(at, end, time.monotonic() - started)

    async def _begun(self, at: Placed) -> HookEnd | None:
        """Write the intent of a hook; how it has ended where it is not to be run."""
        ours = caller(self._worker)
        begun = await self._store.begin_hook(at.key, at.turn, at.epoch, at.hook, ours, at.place)
        if isinstance(begun, HookInterrupted):
            await demand_over(at.hook, begun, self._worker, self._is_alive)
            if begun.attempt >= ATTEMPTS_MAX:
                text = TOO_OFTEN.format(hook=at.hook.shown, times=begun.attempt)
                return await self._complete(at, HookEnd(None, text), 0.0)
            begun = await self._store.begin_hook(
                at.key, at.turn, at.epoch, at.hook, ours, at.place, begun.attempt
            )
        if isinstance(begun, HookInterrupted):
            raise OwnerAlive(f"A hook was begun by worker {begun.worker} meanwhile.")
        return begun if isinstance(begun, HookEnd) else None

    async def _complete(self, at: Placed, end: HookEnd, seconds: float) -> HookEnd:
        told = at.told(end, seconds)
        return await self._store.complete_hook(at.key, at.turn, at.hook, end, at.place, told)


def _judged(at: Placed, ran: HookRan) -> HookEnd:
    """How a hook has ended: with what counts of its words."""
    if ran.code == 0:
        return HookEnd(0, ran.output)
    if ran.code == BLOCKS and at.moment == "PreToolUse":
        return HookEnd(BLOCKS, ran.errors.strip() or ran.output)
    return HookEnd(ran.code, FAILED.format(hook=at.hook.shown, code=ran.code))
