"""Every kind of index, each with nothing in it."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from index_places import Clock, Place

_EMPTY = """
DROP TABLE IF EXISTS knowledge1_bases, knowledge1_claims, knowledge1_files, knowledge1_chunks,
    knowledge1_vectors;
DROP TEXT SEARCH CONFIGURATION IF EXISTS knowledge1_words;
DROP TEXT SEARCH DICTIONARY IF EXISTS knowledge1_stems
"""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(tmp_path, None, Clock())
    url = request.getfixturevalue("postgres_url")
    asyncio.run(_emptied(url))
    return Place(tmp_path, url, Clock())


async def _emptied(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_EMPTY)
    finally:
        await connection.close()
