"""A sample of `make chaos`, and a rolling restart, each on a whole cluster under load."""

import random
from collections.abc import Iterable

import pytest
from chaos import Plan, under_load
from clusters import cluster_folder
from local_postgres import bin_folder
from local_redis import BINARY
from nemesis import Nemesis

SECONDS = 25


@pytest.fixture
def whole() -> dict[str, object]:
    """What of a whole cluster this machine has: no reason to skip, but less is shown."""
    return {
        "store": "postgres" if bin_folder() else "sqlite",
        "redis": BINARY is not None,
    }


@pytest.mark.long
async def test_whatever_is_killed_every_message_has_one_outcome_and_every_stream_is_whole(
    whole: dict[str, object],
):
    seed = random.randrange(10**6)
    print(f"make chaos ARGS='--seed {seed}'")

    async def kills(nemesis: Nemesis) -> Iterable[str]:
        await nemesis.kill_for(SECONDS)
        return []

    with cluster_folder() as folder:
        report = await under_load(folder, Plan(seed, kills, clients=4, topology=whole), print)

        assert report.problems == []
        assert report.figures["turns"] > 0


@pytest.mark.long
async def test_a_rolling_restart_fails_no_turn_and_no_request_that_one_retry_does_not_mend(
    whole: dict[str, object],
):
    async def restarts(nemesis: Nemesis) -> Iterable[str]:
        return await nemesis.roll()

    with cluster_folder() as folder:
        plan = Plan(1, restarts, clients=4, mended=True, topology=whole)
        report = await under_load(folder, plan, print)

        assert report.problems == []
        assert report.figures["turns"] > 0
