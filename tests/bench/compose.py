"""W6: composing a context of 200k tokens, of a session with 2,500 and with 100,000 messages."""

import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everturn.agents import Agent, AgentSpec, Compaction, ToolSpec
from everturn.context.compose import Context, compose
from everturn.messages import AssistantMessage, Text, user_text
from everturn.profile import History, Layer, Profile, Recipe
from everturn.session import BeginTurn, ContextHead, FinishTurn, PrepareStep, SessionKey, TurnHead
from everturn.skills import SkillRoot, SkillRules
from everturn_activities import tokens
from everturn_activities.frames import Frames
from everturn_activities.gathering import Gatherer
from everturn_activities.skills.shelf import Skills
from everturn_activities.sources.plain import PLAIN
from everturn_activities.sources.skills import SkillSources
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


def write_skills(workspace: Path) -> None:
    for number in range(SKILLS):
        folder = workspace / "skills" / f"skill-{number}"
        folder.mkdir(parents=True)
        head = f"---\nname: skill-{number}\ndescription: {SENTENCE}\n---\n"
        (folder / "SKILL.md").write_text(head + SENTENCE * 50)


def spec(workspace: Path) -> AgentSpec:
    hint = "{name}: {description} (file: {path})"
    profile = Profile(
        name="bench",
        history=History(load="tail_tokens"),
        skills=SkillRules(roots=(SkillRoot(path="skills"),)),
        recipe=Recipe(
            layers=(
                Layer(id="prompt", source="agent_prompt"),
                Layer(id="skills", source="skills", item=hint, scope="step"),
                Layer(id="now", source="facts", item="{name}: {value}", scope="step"),
            )
        ),
    )
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    listed = tuple(
        ToolSpec(name=name, description=SENTENCE * 2, parameters=dict(parameters))
        for name in ("read_file", *(f"tool_{n}" for n in range(1, TOOLS)))
    )
    agent = Agent(
        model=MODEL,
        prompt=SENTENCE * 20,
        window_tokens=TOKENS,
        compaction=Compaction(enabled=False),
    )
    where = str(workspace)
    return AgentSpec(agent=agent, profile=profile, tools=listed, workspace=where, working_dir=where)


class Process:
    """What a worker composes with, on a store."""

    def __init__(self, path: Path, workspace: Path) -> None:
        self.store = SqlStore(
            SqliteDatabase(path, lambda keys: None),
            lambda message: tokens.count_message(message, MODEL),
        )
        skills = SkillSources(Skills(path.parent / "home"), self.store.invocations)
        sources = {**PLAIN, **skills.named()}
        self.gatherer = Gatherer(self.store, sources, tokens.count_text)
        self.frames = Frames(tokens.count_text, lambda model: None, lambda model: True)
        self.spec = spec(workspace)

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
async def process(path: Path, workspace: Path) -> AsyncIterator[Process]:
    made = Process(path, workspace)
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


def plain_loop() -> float:
    """Milliseconds of a million additions: how fast the machine is just now."""
    began = time.perf_counter()
    total = 0
    for number in range(1_000_000):
        total += number
    return (time.perf_counter() - began) * 1000


async def w6(folder: Path, repetitions: int) -> None:
    print(f"\nW6: composing {TOKENS:,} tokens with {SKILLS} skills and {TOOLS} tools, p50 in ms")
    print(
        f"{'stored':>10} {'tokens':>8} {'sent':>6} {'new process':>12} {'first':>7} {'later':>7}"
        f" {'loop':>7}"
    )
    tokens.warm()
    workspace = folder / "workspace"
    write_skills(workspace)
    for count in STORED:
        path = folder / f"{count}.db"
        async with process(path, workspace) as filling:
            await fill(filling.store, count)
        cold, first, later, loops = [], [], [], []
        run = 0
        for _ in range(repetitions):
            async with process(path, workspace) as worker:
                for number in range(TURNS):
                    run += 1
                    turn = await worker.begin(run)
                    for step in range(1, STEPS + 1):
                        began = time.perf_counter()
                        context, request = await worker.compose(turn, step)
                        took = (time.perf_counter() - began) * 1000
                        (later if step > 1 else first if number else cold).append(took)
                    await worker.finish(turn, run)
                    loops.append(plain_loop())
        medians = (statistics.median(one) for one in (cold, first, later, loops))
        print(
            f"{count:>10,} {context.tokens:>8,} {len(request.messages):>6,}"
            " {:>12.1f} {:>7.1f} {:>7.1f} {:>7.1f}".format(*medians)
        )
