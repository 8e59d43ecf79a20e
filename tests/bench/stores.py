"""W11: W1 and W2 on PostgreSQL and Redis beside SQLite, and where the difference goes."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from local_postgres import USER, Postgres, bin_folder
from local_redis import Redis
from local_state import State, made_folder
from parts import Cost, measure, spread
from throughput import AT_ONCE, MANY, TURNS, WARM_UP, Everturn, everturn, ground

COUNTED = "pg_stat_statements"
SHOWN = 6


@dataclass(frozen=True)
class Servers:
    postgres: Postgres
    redis: Redis

    @property
    def pids(self) -> dict[str, int]:
        processes = {"postgres": self.postgres.process, "redis": self.redis.process}
        return {name: process.pid for name, process in processes.items() if process}

    async def asked(self, query: str) -> str:
        folder = bin_folder()
        assert folder is not None
        where = ("-h", "127.0.0.1", "-p", str(self.postgres.port), "-U", USER, "-d", "everturn")
        asking = await asyncio.create_subprocess_exec(
            *(str(folder / "psql"), *where, "-At", "-c", query),
            env=self.postgres.environment,
            stdout=asyncio.subprocess.PIPE,
        )
        answer, _ = await asking.communicate()
        return answer.decode().strip()

    async def counts(self) -> tuple[float, float]:
        """Statements and transactions so far."""
        statements = await self.asked(
            f"SELECT coalesce(sum(calls), 0) FROM {COUNTED}"
            " WHERE query NOT IN ('BEGIN', 'COMMIT', 'ROLLBACK')"
        )
        commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'everturn'"
        return float(statements), float(await self.asked(commits))

    async def dearest(self, turns: int) -> str:
        """The statements that the server spent most on, by turn."""
        return await self.asked(
            f"SELECT format('%s ms, %s calls: %s', round((total_exec_time / {turns})::numeric, 2),"
            f" round(calls / {turns}.0, 1), left(regexp_replace(query, '\\s+', ' ', 'g'), 90))"
            f" FROM {COUNTED} ORDER BY total_exec_time DESC LIMIT {SHOWN}"
        )


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    # Not in the benchmark's own folder: PostgreSQL's user must be able to enter it.
    folder = made_folder(Path(tempfile.mkdtemp(prefix="everturn-bench-servers-")))
    folder.chmod(0o711)
    state = State(folder)
    postgres = Postgres(
        *(folder, state.port("postgres"), state.password("postgres"), ["everturn"]),
        {"shared_preload_libraries": COUNTED},
    )
    redis = Redis(folder, state.port("redis"), state.password("redis"))
    made = Servers(postgres, redis)
    try:
        await postgres.launch()
        await redis.launch()
        await made.asked(f"CREATE EXTENSION {COUNTED}")
        yield made
    finally:
        await redis.stop()
        await postgres.stop()
        shutil.rmtree(folder)


async def w11(folder: Path, repetitions: int) -> None:
    """The turns of W1 and W2, with their CPU by process."""
    async with ground(folder) as on, servers() as there:
        database = {"EVERTURN_DATABASE_URL": there.postgres.url("everturn")}
        shared = {"EVERTURN_REDIS_URL": there.redis.url}
        async with (
            everturn(on, "auto", "sqlite") as sqlite,
            everturn(on, "auto", "postgres", **database) as postgres,
            everturn(on, "auto", "both", **database, **shared) as both,
        ):
            contenders = {"SQLite": sqlite, "PostgreSQL": postgres, "PostgreSQL + Redis": both}
            for ours in contenders.values():
                await measure(ours.turn, WARM_UP, WARM_UP, {})
            on_all = Contest(contenders, there, on.pids, repetitions)
            await on_all.held("W1  ms a turn (lower is better)", TURNS, 1, _ms)
            await on_all.held("W2  turns a second (higher is better)", MANY, AT_ONCE, _rate)


def _ms(cost: Cost) -> float:
    return cost.median_ms


def _rate(cost: Cost) -> float:
    return cost.turns_per_second


@dataclass(frozen=True)
class Contest:
    """Every contender in turn, `repetitions` times, so that a slow minute meets them all."""

    contenders: dict[str, Everturn]
    there: Servers
    pids: Callable[[int], dict[str, int]]
    repetitions: int

    async def held(
        self, title: str, turns: int, at_once: int, figure: Callable[[Cost], float]
    ) -> None:
        costs: dict[str, list[Cost]] = {}
        counted: dict[str, str] = {}
        for _ in range(self.repetitions):
            for name, ours in self.contenders.items():
                await self.there.asked(f"SELECT {COUNTED}_reset()")
                before = await self.there.counts()
                watched = {**self.pids(ours.pid), **self.there.pids, "front": os.getpid()}
                cost = await measure(ours.turn, turns, at_once, watched)
                costs.setdefault(name, []).append(cost)
                after = await self.there.counts()
                if name != "SQLite":
                    each = [(now - then) / turns for now, then in zip(after, before, strict=True)]
                    counted[name] = (
                        f"{each[0]:.0f} statements, {each[1]:.0f} transactions a turn; dearest:\n"
                        f"{await self.there.dearest(turns)}"
                    )
        _print(title, costs, figure)
        for name, told in counted.items():
            print(f"{name}: {told}")


def _print(title: str, costs: dict[str, list[Cost]], figure: Callable[[Cost], float]) -> None:
    under = [figure(cost) for cost in costs["SQLite"]]
    print(f"\n{title}\n{'':18} {'min / median / max':>24} {'x SQLite':>22}   CPU ms a turn")
    for name, runs in costs.items():
        values = [figure(cost) for cost in runs]
        ratios = [value / one for value, one in zip(values, under, strict=True)]
        cpu = sorted(runs, key=figure)[len(runs) // 2].cpu_ms()
        print(f"{name:18} {spread(values):>24} {spread(ratios, 2):>22}   {cpu}")
