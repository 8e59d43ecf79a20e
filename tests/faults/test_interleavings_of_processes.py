"""U4, B9, B12: messages of every mode, cancels and kills in any order, on real processes.

Each accepted message is worked exactly once, or reported as rolled back.
"""

import asyncio
import itertools
import json
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from systems import Plan, StartSystem, System, until, until_async

from everturn.events import Event
from everturn.session import Mode

PLAN = Plan(steps=(("charge", "slow", "add"), ("add",), ()), token_ms=10)
MODES: list[Mode] = ["queue", "steer", "interrupt", "rollback"]
SEEN = ["turn_started", "text_delta", "tool_started", "turn_finished"]

Action = tuple[str, str]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(MODES)),
        st.tuples(st.just("see"), st.sampled_from(SEEN)),
        st.sampled_from([("kill", ""), ("cancel", ""), ("again", "")]),
    ),
    min_size=4,
    max_size=9,
)
RULES = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": list(HealthCheck),
}
_numbers = itertools.count(1)


@pytest.fixture
async def system(start_system: StartSystem) -> System:
    """One system for all examples, each of which has a session of its own."""
    return await start_system({"all": PLAN})


@given(ACTIONS)
@settings(max_examples=2, **RULES)
@example(
    [
        ("see", "tool_started"),
        ("send", "steer"),
        ("kill", ""),
        ("send", "rollback"),
        ("see", "text_delta"),
        ("send", "queue"),
        ("send", "interrupt"),
        ("again", ""),
    ]
)
async def test_each_message_is_worked_once_or_reported_as_rolled_back(
    system: System, actions: list[Action]
) -> None:
    await Conversation(system).play(actions)


@pytest.mark.long
@given(ACTIONS)
@settings(max_examples=30, **RULES)
async def test_each_message_is_worked_once_or_reported_as_rolled_back_in_many_orders(
    system: System, actions: list[Action]
) -> None:
    await Conversation(system).play(actions)


class Conversation:
    """A session of `system`, and what was sent to it."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.name = f"s{next(_numbers)}"
        self.sent: list[tuple[str, Mode]] = []
        self.events: list[Event] = []
        self.starting: asyncio.Task[None] | None = None

    async def play(self, actions: list[Action]) -> None:
        client = self.system.client
        await client.create_session(self.name, workspace=str(self.system.workspace))
        watching = asyncio.create_task(self.watch())
        try:
            for what, which in [("send", "queue"), *actions]:
                await getattr(self, f"_{what}")(which)
            await until_async(self.rests)
            last = (await client.turns(self.name))[-1].turn
            await until(lambda: last in self.finished())
        finally:
            watching.cancel()
            if self.starting is not None:
                await self.starting
        self.check()

    async def watch(self) -> None:
        async for event in self.system.client.events(self.name):
            self.events.append(event)

    async def rests(self) -> bool:
        view = await self.system.client.session(self.name)
        return view.status == "idle"

    async def _send(self, mode: str) -> None:
        name = f"{self.name}-m{len(self.sent)}"
        self.sent.append((name, mode))  # type: ignore[arg-type]
        await self._again("")

    async def _again(self, _: str) -> None:
        name, mode = self.sent[-1]
        text = f"{name} for all, please."
        await self.system.client.send(self.name, text, id=name, mode=mode)

    async def _cancel(self, _: str) -> None:
        await self.system.client.cancel(self.name)

    async def _kill(self, _: str) -> None:
        if self.starting is not None:
            await self.starting
        await self.system.kill("worker")
        self.starting = asyncio.create_task(self.system.restart("worker"))

    async def _see(self, kind: str) -> None:
        """Wait until one more event of that kind is told, or nothing more is to come."""
        before = self.count(kind)

        async def look() -> bool:
            return self.count(kind) > before or await self.rests()

        await until_async(look)

    def count(self, kind: str) -> int:
        return sum(event.type == kind for event in self.events)

    def finished(self) -> dict[int, str]:
        ended = [event for event in self.events if event.type == "turn_finished"]
        assert len({event.turn for event in ended}) == len(ended), "a turn ended twice"
        return {event.turn: event.body["outcome"] for event in ended}

    def check(self) -> None:
        assert [event.seq for event in self.events] == list(range(1, len(self.events) + 1))
        outcomes = self.finished()
        assert list(outcomes) == list(range(1, len(outcomes) + 1))
        told = [e.body["message_id"] for e in self.events if e.type == "message_rolled_back"]
        in_force, left_out = self.transcript()
        # Once each: in what is sent to a model from here on, or reported.
        assert Counter(in_force + told) == Counter(name for name, _ in self.sent)
        assert sorted(left_out) == sorted(told)
        admitted = {
            e.body["message_id"]: e.turn for e in self.events if e.type == "message_admitted"
        }
        for name, _ in self.sent:
            assert (outcomes[admitted[name]] == "rolled_back") == (name in told)

    def transcript(self) -> tuple[list[str], list[str]]:
        """The messages that are sent to a model, and those that no longer are."""
        path = self.system.home / "everturn.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            rows = store.execute(
                "SELECT m.body, EXISTS (SELECT 1 FROM cuts c WHERE c.sid = m.sid"
                " AND c.kind = 'rollback' AND m.position BETWEEN c.first AND c.last)"
                " FROM messages m JOIN sessions s ON s.sid = m.sid"
                " WHERE s.id = ? AND m.role = 'user' ORDER BY m.position",
                (self.name,),
            ).fetchall()
        texts = [(json.loads(body)["parts"][0]["text"].split()[0], cut) for body, cut in rows]
        return [t for t, cut in texts if not cut], [t for t, cut in texts if cut]
