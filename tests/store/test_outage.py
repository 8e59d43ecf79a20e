"""Who asks whether a database's server answers, and what its words mean."""

import asyncio
import time

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from everturn_activities.store import outage, postgres
from everturn_activities.store.outage import Outage, Said
from everturn_activities.store.postgres import PostgresDatabase

SECONDS = 20.0


def outage_of(*answers: Said) -> tuple[Outage, list[str]]:
    """One of a server that says `answers`, the last for ever, and what was done."""
    done: list[str] = []
    left = list(answers)

    async def ask() -> Said:
        done.append("asked")
        return left.pop(0) if len(left) > 1 else left[0]

    return Outage("db:5432", ask, lambda: done.append("dropped")), done


async def test_a_server_that_refuses_others_is_not_away_for_who_is_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that is told to end, and waits for those that it has."""
    monkeypatch.setattr(outage, "SUSPECT_SECONDS", 0.01)
    monkeypatch.setattr(outage, "AGAIN_SECONDS", 0.01)
    made, done = outage_of("refuses")
    with made.suspected():
        async with asyncio.timeout(SECONDS):
            while len(done) < 3:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    async with asyncio.timeout(SECONDS):
        # It is asked no more once nobody waits for it.
        while made._asking is not None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    assert set(done) == {"asked"}
    assert not made.is_known
    assert caplog.records == []


async def test_an_outage_lasts_until_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "AGAIN_SECONDS", 0.01)
    made, done = outage_of("nothing", "refuses", "answers")
    made.note_away()
    assert made.is_known
    assert await made.over(SECONDS)
    assert not made.is_known
    assert done == ["asked", "dropped", "asked", "asked"]


async def test_nobody_waits_for_what_is_left() -> None:
    made, _ = outage_of("refuses")
    made.note_away()
    waiting = asyncio.create_task(made.over(10 * SECONDS))
    await asyncio.sleep(0)
    made.leave()
    assert await asyncio.wait_for(waiting, SECONDS)
    await made.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (asyncpg.CannotConnectNowError("starting"), "refuses"),
        (ConnectionRefusedError(), "refuses"),
        (asyncpg.TooManyConnectionsError("full"), "answers"),
        (TimeoutError(), "nothing"),
    ],
)
async def test_what_a_server_says_to_who_wants_to_be_let_in(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: Said
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(postgres.asyncpg, "connect", connect)
    database = PostgresDatabase(make_url("postgresql://e@db/e"), lambda told: None)
    assert await database._asked() == said
    await database.close()


async def test_who_was_stopped_itself_judges_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", (0.1, 0.1))
    asked = []

    async def connect(*_: object, **__: object) -> None:
        asked.append(1)
        if len(asked) == 1:
            # The whole process stands still.
            time.sleep(0.1 + 2 * postgres.LATE_SECONDS)  # noqa: ASYNC251
            raise TimeoutError
        raise ConnectionRefusedError

    monkeypatch.setattr(postgres.asyncpg, "connect", connect)
    database = PostgresDatabase(make_url("postgresql://e@db/e"), lambda told: None)
    assert await database._asked() == "refuses"
    await database.close()
