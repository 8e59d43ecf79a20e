"""What goes on after a loss: at once, from the last step, and without what is left behind."""

import signal
from pathlib import Path

import pytest
from systems import SHORT, Plan, StartSystem, System, until
from temporalio.api.history.v1 import HistoryEvent

STREAM = Plan(held=frozenset({1}), steps=SHORT)
SLOW = Plan(gated=frozenset({"slow"}))
CHARGE = Plan(gated=frozenset({"charged"}), steps=SHORT)


def retries(history: list[HistoryEvent]) -> list[tuple[int, str]]:
    """Attempts of activities after the first, and why the one before failed."""
    started = [event.activity_task_started_event_attributes for event in history]
    return [
        (one.attempt, one.last_failure.application_failure_info.type)
        for one in started
        if one.attempt > 1
    ]


async def test_the_calls_of_a_killed_worker_begin_again_when_another_starts(
    start_system: StartSystem,
):
    system = await start_system({"stream": STREAM, "slow": SLOW}, "queued")
    turns = [await system.send("stream"), await system.send("slow")]
    await system.held("stream.1")
    await system.waits_in_tool("slow.slow")

    await system.kill("worker")
    await system.restart("worker")

    # While both are still held: the next worker has begun them anew.
    await turns[0].saw("superseded", step=1)
    await until(lambda: {line["attempt"] for line in system.effects()
                         if line["tool"] == "slow"} == {1, 2})  # fmt: skip
    await system.release("stream.1", "slow.slow")
    for turn in turns:
        evidence = await system.evidence(turn)
        assert evidence.problems() == []


async def test_a_living_worker_hands_on_the_calls_of_a_killed_one_before_their_time_out(
    start_system: StartSystem,
):
    system = await start_system({"stream": STREAM, "slow": SLOW}, "queued")
    turns = [await system.send("stream"), await system.send("slow")]
    await system.held("stream.1")
    await system.waits_in_tool("slow.slow")
    await system.another_worker()

    await system.kill("worker")

    await turns[0].saw("superseded", step=1)
    await until(lambda: {line["attempt"] for line in system.effects()
                         if line["tool"] == "slow"} == {1, 2})  # fmt: skip
    await system.release("stream.1", "slow.slow")
    for turn in turns:
        evidence = await system.evidence(turn)
        assert evidence.problems() == []
        # Told by the other worker: the time-out of the heartbeat would be no application's.
        assert set(retries(await system.history(turn.name))) == {(2, "WorkerLost")}


@pytest.mark.parametrize("placement", ["queued", pytest.param("inline", marks=pytest.mark.long)])
async def test_a_turn_whose_temporal_database_is_lost_goes_on_from_the_store(
    start_system: StartSystem, placement: str
):
    system = await start_system({"open": Plan(held=frozenset({2}))}, placement)
    turn = await system.send("open")
    await system.held("open.2")

    await system.lose_temporal()
    await system.restart("temporal")

    adopted = await turn.saw("status")
    assert adopted.body["text"] == "The turn lost its workflow and goes on from its last step."
    await system.release("open.2")
    evidence = await system.evidence(turn)
    assert evidence.problems() == []
    assert evidence.completed()[0] == 1


async def interrupted(system: System) -> None:
    turns = [await system.send(name) for name in ("stream", "slow", "charge")]
    assert len(turns) == 3
    await system.held("stream.1")
    await system.waits_in_tool("slow.slow", "charge.charged")


ALL = ("stream.1", "slow.slow", "charge.charged")


@pytest.mark.parametrize("placement", [pytest.param("inline", marks=pytest.mark.long), "queued"])
async def test_a_worker_that_is_told_to_end_hands_its_calls_over(
    start_system: StartSystem, placement: str
):
    plans = {"stream": STREAM, "slow": SLOW, "charge": CHARGE}
    system = await start_system(plans, placement)
    await interrupted(system)

    assert await system.worker.stop() == 0

    await system.release(*ALL)
    await system.restart("worker")
    for turn in system.watched:
        assert (await system.evidence(turn)).problems() == []


@pytest.mark.parametrize("placement", ["inline", pytest.param("queued", marks=pytest.mark.long)])
async def test_a_worker_that_is_told_to_end_lets_short_calls_end_first(
    start_system: StartSystem, placement: str
):
    plans = {"stream": STREAM, "slow": SLOW, "charge": CHARGE}
    system = await start_system(plans, placement)
    await interrupted(system)

    system.worker.signal(signal.SIGTERM)
    await system.release(*ALL)
    assert await system.worker.ended() == 0

    await system.restart("worker")
    for turn in system.watched:
        evidence = await system.evidence(turn)
        assert evidence.problems() == []
        assert evidence.completed() == [1] * len(evidence.steps)
        assert not evidence.unknown()


def running_command(command: str) -> list[int]:
    """Processes that run `command` itself."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b" ".join(words).strip() == command.encode():
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_command_ends_with_the_worker_that_runs_it(
    start_system: StartSystem, number: signal.Signals
):
    command = f"sleep 9{number:03}"
    plan = Plan(steps=(("run_command",), ()), command=command)
    system = await start_system({"command": plan}, "queued")
    turn = await system.send("command")
    await until(lambda: running_command(command))

    system.worker.signal(number)
    assert await system.worker.ended() == (0 if number == signal.SIGTERM else -number)

    await until(lambda: not running_command(command))
    await system.restart("worker")
    evidence = await system.evidence(turn)
    assert evidence.problems() == []
    assert evidence.unknown()
    assert not running_command(command)


@pytest.mark.parametrize(
    ("tool", "placement"),
    [
        ("fatal", "inline"),
        pytest.param("fatal", "queued", marks=pytest.mark.long),
        pytest.param("interrupt", "queued", marks=pytest.mark.long),
    ],
)
async def test_a_tool_that_ends_its_worker_is_given_up_and_its_turn_goes_on(
    start_system: StartSystem, tool: str, placement: str
):
    system = await start_system({"fatal": Plan(steps=((tool,), ()))}, placement)
    turn = await system.send("fatal")
    losses = 0
    while "turn_finished" not in {event.type for event in turn.events}:
        await until(
            lambda: (
                not system.worker.running
                or "turn_finished" in {event.type for event in turn.events}
            )
        )
        if not system.worker.running:
            losses += 1
            await system.restart("worker")
    await turn.finished()

    (told,) = [event for event in turn.events if event.type == "tool_finished"]
    assert "begun 5 times and never ended" in told.body["text"]
    assert turn.events[-1].body["outcome"] == "completed"
    assert losses <= 10
