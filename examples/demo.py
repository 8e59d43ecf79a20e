"""A turn that loses its worker in the middle of a tool call, on the real files of examples/demo.

Everything is real but the model, which is a script served over HTTP as OpenAI serves its
own: a Temporal server, a worker and the API, in a temporary home. No API key is needed.
Exits with 1 where anything was repeated.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everturn.client import Client
from everturn.errors import EverturnError, RuntimeUnavailable
from everturn.events import Event
from everturn.reading import TurnResult
from everturn_workers import fetch, processes
from everturn_workers.settings import Settings
from everturn_workers.supervisor import Up
from everturn_workers.up_record import running

WORKSPACE = Path(__file__).with_name("demo")
TASK = "Orders failed this morning. Do what the notes of the incident ask for, then tell me."
EFFECTFUL = ("slow_report", "call_owner")
"""Tools that are under way when the worker is killed."""
LABEL = 11
WIDTH_MAX = 100
PATIENCE_SECONDS = 60.0


class Screen:
    """Lines of a label and a text; a model's text comes in pieces and is wrapped as it comes."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._width = min(self._console.width, WIDTH_MAX)
        self._column = 0
        self._word = ""

    def line(self, label: str, text: str, style: str = "") -> None:
        self.end_text()
        self._label(label)
        self._write(f"{text} ", style)
        self.end_text()

    def piece(self, label: str, text: str) -> None:
        """Go on with a text, or begin one under `label`."""
        if not self._column:
            self._label(label)
        self._write(text)
        self._console.file.flush()

    def end_text(self) -> None:
        if self._word:
            self._write(" ")
        if self._column:
            self._console.print()
        self._column = 0

    def blank(self) -> None:
        self.end_text()
        self._console.print()

    def table(self, table: Table) -> None:
        self.end_text()
        self._console.print(table, soft_wrap=False)

    def _label(self, label: str) -> None:
        self._console.print(Text(f"{label:<{LABEL}}", "bold"), end="")
        self._column = LABEL

    def _write(self, text: str, style: str = "") -> None:
        """Print whole words; the last one waits for what follows it."""
        *words, self._word = (self._word + text).split(" ")
        for word in filter(None, words):
            if self._column + 1 + len(word) > self._width and self._column > LABEL:
                self._console.print("\n" + " " * LABEL, end="")
                self._column = LABEL
            self._console.print(Text(f" {word}", style), end="")
            self._column += 1 + len(word)


@dataclass
class Tally:
    """What was done how often, as the model endpoint, the outside world and the events tell."""

    replies: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    begun: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, requests: list[str], effects: list[str], events: list[Event]) -> "Tally":
        """From the endpoint's log, the lines of effects.log and what watchers were told."""
        told = [json.loads(line) for line in requests]
        return cls(
            Counter(line["key"] for line in told if line["event"] == "completed"),
            Counter(" ".join(line.split(" ", 2)[:2]) for line in effects),
            Counter(event.body["name"] for event in events if _again(event)),
        )

    @property
    def replies_repeated(self) -> int:
        return self.replies.total() - len(self.replies)

    @property
    def effects_repeated(self) -> int:
        return self.effects.total() - len(self.effects)


@dataclass
class Kill:
    """The killing of the worker, and when its parts happened, in seconds since 1970."""

    pid: int = 0
    at: float = 0.0
    back_at: float = 0.0
    again_at: float = 0.0


