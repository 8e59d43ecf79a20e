"""A whole system of real processes: Temporal, a worker, the API and a scripted model."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from evidence import Evidence
from preloaded import Forked, Preloaded
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient

from everturn.client import Client
from everturn.events import Event
from everturn.session import SessionKey
from everturn_workers import processes
from everturn_workers.home import prepare, socket_dir
from everturn_workers.server import EmbeddedServer, database, start_server
from everturn_workers.up_record import RunningUp, running

T = TypeVar("T")
SECONDS = 40.0
TOOLS = Path(__file__).with_name("gated_tools.py")
CLI = "everturn_workers.cli"


LONG = (("charge", "slow", "add"), ("add",), ())
SHORT = (("charge", "add"), ())


@dataclass(frozen=True)
class Plan:
    """A turn: the tools that each of its replies calls.

    `held` are the steps whose stream waits midway for `<session>.<step>`; `gated` are the
    places in tools that wait for `<session>.<place>`: `charge` before its effect, `charged`
    after it, `slow` in the middle.
    """

    held: frozenset[int] = frozenset()
    gated: frozenset[str] = frozenset()
    token_ms: float = 20
    steps: tuple[tuple[str, ...], ...] = LONG
    command: str = ""

    def replies(self, session: str) -> list[dict[str, Any]]:
        """The script of the turn."""

        def gate(place: str) -> str:
            return f"{session}.{place}" if place in self.gated else ""

        arguments: dict[str, dict[str, Any]] = {
            "charge": {"before": gate("charge"), "after": gate("charged")},
            "slow": {"gate": gate("slow")},
            "stubborn": {"gate": gate("stubborn")},
            "add": {"a": 1, "b": 2},
            "run_command": {"command": self.command},
            "fatal": {},
            "interrupt": {},
            "ask_user": {"question": "Which colour?"},
        }
        replies = []
        for step, names in enumerate(self.steps, start=1):
            calls = [{"name": name, "arguments": arguments[name]} for name in names]
            text = f"For {session} I call {' and '.join(names)} in step {step}."
            reply = {"text": text if calls else final_text(session), "calls": calls}
            hold = {"hold": f"{session}.{step}"} if step in self.held else {}
            replies.append({**reply, **hold, "token_ms": self.token_ms})
        return replies


def final_text(session: str) -> str:
    return f"All that {session} asked for is done and charged once."


def prompt(session: str) -> str:
    return f"Do it for {session}, please."


class Program:
    """A process that prints a line `ready ...` (or `listening ...`) once it is."""

    def __init__(
        self,
        name: str,
        module: Sequence[str],
        environment: dict[str, str],
        home: Path,
        preloaded: Preloaded,
    ) -> None:
        self.name = name
        self.module = module
        self.environment = environment
        self.log = processes.Log(home / "logs" / f"{name}.log")
        self.process: Forked | None = None
        self._preloaded = preloaded

    async def launch(self) -> None:
        self.log.open().close()
        self.process = process = self._preloaded.spawn(self.module, self.environment, self.log.path)
        await until(lambda: process.started)

    async def ready(self) -> str:
        """What stands behind `ready`."""

        def said() -> str | None:
            assert self.running, self.log.tail(5000)
            for line in self.log.lines():
                first, _, rest = line.partition(" ")
                if first in ("ready", "listening"):
                    return rest.strip() or first
            return None

        return await until(said)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self, seconds: float = 15) -> int:
        """The exit code."""
        await until(lambda: not self.running, seconds)
        assert self.process is not None
        assert self.process.returncode is not None
        return self.process.returncode

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()

    async def stop(self, seconds: float = 15) -> int:
        """The exit code after SIGTERM."""
        self.signal(signal.SIGTERM)
        return await self.ended(seconds)


class Watched:
    """A session with one message sent, watched over HTTP for as long as its turn takes."""

    def __init__(self, name: str, watching: "asyncio.Task[None]", events: list[Event]) -> None:
        self.name = name
        self.events = events
        self._watching = watching

    async def saw(self, kind: str, step: int = 0, seconds: float = SECONDS, **body: Any) -> Event:
        """The first event of that kind, once it is seen."""

        def found() -> Event | None:
            for event in self.events:
                fits = event.type == kind and step in (0, event.step)
                if fits and all(event.body.get(name) == value for name, value in body.items()):
                    return event
            return None

        return await until(found, seconds)

    async def finished(self) -> list[Event]:
        """All events, once the turn has ended."""
        async with asyncio.timeout(SECONDS):
            await self._watching
        return self.events

    async def leave(self) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching


@dataclass
class System:
    """One home and its processes; each can be killed and started again by its name."""

    folder: Path
    binary: Path
    preloaded: Preloaded
    plans: dict[str, Plan]
    placement: str
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = prepare(self.folder / "home")
        self.workspace = self.folder / "workspace"
        self.gates = self.workspace / "gates"
        self.effects_log = self.workspace / "effects.log"
        self.model_log = self.folder / "model.log"
        (self.workspace / "tools").mkdir(parents=True)
        self.gates.mkdir()
        (self.workspace / "everturn.toml").write_text("")
        shutil.copy(TOOLS, self.workspace / "tools" / "gated.py")
        script = self.folder / "script.json"
        chosen = {f"for {name},": plan.replies(name) for name, plan in self.plans.items()}
        script.write_text(json.dumps({"by_last_user": chosen}))
        flags = ("--script", str(script), "--log", str(self.model_log))
        self.programs: list[Program] = []
        self.model = self.program("model", ("everturn_workers.scripted_model", *flags))
        self.worker = self.program("worker", (CLI, "worker"))
        self.api = self.program("api", (CLI, "api"))
        self.up = self.program("up", (CLI, "up"))
        self.temporal: EmbeddedServer | None = None
        self.client = Client("http://127.0.0.1:1")
        self.watched: list[Watched] = []

    def program(
        self, name: str, module: Sequence[str], environment: dict[str, str] | None = None
    ) -> Program:
        """A process of this system, ended with it."""
        if environment is None:
            environment = {
                **os.environ,
                "EVERTURN_HOME": str(self.home),
                "EVERTURN_PORT": "0",
                "EVERTURN_WORKSPACE": str(self.workspace),
                "EVERTURN_MODEL": "openai/gpt-5-mini",
                "EVERTURN_PLACEMENT": self.placement,
                "OPENAI_API_KEY": "x",
                **self.variables,
            }
        program = Program(name, module, environment, self.home, self.preloaded)
        self.programs.append(program)
        return program

    async def start(self, parts: Sequence[str] = ("model", "worker", "api")) -> None:
        """Start the Temporal server and `parts`; the processes come up side by side."""
        await self.model.launch()
        if "up" not in parts:
            self.temporal = await start_server(self.binary, self.home)
        self.model_url = base_url = await self.model.ready()
        for program in (self.worker, self.api):
            if self.temporal is not None:
                program.environment["EVERTURN_TEMPORAL_ADDRESS"] = self.temporal.address
            program.environment["OPENAI_BASE_URL"] = base_url
            if program.name in parts:
                await program.launch()
        self.control = httpx.AsyncClient(base_url=base_url.removesuffix("/v1"), trust_env=False)
        if "api" in parts:
            url = await self.api.ready()
            self.api.environment["EVERTURN_PORT"] = url.rpartition(":")[2]
            self.client = Client(url)
        if "worker" in parts:
            await self.worker.ready()
        if "up" in parts:
            await self.start_up()

    async def start_up(self) -> RunningUp:
        """Run all but the model under one `everturn up`, which starts what is killed."""
        self.up.environment["OPENAI_BASE_URL"] = self.model_url
        await self.up.launch()

        def found() -> RunningUp | None:
            assert self.up.running, self.up.log.tail(5000)
            up = running(self.home)
            return up if up and up.pid == self.up.pid and up.api_url else None

        up = await until(found)
        assert up.api_url is not None
        self.up.environment["EVERTURN_PORT"] = up.api_url.rpartition(":")[2]
        self.client = Client(up.api_url)
        return up

    async def another_worker(self) -> Program:
        """One more worker on the same home."""
        program = self.program("worker-2", self.worker.module, self.worker.environment)
        await program.launch()
        await program.ready()
        return program

    async def kill(self, name: str) -> None:
        if name == "temporal":
            assert self.temporal is not None
            self.temporal.process.kill()
            await self.temporal.process.wait()
        else:
            await self._named(name).kill()

    async def restart(self, name: str) -> None:
        if name == "temporal":
            self.temporal = await start_server(self.binary, self.home)
        else:
            await self._named(name).launch()
            await self._named(name).ready()

    async def lose_temporal(self) -> None:
        """Kill the Temporal server and delete all that it knows."""
        await self.kill("temporal")
        for path in self.home.glob(f"{database(self.home).name}*"):
            path.unlink()

    def _named(self, name: str) -> Program:
        return {"worker": self.worker, "api": self.api}[name]

    async def send(self, name: str) -> Watched:
        """Create the session of that name, send its message and watch its turn."""
        await self.client.create_session(name, workspace=str(self.workspace))
        await self.client.send(name, prompt(name), id=f"to-{name}")
        return self.watch(name)

    def watch(self, name: str) -> Watched:
        seen: list[Event] = []

        async def watching() -> None:
            async for event in self.client.events(name, until_turn=1):
                seen.append(event)

        watched = Watched(name, asyncio.create_task(watching()), seen)
        self.watched.append(watched)
        return watched

    async def held(self, *names: str) -> None:
        """Wait until the model holds these streams in their middle."""

        async def look() -> bool:
            held = (await self.control.get("/control/held")).json()["held"]
            return set(names) <= set(held)

        await until_async(look)

    async def release(self, *names: str) -> None:
        """Let streams and tools pass that wait, or will wait, at these places."""
        for name in names:
            await self.control.post("/control/release", json={"name": name})
            (self.gates / name).touch()

    async def waits_in_tool(self, *gates: str) -> None:
        """Wait until tools stand at these gates."""
        await until(lambda: set(gates) <= {line["gate"] for line in self.effects() if line["gate"]})

    def effects(self) -> list[dict[str, Any]]:
        return _lines(self.effects_log)

    def model_calls(self) -> list[dict[str, Any]]:
        return _lines(self.model_log)

    async def history(self, name: str) -> list[HistoryEvent]:
        """What Temporal has recorded of the newest run of the session's turn."""
        assert self.temporal is not None
        temporal = await TemporalClient.connect(self.temporal.address)
        key = SessionKey("default", name)
        history = await temporal.get_workflow_handle(key.workflow_id).fetch_history()
        return list(history.events)

    async def evidence(self, turn: Watched) -> Evidence:
        """All that is known of a turn, once it has ended."""
        watched = await turn.finished()
        events = [event async for event in self.client.events(turn.name, until_turn=1)]
        page = await self.client.messages(turn.name)
        return Evidence(
            session=turn.name,
            prompt=prompt(turn.name),
            final=final_text(turn.name),
            steps=self.plans[turn.name].steps,
            events=events,
            watched=watched,
            messages=[(view.step, view.message) for view in page.messages],
            model=self.model_calls(),
            effects=self.effects(),
        )

    async def end(self) -> None:
        """End what still runs, in good order, and look for what should not."""
        for watched in self.watched:
            await watched.leave()
        await self.client.close()
        if hasattr(self, "control"):
            await self.control.aclose()
        running = [program for program in self.programs if program.running]
        for program in running:
            # What a test has stopped must hear what follows.
            program.signal(signal.SIGCONT)
        codes = await asyncio.gather(*(program.stop(30) for program in running))
        # The model's server ends with the signal that ended it.
        ours = {p.name: p.log.tail(2000) for p, code in zip(running, codes, strict=True) if code}
        ours.pop("model", None)
        if self.temporal is not None:
            await self.temporal.stop()
        left = processes_of(self.folder)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for home in (self.home, *self.folder.glob("homes/*")):
            shutil.rmtree(sockets(home), ignore_errors=True)
        assert not ours, ours
        assert not left, left

    def socket_owners(self) -> set[int]:
        """Whose sockets stand in the folder of wake-ups."""
        return {int(entry.name.partition("-")[0]) for entry in sockets(self.home).iterdir()}


def sockets(home: Path) -> Path:
    return socket_dir(f"sqlite:///{home / 'everturn.db'}")


def processes_of(folder: Path) -> dict[int, str]:
    """Living processes whose command or environment names `folder`, by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if str(folder).encode() in command + (entry / "environ").read_bytes():
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode()[:200]
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


async def until(found: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """What `found` returns once that is something."""

    async def look() -> T | None:
        return found()

    return await until_async(look, seconds)


async def until_async(look: Callable[[], Awaitable[T | None]], seconds: float = SECONDS) -> T:
    async with asyncio.timeout(seconds):
        while not (result := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return result


StartSystem = Callable[..., Awaitable[System]]
"""The fixture `start_system`."""
