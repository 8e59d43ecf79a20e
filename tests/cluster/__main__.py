"""`make chaos`: a cluster under load with a kill every few seconds, or a rolling restart."""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
for beside in ("../faults", "..", "../../deploy/local"):
    sys.path.append(str((HERE / beside).resolve()))

from chaos import CLIENTS, Plan, Report, under_load  # noqa: E402
from nemesis import Nemesis  # noqa: E402

OUTLAST_SECONDS = 120
"""A sample that is shorter does not wait for what is in Redis to go."""


def main() -> int:
    flags = _flags()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {line}", flush=True)

    async def befalls(nemesis: Nemesis) -> Iterable[str]:
        if flags.rolling:
            # With load before and behind it.
            await asyncio.sleep(flags.seconds / 2)
            problems = await nemesis.roll()
            await asyncio.sleep(flags.seconds / 2)
            return problems
        await nemesis.kill_for(flags.seconds)
        return []

    seed = random.randrange(10**6) if flags.seed is None else flags.seed
    print(f"Seed {seed}; --seed {seed} kills the same parts in the same order.", flush=True)
    # Not below a folder of our own: PostgreSQL's user must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="everturn-chaos-"))
    folder.chmod(0o711)
    topology: dict[str, object] = {"store": flags.store, "redis": not flags.without_redis}
    if flags.embedded_temporal:
        topology["temporal"] = "embedded"
    outlast = not flags.rolling and flags.seconds >= OUTLAST_SECONDS
    plan = Plan(seed, befalls, flags.clients, flags.rolling, outlast, topology)
    try:
        report = asyncio.run(under_load(folder, plan, say))
    except BaseException:
        print(f"Seed {seed}. Logs and data are kept in {folder}.", flush=True)
        raise
    tell(report)
    if report.problems:
        print(f"FAILED with seed {seed}. Logs and data are kept in {folder}.", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


def tell(report: Report) -> None:
    for name, figure in report.figures.items():
        print(f"     {name:18} {figure}")
    for name, found in report.checks.items():
        print(f"{'FAIL' if found else 'ok  '} {name}")
        for what in found[:20]:
            print(f"       {what}")


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, help="the one that was printed; by default a new one")
    add("--seconds", type=float, default=300, help="how long parts are killed; 300")
    add("--clients", type=int, default=CLIENTS, help=f"sessions at once; {CLIENTS}")
    add("--rolling", action="store_true", help="restart all workers and APIs, and kill nothing")
    add("--store", choices=["postgres", "sqlite"], default="postgres")
    add("--without-redis", action="store_true")
    add("--embedded-temporal", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
