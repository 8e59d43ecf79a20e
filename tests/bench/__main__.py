"""The benchmarks W1 to W11, each but W6, W9, W10 and W11 beside its floor: `python tests/bench
[NAME ...]`. W11 are W1 and W2 on PostgreSQL and Redis, beside SQLite."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

# Where the servers of a cluster are.
sys.path.append(str(Path(__file__).parents[2] / "deploy" / "local"))

import compose
import recovery
import scaling
import stores
import swarm
import throughput
import tool_calls

WORKLOADS = {
    "W1": throughput.w1,
    "W2": throughput.w2,
    "W3": throughput.w3,
    "W4": swarm.w4,
    "W5": recovery.w5,
    "W6": compose.w6,
    "W7": tool_calls.w7,
    "W8": tool_calls.w8,
    "W9": swarm.w9,
    "W10": scaling.w10,
    "W11": stores.w11,
}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which of them; all by default")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--items", type=int, default=2_000, help="of each swarm of W4")
    parser.add_argument("--workers", type=int, default=1, help="on either side of W4")
    asked = parser.parse_args()
    for name in asked.names or WORKLOADS:
        with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
            if name.upper() == "W4":
                await swarm.w4(Path(folder), asked.repetitions, asked.items, asked.workers)
            else:
                await WORKLOADS[name.upper()](Path(folder), asked.repetitions)


asyncio.run(main())
