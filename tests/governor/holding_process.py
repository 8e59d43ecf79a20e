"""A process that takes a permit, or fails a model, and then only stays alive."""

import asyncio
import sys
from pathlib import Path

from governed import call, fails, granted, limits

from everturn_activities.governor import Governor
from everturn_activities.governor.redis import RedisGovernor
from everturn_activities.governor.sql import SqlGovernor
from everturn_activities.store.database import SqliteDatabase

GIVEN = {"concurrency": 1, "breaker_failures": 3}


async def main(where: str, what: str) -> None:
    governor: Governor
    if where.startswith("redis"):
        governor = RedisGovernor(where, limits(GIVEN))
    else:
        database = SqliteDatabase(Path(where), lambda told: None)
        governor = SqlGovernor(database, limits(GIVEN))
    if what == "hold":
        await granted(governor, call("held"))
    else:
        for number in range(3):
            await fails(governor, f"c{number}")
    print("done", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
