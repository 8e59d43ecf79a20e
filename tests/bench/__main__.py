"""The benchmarks W1 to W8, each but W6 beside its floor: `python tests/bench [NAME ...]`."""

import argparse
import asyncio
import tempfile
from pathlib import Path

import compose
import recovery
import throughput
import tool_calls

WORKLOADS = {
    "W1": throughput.w1,
    "W2": throughput.w2,
    "W3": throughput.w3,
    "W5": recovery.w5,
    "W6": compose.w6,
    "W7": tool_calls.w7,
    "W8": tool_calls.w8,
}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which of them; all by default")
    parser.add_argument("--repetitions", type=int, default=3)
    asked = parser.parse_args()
    for name in asked.names or WORKLOADS:
        with tempfile.TemporaryDirectory(prefix="everturn-bench-") as folder:
            await WORKLOADS[name.upper()](Path(folder), asked.repetitions)


asyncio.run(main())
