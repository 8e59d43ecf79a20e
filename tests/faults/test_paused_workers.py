"""A worker that is stopped for longer than its heartbeat, and then goes on as if nothing were."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from systems import SHORT, Plan, Program, StartSystem, until

TAKEOVER_SECONDS = 180.0
PLANS = {
    "stream": Plan(held=frozenset({1}), steps=SHORT),
    "slow": Plan(gated=frozenset({"slow"})),
    "charge": Plan(gated=frozenset({"charged"}), steps=SHORT),
}


async def pause(worker: Program, store: Path) -> None:
    """Stop the worker outside of a transaction: within one, nobody else could write either."""

    def stopped() -> bool:
        worker.signal(signal.SIGSTOP)
        with closing(sqlite3.connect(store, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                worker.signal(signal.SIGCONT)
                return False
            connection.execute("ROLLBACK")
            return True

    await until(stopped)


@pytest.mark.long
@pytest.mark.parametrize("placement", ["queued", "inline"])
async def test_what_a_paused_worker_writes_late_changes_nothing(
    start_system: StartSystem, placement: str
):
    system = await start_system(PLANS, placement)
    turns = {name: await system.send(name) for name in PLANS}
    await system.held("stream.1")
    await system.waits_in_tool("slow.slow", "charge.charged")

    paused = system.worker
    await pause(paused, system.home / "everturn.db")
    other = await system.another_worker()
    # The other takes over what may run again, and leaves the rest to the one that lives. That
    # takes a while: the server hands retries to the open polls of the paused one first.
    await turns["stream"].saw("superseded", step=1, seconds=TAKEOVER_SECONDS)
    await until(lambda: other.pid in {line["pid"] for line in system.effects()}, TAKEOVER_SECONDS)
    await system.release("stream.1", "slow.slow", "charge.charged")
    await turns["stream"].finished()
    await turns["slow"].finished()
    assert "turn_finished" not in {event.type for event in turns["charge"].events}

    paused.signal(signal.SIGCONT)
    await turns["charge"].finished()
    # It ends when all of its late calls have.
    assert await paused.stop() == 0

    for turn in turns.values():
        evidence = await system.evidence(turn)
        assert evidence.problems() == []
        # Temporal has given up the paused worker's calls: what became of the charge may be
        # told as unknown, and of nothing else.
        assert turn.name == "charge" or not evidence.unknown()
