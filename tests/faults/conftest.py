"""Whole systems, each started for one test and surely ended."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from preloaded import Preloaded
from systems import Plan, StartSystem, System

from everturn_workers import fetch


@pytest.fixture(scope="session")
def temporal() -> Path:
    binary = fetch.find()
    if binary is None:
        pytest.fail("There is no Temporal server; run `make temporal`.")
    return binary


@pytest.fixture
async def start_system(
    temporal: Path, preloaded: Preloaded, tmp_path: Path
) -> AsyncIterator[StartSystem]:
    """Starts a system on the test's folder, with a plan for each session that it will have."""
    made: list[System] = []

    async def start(
        plans: dict[str, Plan],
        placement: str = "auto",
        parts: Sequence[str] = ("model", "worker", "api"),
        **variables: str,
    ) -> System:
        made.append(System(tmp_path, temporal, preloaded, plans, placement, variables))
        await made[-1].start(parts)
        return made[-1]

    yield start
    for system in made:
        await system.end()
