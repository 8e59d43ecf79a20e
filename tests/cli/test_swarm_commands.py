"""Swarms at the command line: items from a file, results to a file, ends in words."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from by_hand import Runtime
from commands import Commands, ended
from in_need_of_leave import asks
from swarms_by_hand import Hand, W

from everturn.errors import UnknownSession
from everturn.swarms import SwarmSpec
from everturn_activities.store import SessionSettings

TEMPLATE = ("--prompt-template", "Do {task}.", "--id", "w")


def items(runtime: Runtime, *names: str) -> str:
    lines = [json.dumps({"id": f"i{n}", "task": name}) for n, name in enumerate(names, 1)]
    (runtime.workspace / "items.jsonl").write_text("\n".join(lines) + "\n\n")
    return "items.jsonl"


def results(runtime: Runtime, name: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (runtime.workspace / name).read_text().splitlines()]


async def begun(runtime: Runtime, *given: dict[str, Any], last: bool = True) -> None:
    folder = str(runtime.workspace)
    settings, spec = SessionSettings(folder, folder), SwarmSpec(prompt="Do {task}.")
    await runtime.swarms.create(W, spec, settings, given, last)


@asynccontextmanager
async def worked(runtime: Runtime, bad: int = 0) -> AsyncIterator[None]:
    """Somebody works what comes."""

    async def work() -> None:
        hand = Hand(runtime)
        while True:
            with suppress(UnknownSession):
                await hand.work_all(bad)
            await asyncio.sleep(0.02)

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def test_a_file_of_items_becomes_a_file_of_results(
    runtime: Runtime, commands: Commands
) -> None:
    file = items(runtime, "a", "b", "c")
    async with worked(runtime, bad=2):
        ran = await commands("swarm", "run", file, *TEMPLATE, "--output", "out.jsonl")
    assert ran.code == 4, ran.err
    assert "Swarm w has done 2 of 3 items, 1 failed, in" in ran.err
    assert "'everturn swarm resume w --retry-failed'" in ran.err
    first, second, third = sorted(results(runtime), key=lambda line: line["n"])
    assert (first["id"], first["outcome"], first["text"]) == ("i1", "completed", "did 1")
    assert (second["session"], second["reason"]) == ("w:2", "It is bad.")
    assert (third["attempts"], third["steps"], third["cost_usd"]) == (1, 1, 0.5)

    shown = await commands("swarm", "show", "w")
    assert "Failed: i2 (w:2): It is bad." in shown.out

    # What is worked again takes the place of its line, and no other comes twice.
    again = await commands("swarm", "resume", "w", "--retry-failed")
    assert "Swarm w goes on: 1 items wait." in again.err
    async with worked(runtime):
        ran = await commands("swarm", "attach", "w", "--output", "out.jsonl")
    assert ran.code == 0
    assert sorted(line["n"] for line in results(runtime)) == [1, 2, 3]
    assert next(line["attempts"] for line in results(runtime) if line["n"] == 2) == 2


async def test_the_same_command_again_goes_on_where_it_was(
    runtime: Runtime, commands: Commands
) -> None:
    file = items(runtime, "a", "b", "c")
    await begun(runtime, {"id": "i1", "task": "a"}, {"id": "i2", "task": "b"}, last=False)
    await Hand(runtime).work("did 1", "did 2")
    (runtime.workspace / "out.jsonl").write_text(
        '{"n": 1, "settled": 1, "session": "w:1", "outcome": "completed"}\n{"n": 2'
    )
    async with worked(runtime):
        flags = ("--output", "out.jsonl", "--order", "item")
        ran = await commands("swarm", "run", file, *TEMPLATE, *flags)
    assert ran.code == 0, ran.err
    assert [line["n"] for line in results(runtime)] == [1, 2, 3]
    assert [line.get("text") for line in results(runtime)] == [None, "did 2", "did 3"]


async def test_a_large_file_is_sent_in_pieces(runtime: Runtime, commands: Commands) -> None:
    lines = [json.dumps({"task": f"{n} {'x' * 1000}"}) for n in range(1, 1_202)]
    (runtime.workspace / "items.jsonl").write_text("\n".join(lines))
    ran = await commands("swarm", "run", "items.jsonl", *TEMPLATE, "--detach", "--json")
    view = json.loads(ran.out)
    assert (view["items"], view["open"], view["counts"]["waiting"]) == (1_201, False, 1_201)


async def test_who_waits_for_a_person_is_named_and_a_program_is_not_kept(
    runtime: Runtime, commands: Commands
) -> None:
    await begun(runtime, {"id": "i1", "task": "a"}, {"id": "i2", "task": "b"})
    hand = Hand(runtime)
    first, second = await hand.take(2)
    (asked,) = await asks(runtime, {"path": "a"}, session=first.session)
    await runtime.work(second.session, "done")
    ran = await commands("swarm", "attach", "w", "--output", "-")
    assert ran.code == 3, ran.err
    assert json.loads(ran.out)["id"] == "i2"
    assert f"'everturn approvals approve w:1 {asked.approval}'" in ran.err
    shown = await commands("swarm", "show", "w")
    assert "Waiting for a person: w:1." in shown.out


async def test_who_leaves_is_told_how_to_go_on(runtime: Runtime, commands: Commands) -> None:
    await begun(runtime, {"task": "a"}, {"task": "b"})
    await Hand(runtime).work("did 1")
    leaving = await commands.start("swarm", "attach", "w", "--output", "-", "--order", "item")
    assert leaving.stdout is not None
    assert json.loads(await leaving.stdout.readline())["n"] == 1
    leaving.send_signal(signal.SIGINT)
    ran = await ended(leaving)
    assert ran.code == 130
    assert "Watch it again with 'everturn swarm attach w --order item', end it" in ran.err


async def test_a_swarm_is_paused_gone_on_with_and_cancelled(
    runtime: Runtime, commands: Commands
) -> None:
    await begun(runtime, *({"task": name} for name in "abc"))
    hand = Hand(runtime)
    await hand.work("a")
    paused = await commands("swarm", "pause", "w")
    assert paused.err == "Swarm w begins no more items. None is under way.\n"
    assert "goes on: 2 items wait" in (await commands("swarm", "resume", "w")).err
    assert "2 are left out" in (await commands("swarm", "cancel", "w")).err
    await hand.look()
    ended = await commands("swarm", "attach", "w")
    assert ended.code == 4
    assert "It was cancelled." in ended.err
    assert (await runtime.swarms.swarm(W)).counts.skipped == 2
