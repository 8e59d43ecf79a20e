"""W6: composing a context of 200k tokens, of a session with 2,500 and with 100,000 messages."""

import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everturn.agents import Agent, AgentSpec, Compaction, ToolSpec
from everturn.context.compose import Context, compose
from everturn.context.layers import Item
from everturn.messages import AssistantMessage, Text, user_text
from everturn.profile import History, Layer, Profile, Recipe
from everturn.session import BeginTurn, ContextHead, FinishTurn, PrepareStep, SessionKey, TurnHead
from everturn_activities import tokens
from everturn_activities.frames import Frames
from everturn_activities.gathering import Gatherer
from everturn_activities.sources import Asked
from everturn_activities.sources.plain import PLAIN
from everturn_activities.store import Inbound, SessionSettings
from everturn_activities.store.database import SqliteDatabase
from everturn_activities.store.locked import LockedSession
from everturn_activities.store.sql import SqlStore

KEY = SessionKey("default", "s")
MODEL = "openai/gpt-5-mini"
SKILLS, TOOLS, TURNS, STEPS = 500, 50, 12, 4
STORED = (2_500, 100_000)
TOKENS = 200_000
SENTENCE = "The quick brown fox jumps over the lazy dog while nobody is looking at it. "
PAGE = 5_000


async def skills(asked: Asked) -> Sequence[Item]:
    """A menu of 500 skills, written anew for each step."""
    return [
        {"name": f"skill-{n}", "description": SENTENCE, "path": f"skills/skill-{n}/SKILL.md"}
        for n in range(SKILLS)
    ]


def spec() -> AgentSpec:
    hint = "{name}: {description} (file: {path})"
    profile = Profile(
        name="bench",
        history=History(load="tail_tokens"),
        recipe=Recipe(
            layers=(
                Layer(id="prompt", source="agent_prompt"),
                Layer(id="skills", source="skills", item=hint, scope="step"),
                Layer(id="now", source="facts", item="{name}: {text}", scope="step"),
            )
        ),
    )
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    listed = tuple(
        ToolSpec(name=f"tool_{n}", description=SENTENCE * 2, parameters=dict(parameters))
        for n in range(TOOLS)
    )
    agent = Agent(
        model=MODEL,
        prompt=SENTENCE * 20,
        window_tokens=TOKENS,
        compaction=Compaction(enabled=False),
    )
    return AgentSpec(agent=agent, profile=profile, tools=listed, workspace="/", working_dir="/")


class Process:
    """What a worker composes with, on a store."""

    def __init__(self, path: Path) -> None:
        self.store = SqlStore(
            SqliteDatabase(path, lambda keys: None),
            lambda message: tokens.count_message(message, MODEL),
        )
        sources = {**PLAIN, "skills": skills}
        self.gatherer = Gatherer(self.store, sources, tokens.count_text)
        self.frames = Frames(tokens.count_text, lambda model: None, lambda model: True)
        self.spec = spec()

    async def compose(self, turn: TurnHead, step: int) -> tuple[ContextHead, Context]:
        """All that stands before a request: gathered, recorded, loaded, composed."""
        made = await self.gatherer.gather(KEY, turn.turn, step, self.spec)
        layers = self.gatherer.unrecorded(KEY, self.spec, made)
        frame = self.frames.of(self.spec, made.manifest)
        request = PrepareStep(*KEY, turn.turn, step, turn.epoch)
        context = await self.store.prepare_step(request, "inline", MODEL, frame, layers)
        self.gatherer.recorded(KEY, layers, context)
        prompt = await self.gatherer.snapshot(context.layers)
        conversation = await self.store.history(KEY, context.extent)
        return context, compose(self.spec, prompt.texts, conversation)

    async def begin(self, run: int) -> TurnHead:
        await self.store.accept(KEY, Inbound(f"m{run}", "message", user_text(f"Turn {run}.")))
        request = BeginTurn(*KEY, KEY.workflow_id, f"run-{run}", None)
        turn = await self.store.begin_turn(request, self.spec)
        assert isinstance(turn, TurnHead)
        return turn

    async def finish(self, turn: TurnHead, run: int) -> None:
        at = (*KEY, KEY.workflow_id, f"run-{run}", turn.turn, turn.epoch, STEPS)
        await self.store.finish_turn(FinishTurn(*at, "completed"))


@asynccontextmanager
async def process(path: Path) -> AsyncIterator[Process]:
    made = Process(path)
    try:
        yield made
    finally:
        await made.store.close()


async def fill(store: SqlStore, count: int) -> None:
    """A conversation of so many messages, in turns of two."""
    await store.create_session(KEY, SessionSettings("/", "/"))
    said = user_text(SENTENCE * 6)
    answered = AssistantMessage(parts=(Text(text=SENTENCE * 6),))
    size = tokens.count_message(said, MODEL)

    def page(first: int) -> Callable[[Any], None]:
        def change(tx: Any) -> None:
            session = LockedSession(tx, KEY)
            for number in range(first, min(first + PAGE, count)):
                turn, part = number // 2 + 1, 10_000 * (number % 2)
                session.append(answered if part else said, turn, 1, part, size)
                session.turn = turn
            session.save()

        return change

    for first in range(0, count, PAGE):
        await store._database.write(page(first))


async def w6(folder: Path, repetitions: int) -> None:
    print(f"\nW6: composing {TOKENS:,} tokens with {SKILLS} skills and {TOOLS} tools, p50 in ms")
    print(f"{'stored':>10} {'tokens':>8} {'sent':>6} {'new process':>12} {'first':>7} {'later':>7}")
    tokens.warm()
    for count in STORED:
        path = folder / f"{count}.db"
        async with process(path) as filling:
            await fill(filling.store, count)
        cold, first, later = [], [], []
        run = 0
        for _ in range(repetitions):
            async with process(path) as worker:
                for number in range(TURNS):
                    run += 1
                    turn = await worker.begin(run)
                    for step in range(1, STEPS + 1):
                        began = time.perf_counter()
                        context, request = await worker.compose(turn, step)
                        took = (time.perf_counter() - began) * 1000
                        (later if step > 1 else first if number else cold).append(took)
                    await worker.finish(turn, run)
        medians = (statistics.median(one) for one in (cold, first, later))
        print(
            f"{count:>10,} {context.tokens:>8,} {len(request.messages):>6,}"
            " {:>12.1f} {:>7.1f} {:>7.1f}".format(*medians)
        )