class Demo:
    """One run in `folder`, which goes afterwards."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        self._screen = screen
        self._home = folder / "home"
        self._workspace = folder / "shop"
        self._requests = folder / "requests.jsonl"
        self._log = folder / "model.log"
        self._kill = Kill()
        self._back = asyncio.Event()
        self._events: list[Event] = []
        self._asked: dict[str, str] = {}

    async def run(self) -> bool:
        """Whether the turn finished with nothing repeated."""
        began = time.monotonic()
        shutil.copytree(WORKSPACE, self._workspace, ignore=shutil.ignore_patterns("__pycache__"))
        async with self._model() as model_url:
            os.environ["OPENAI_BASE_URL"] = model_url
            settings = Settings(home=self._home, port=0)
            async with Up(settings, self._hear):
                up = running(self._home)
                assert up is not None
                assert up.api_url is not None
                self._screen.line(
                    "started",
                    f"Temporal, worker {up.children['worker']}, API {up.api_url}"
                    f" in {time.monotonic() - began:.1f} s",
                )
                self._screen.line("model", f"a script, at {model_url} like any provider")
                self._screen.blank()
                async with Client(up.api_url) as client:
                    result = await self._turn(client)
                return self._report(result)

    async def _turn(self, client: Client) -> TurnResult:
        await client.create_session("demo", workspace=str(self._workspace))
        self._screen.line("session", "demo")
        self._screen.line("you", TASK)
        await client.send("demo", TASK)
        killing = None
        async with aclosing(client.events("demo", until_turn=1)) as events:
            async for event in events:
                self._events.append(event)
                self._show(event)
                if killing is None and self._under_way():
                    killing = asyncio.create_task(self._kill_worker())
                if killing is not None and killing.done():
                    killing.result()
        if killing is not None:
            await killing
        return TurnResult.from_event(self._events[-1])

    def _under_way(self) -> bool:
        """Whether the tools that reach the outside have begun, and have reached it."""
        begun = {e.body["name"] for e in self._events if e.type == "tool_started"}
        return begun.issuperset(EFFECTFUL)

    async def _kill_worker(self) -> None:
        effects = self._workspace / "effects.log"
        while len(_lines(effects)) < len(EFFECTFUL):  # noqa: ASYNC110 - another process writes.
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # For the eye: both run.
        up = running(self._home)
        assert up is not None
        self._kill.pid = up.children["worker"]
        os.kill(self._kill.pid, signal.SIGKILL)
        self._kill.at = time.time()
        names = " and ".join(EFFECTFUL)
        self._screen.line("kill -9", f"worker {self._kill.pid}, in the middle of {names}", "red")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._back.wait()

    def _hear(self, line: str) -> None:
        """A line of `up`: what it starts is told when all stands, a failure at once."""
        if line == "The worker is back.":
            self._kill.back_at = time.time()
            up = running(self._home)
            pid = up.children["worker"] if up is not None else 0
            took = self._kill.back_at - self._kill.at
            self._screen.line("worker", f"{pid} is back after {took:.1f} s", "green")
            self._back.set()
        elif not line.startswith(("Temporal server ready", "Worker ready", "API ready")):
            self._screen.line("up", line)

    def _show(self, event: Event) -> None:
        body, name = event.body, event.body.get("name", "")
        match event.type:
            case "text_delta":
                self._screen.piece("model", body["text"])
            case "step_finished":
                self._screen.end_text()
            case "status":
                self._screen.line("status", body["text"], "yellow")
            case "tool_started" if _again(event):
                self._kill.again_at = event.time
                told = f"{name}, attempt {event.attempt}, with the same idempotency key"
                self._screen.line("again", told, "yellow")
            case "tool_started":
                self._asked[body["call_id"]] = told = f"{name} {_values(body['arguments'])}"
                if name in EFFECTFUL:
                    self._screen.line("running", told, "cyan")
            case "tool_finished" if name == "call_owner" and self._kill.at and not body["failed"]:
                told = f"{name}, never started twice: its verify function knew the outcome"
                self._screen.line("done", told, "green")
            case "tool_finished":
                told = f"{self._asked[body['call_id']]} -> {body['text']}"
                self._screen.line("failed" if body["failed"] else "done", _short(told), "green")

    def _report(self, result: TurnResult) -> bool:
        effects = _lines(self._workspace / "effects.log")
        tally = Tally.of(_lines(self._requests), effects, self._events)
        screen, kill = self._screen, self._kill
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        table.add_column("")
        table.add_column("made", justify="right")
        table.add_column("repeated", justify="right")
        for name, made, repeated in (
            ("model calls answered, at the endpoint", len(tally.replies), tally.replies_repeated),
            ("tool effects, in effects.log", len(tally.effects), tally.effects_repeated),
        ):
            style = "bold red" if repeated else "bold green"
            table.add_row(name, str(made), Text(str(repeated), style))
        screen.table(table)
        usage, first = result.usage, self._events[0]
        cost = "unknown" if result.cost_usd is None else f"${result.cost_usd:.6f}"
        tokens = f"{usage.input_tokens} in, {usage.output_tokens} out"
        screen.line("tokens", f"{tokens}; cost {cost} at the prices of gpt-5-mini")
        screen.line("turn", f"{result.outcome} in {self._events[-1].time - first.time:.1f} s")
        screen.line(
            "recovery",
            f"a worker is back {kill.back_at - kill.at:.1f} s after the kill,"
            f" slow_report begins again after {kill.again_at - kill.at:.1f} s",
        )
        moved = "port = 9090" in (self._workspace / "config.toml").read_text()
        screen.line("file", f"config.toml: port 8080 is {'now 9090' if moved else 'unchanged'}")
        screen.blank()
        complaints = list(_complaints(result, tally, kill, moved))
        for complaint in complaints:
            screen.line("wrong", complaint, "bold red")
        if not complaints:
            screen.line("result", "the turn finished, and nothing was done twice", "bold green")
        return not complaints

    @asynccontextmanager
    async def _model(self) -> AsyncIterator[str]:
        """The scripted model as a process; yields the base URL of its endpoint."""
        command = [sys.executable, "-m", "everturn_workers.scripted_model", "--port", "0"]
        command += ["--script", str(self._workspace / "script.json"), "--log", str(self._requests)]
        log = processes.Log(self._log)
        with log.open() as output:
            process = await processes.spawn(command, environment=os.environ, log=output)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (lines := log.lines()):
                    if process.returncode is not None:
                        raise RuntimeUnavailable("The scripted model did not start.")
                    await asyncio.sleep(0.02)
            if not lines[0].startswith("listening "):
                raise RuntimeUnavailable(f"The scripted model did not start: {log.tail()}")
            yield lines[0].split()[1]
        finally:
            await processes.end(process, seconds=2)


def _complaints(result: TurnResult, tally: Tally, kill: Kill, moved: bool) -> Iterator[str]:
    """What went otherwise than promised."""
    if result.outcome != "completed":
        yield f"the turn ended as {result.outcome}: {result.reason}"
    if not kill.back_at:
        yield "no worker was killed and came back"
    if tally.replies_repeated:
        yield f"{tally.replies_repeated} model calls were paid for twice"
    if tally.effects_repeated:
        yield f"{tally.effects_repeated} tool effects happened twice"
    if len(tally.effects) != len(EFFECTFUL) or not moved:
        yield "a tool's effect is missing"
    if tally.begun != Counter({"slow_report": 1}):
        yield f"other tools began again than slow_report alone: {dict(tally.begun)}"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _again(event: Event) -> bool:
    return event.type == "tool_started" and event.attempt > 1


def _values(arguments: str) -> str:
    return ", ".join(str(value) for value in json.loads(arguments).values())


def _short(text: str, characters: int = 68) -> str:
    text = " ".join(text.split())
    return text if len(text) <= characters else f"{text[: characters - 3]}..."


def _prepare_environment() -> None:
    """Settings and keys of the machine have no part in this; local calls need no proxy."""
    for name in list(os.environ):
        if name.startswith("EVERTURN_") and name != "EVERTURN_TEMPORAL_BINARY":
            del os.environ[name]
    os.environ["OPENAI_API_KEY"] = "the-script-asks-for-none"
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"


async def _run(screen: Screen) -> bool:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    folder = Path(tempfile.mkdtemp(prefix="everturn-demo-"))
    try:
        return await Demo(folder, screen).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    screen = Screen()
    screen.line("demo", "one turn on the files of examples/demo; its worker is killed midway")
    try:
        _prepare_environment()
        with contextlib.suppress(asyncio.CancelledError):
            fetch.fetch(lambda line: screen.line("fetch", line))
            return 0 if asyncio.run(_run(screen)) else 1
    except KeyboardInterrupt:
        pass
    except EverturnError as error:
        screen.line("wrong", str(error), "bold red")
        return 1
    screen.line("ended", "before its end; no process is left")
    return 130


if __name__ == "__main__":
    sys.exit(main())
