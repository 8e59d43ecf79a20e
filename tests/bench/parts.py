"""The processes of a benchmark, and what they cost: wall clock and CPU of each."""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 5
TOOL = '''
import asyncio
import time

from everturn import tool


@tool(effect="pure", quick=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="idempotent")
async def slow(began: str) -> str:
    """Take 5 s; append the time at which it begins to the file `began`."""
    with open(began, "a") as log:
        log.write(f"{time.time()}\\n")
    await asyncio.sleep(5)
    return "done"


def _told(log: str, began: float) -> str:
    with open(log, "a") as file:
        file.write(f"{began} {time.time()}\\n")
    return "done"


@tool(effect="idempotent")
async def nap(log: str) -> str:
    """Take 100 ms; append when it began and ended to the file `log`."""
    began = time.time()
    await asyncio.sleep(0.1)
    return _told(log, began)


@tool(effect="idempotent")
def doze(log: str) -> str:
    """The same as a plain function, which runs in a thread."""
    began = time.time()
    time.sleep(0.1)
    return _told(log, began)
'''
ADDS = {"calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}] * 2}
FAN = 50
MANY_CALLS = 51
FINAL = " ".join(["word"] * 12)
LONG = " ".join(["lorem"] * 170)


def _fan(name: str) -> list[dict[str, object]]:
    asked = {"calls": [{"name": name, "arguments": {"log": "BEGAN"}}] * FAN}
    return [asked, {"text": FINAL}]


def _sum(n: int) -> list[dict[str, object]]:
    return [{"name": "add", "arguments": {"a": n, "b": 1}}]


def _adds(count: int) -> list[dict[str, object]]:
    asked = [{"name": "add", "arguments": {"a": n, "b": 1}} for n in range(count)]
    return [{"calls": asked}, {"text": FINAL}]


SCRIPT = {
    "replies": [ADDS] * ROUNDS + [{"text": FINAL}],
    # W3: one round of two tools and 1 KB of text a turn.
    "by_last_user": {
        "^long": [ADDS, {"text": LONG}],
        # W5: the file comes with the message, and the script cannot quote it.
        "^slow": [{"calls": [{"name": "slow", "arguments": {"began": "BEGAN"}}]}, {"text": FINAL}],
        # W7: many calls at once; W8: one call, and many more of them.
        "^nap": _fan("nap"),
        "^doze": _fan("doze"),
        "^one": _adds(1),
        "^many": _adds(MANY_CALLS),
        # W4: an item of a swarm; W9: one of 20 steps, for each of which the model takes a second.
        "^item": [{"text": FINAL}],
        "^steady": [
            # Each asks for another sum: who asks for the same again and again is slowed down.
            *({"calls": _sum(n), "text": "A step.", "token_ms": 500} for n in range(1, 20)),
            {"text": "The end.", "token_ms": 500},
        ],
    },
}


@asynccontextmanager
async def process(*command: str, **environment: str) -> AsyncIterator[tuple[int, str]]:
    """A Python process that prints a line when it is ready: its pid and that line."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdout=asyncio.subprocess.PIPE,
        # Without its bytecode a workflow module is compiled anew for each run.
        env={
            **os.environ,
            **environment,
            "PYTHONDONTWRITEBYTECODE": "",
            "EVERTURN_LOG_LEVEL": "warning",
        },
    )
    assert child.stdout is not None
    try:
        line = (await child.stdout.readline()).decode().strip()
        if not line:
            raise SystemExit(f"{' '.join(command)} did not start.")
        yield child.pid, line
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


@asynccontextmanager
async def model(folder: Path, delay_ms: float = 0) -> AsyncIterator[str]:
    """The scripted endpoint; yields its base URL."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT).replace("BEGAN", str(folder / "began.log")))
    command = ("-m", "everturn_workers.scripted_model", "--script", str(script), "--port", "0")
    async with process(*command, "--delay-ms", str(delay_ms)) as (_, line):
        yield line.split()[-1]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; of others than us with their children:
    PostgreSQL's work is done by those."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if pid == os.getpid():
        return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")
    # The last two are those of children that have ended.
    ticks = sum(int(field) for field in fields[11:15])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    living = 0.0
    for child in children:
        with suppress(FileNotFoundError):
            living += cpu_seconds(int(child))
    return ticks / os.sysconf("SC_CLK_TCK") + living


def memory_bytes(pid: int) -> int:
    """What a process has in memory just now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """Of one measured run: `seconds` of each turn, of the whole, and CPU by process."""

    turns: list[float]
    seconds: float
    cpu: dict[str, float]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.turns) * 1000

    @property
    def turns_per_second(self) -> float:
        return len(self.turns) / self.seconds

    def cpu_ms(self) -> str:
        return " + ".join(
            f"{name} {seconds / len(self.turns) * 1000:.0f}" for name, seconds in self.cpu.items()
        )


async def measure(
    turn: Callable[[int], Awaitable[None]], count: int, at_once: int, pids: dict[str, int]
) -> Cost:
    """Run `turn` `count` times, `at_once` at a time."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    numbers = iter(range(count))
    seconds: list[float] = []

    async def lane() -> None:
        for number in numbers:
            began = time.perf_counter()
            await turn(number)
            seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(at_once)))
    whole = time.perf_counter() - began
    cpu = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    return Cost(seconds, whole, cpu)


def spread(values: Iterable[float], digits: int = 1) -> str:
    """`min / median / max`."""
    ordered = sorted(values)
    three = (ordered[0], statistics.median(ordered), ordered[-1])
    return " / ".join(f"{value:.{digits}f}" for value in three)
