"""Several processes ask at the same moment: what one is told the others know."""

import asyncio

from governed import OK, Clock, call, granted, on_postgres

from everturn_activities.governor import Permit


async def test_a_limit_of_one_lets_one_call_of_two_processes_begin(postgres_url: str) -> None:
    opened, given = on_postgres(postgres_url, Clock()), {"concurrency": 1}
    async with opened(given) as one, opened(given) as other:
        # So that the key's row is there, and is what they meet at.
        await one.settle(await granted(one, call("before")), OK)
        answers = await asyncio.gather(
            *((one if n % 2 else other).ask(call(f"c{n}")) for n in range(8))
        )
    assert sum(isinstance(answer, Permit) for answer in answers) == 1
