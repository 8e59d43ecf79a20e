"""W1, W2 and W3: turns beside the floor's, on one server and one endpoint."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from floor_workflow import ADD, QUEUE
from openai import AsyncOpenAI
from parts import HERE, TOOL, Cost, measure, model, process, spread
from temporalio.client import Client

from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.store import Inbound, SessionSettings
from everturn_workers import fetch
from everturn_workers.front import Front
from everturn_workers.home import prepare
from everturn_workers.runtime import Runtime, open_runtime
from everturn_workers.server import EmbeddedServer, start_server
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker, connect

TURNS = 30
MANY, AT_ONCE = 64, 16
WARM_UP = 8
LONG_TURNS = 100

Turn = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class Ground:
    """What all workloads stand on: one tuned server, one endpoint, one workspace."""

    server: EmbeddedServer
    url: str
    folder: Path
    client: Client

    def pids(self, worker: int) -> dict[str, int]:
        return {"worker": worker, "server": self.server.process.pid}


@asynccontextmanager
async def ground(folder: Path, delay_ms: float = 0) -> AsyncIterator[Ground]:
    """`delay_ms` passes before each reply of the endpoint."""
    home = prepare(folder / "server")
    server = await start_server(fetch.fetch(print), home)
    workspace = folder / "workspace"
    (workspace / "tools").mkdir(parents=True)
    (workspace / "tools" / "add.py").write_text(TOOL)
    (workspace / "everturn.toml").write_text('[model]\nname = "openai/gpt-5-mini"\n')
    try:
        async with model(folder, delay_ms) as url:
            yield Ground(server, url, folder, await Client.connect(server.address))
    finally:
        await server.stop()


@asynccontextmanager
async def floor(on: Ground) -> AsyncIterator[tuple[Turn, int]]:
    async with process(str(HERE / "floor_worker.py"), on.server.address, on.url) as (pid, _):

        async def turn(_: int, text: str = "add") -> None:
            messages = [{"role": "user", "content": text}]
            await on.client.execute_workflow(
                "FloorTurn", messages, id=f"floor-{uuid4()}", task_queue=QUEUE
            )

        yield turn, pid


@asynccontextmanager
async def plain(on: Ground) -> AsyncIterator[Turn]:
    """A loop with the openai client and nothing else: what the floor itself is held to."""
    async with AsyncOpenAI(base_url=on.url, api_key="none", max_retries=0) as client:

        async def turn(_: int) -> None:
            messages: list[dict[str, object]] = [{"role": "user", "content": "add"}]
            while True:
                completion = await client.chat.completions.create(
                    model="gpt-5-mini",
                    messages=messages,  # type: ignore[arg-type]
                    tools=[ADD],  # type: ignore[list-item]
                )
                reply = completion.choices[0].message
                messages.append(reply.model_dump(exclude_none=True))
                if not reply.tool_calls:
                    return
                for call in reply.tool_calls:
                    given = json.loads(call.function.arguments)
                    total = str(given["a"] + given["b"])
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": total})

        yield turn


@dataclass(frozen=True)
class Everturn:
    """A worker process of ours, and this process as the front that accepts messages."""

    pid: int
    runtime: Runtime
    front: Front
    workspace: Path
    environment: dict[str, str]
    settings: Settings

    async def session(self) -> SessionKey:
        key = SessionKey("default", uuid4().hex)
        folder = str(self.workspace)
        await self.runtime.store.create_session(key, SessionSettings(folder, folder))
        return key

    async def work(self, key: SessionKey, text: str) -> None:
        accepted = await self.front.accept(key, Inbound(uuid4().hex, "message", user_text(text)))
        epoch, seq = (int(part) for part in accepted.cursor.split("."))
        async for batch in self.runtime.events.watch(key, (epoch, seq)):
            for event in batch:
                if event.type == "turn_finished":
                    assert event.body["outcome"] == "completed", event.body
                    return

    async def turn(self, _: int) -> None:
        await self.work(await self.session(), "add")


@asynccontextmanager
async def everturn(
    on: Ground, placement: str, name: str = "", **variables: str
) -> AsyncIterator[Everturn]:
    """One of our workers; `name` tells it from others of that placement, on whose stores it is
    by `variables`."""
    name = name or placement
    home = on.folder / f"home-{name}"
    settings = Settings(
        home=home,
        temporal_address=on.server.address,
        task_queue=f"everturn-{name}",
        **{key.removeprefix("EVERTURN_").lower(): value for key, value in variables.items()},
    )
    environment = {
        **variables,
        "EVERTURN_HOME": str(home),
        "EVERTURN_TEMPORAL_ADDRESS": on.server.address,
        "EVERTURN_TASK_QUEUE": settings.task_queue,
        "EVERTURN_PLACEMENT": placement,
        # The endpoint is our own and takes any number of calls.
        "EVERTURN_PROVIDER_LIMITS": '{"*": {"careful": false}}',
        "OPENAI_BASE_URL": on.url,
        "OPENAI_API_KEY": "none",
    }
    command = ("-m", "everturn_workers.cli", "worker")
    async with process(*command, **environment) as (pid, _), open_runtime(settings) as runtime:
        waker = TemporalWaker(await connect(settings), settings)
        front = Front(runtime.store, waker)
        yield Everturn(pid, runtime, front, on.folder / "workspace", environment, settings)


async def w1(folder: Path, repetitions: int) -> None:
    """One turn of 5 rounds of 2 calls of `add`, and an answer: ms a turn, one after another."""
    async with ground(folder) as on:
        costs = await _beside(on, repetitions, TURNS, 1)
    _table("W1  ms a turn (lower is better)", costs, lambda cost: cost.median_ms)


async def w2(folder: Path, repetitions: int) -> None:
    """64 such turns, 16 at once: turns a second."""
    async with ground(folder) as on:
        costs = await _beside(on, repetitions, MANY, AT_ONCE)
    _table("W2  turns a second (higher is better)", costs, lambda cost: cost.turns_per_second)


async def _beside(on: Ground, repetitions: int, count: int, at_once: int) -> dict[str, list[Cost]]:
    """Every contender in turn, `repetitions` times, so that a slow minute meets them all."""
    costs: dict[str, list[Cost]] = {}
    async with (
        plain(on) as loop,
        floor(on) as (floor_turn, floor_pid),
        everturn(on, "auto") as auto,
        everturn(on, "inline") as inline,
        everturn(on, "queued") as queued,
    ):
        contenders: dict[str, tuple[Turn, dict[str, int]]] = {
            "plain loop": (loop, {}),
            "floor": (floor_turn, on.pids(floor_pid)),
            "everturn": (auto.turn, on.pids(auto.pid)),
            "everturn, inline": (inline.turn, on.pids(inline.pid)),
            "everturn, queued": (queued.turn, on.pids(queued.pid)),
        }
        for turn, _ in contenders.values():
            await measure(turn, WARM_UP, min(at_once, WARM_UP), {})
        for _ in range(repetitions):
            for name, (turn, pids) in contenders.items():
                costs.setdefault(name, []).append(await measure(turn, count, at_once, pids))
    return costs


def _table(title: str, costs: dict[str, list[Cost]], figure: Callable[[Cost], float]) -> None:
    floors = [figure(cost) for cost in costs["floor"]]
    print(f"\n{title}\n{'':18} {'min / median / max':>24} {'x floor':>22}   CPU ms a turn")
    for name, runs in costs.items():
        values = [figure(cost) for cost in runs]
        ratios = [value / under for value, under in zip(values, floors, strict=True)]
        cpu = sorted(runs, key=figure)[len(runs) // 2].cpu_ms()
        print(f"{name:18} {spread(values):>24} {spread(ratios, 2):>22}   {cpu}")


async def w3(folder: Path, repetitions: int) -> None:
    """100 turns in one session: a turn's time and history bytes, first against last."""
    print("\nW3  100 turns in one session, ms a turn and bytes of Temporal history a turn")
    async with ground(folder) as on, everturn(on, "auto") as ours:
        for _ in range(WARM_UP):
            await ours.work(await ours.session(), "long")
        for _ in range(repetitions):
            key = await ours.session()
            seconds, sizes = [], []
            for number in range(LONG_TURNS):
                began = time.perf_counter()
                await ours.work(key, f"long {number}")
                seconds.append(time.perf_counter() - began)
                # The result is there when the run has closed, and so its history is whole.
                handle = on.client.get_workflow_handle(key.workflow_id)
                await handle.result()
                history = await handle.fetch_history()
                sizes.append(sum(event.ByteSize() for event in history.events))
            first, last = sorted(seconds[:10])[5] * 1000, sorted(seconds[-10:])[5] * 1000
            print(
                f"turns 1-10 {first:.1f} ms, 91-100 {last:.1f} ms, ratio {last / first:.2f};"
                f" history {sizes[0]} to {sizes[-1]} bytes"
            )
