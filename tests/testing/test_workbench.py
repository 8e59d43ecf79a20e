"""`everturn.testing`, as somebody's own tests use it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from everturn.session import SessionKey
from everturn.testing import Workbench, calls, says, server, workbench

TOOLS = """
from everturn import tool

@tool(effect="pure", quick=True)
def price(article: str) -> float:
    "The price of an article."
    return {"pen": 1.5}[article]
"""
AGENT = """---
output:
  type: object
  properties: {total: {type: number}}
  required: [total]
---
You add up orders.
"""


class Total(BaseModel):
    total: float


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "agents").mkdir()
    (tmp_path / "everturn.toml").write_text("")
    (tmp_path / "tools" / "shop.py").write_text(TOOLS)
    (tmp_path / "agents" / "cashier.md").write_text(AGENT)
    return tmp_path


@pytest.fixture
async def bed(workspace: Path) -> AsyncIterator[Workbench]:
    replies = [calls("price", article="pen"), calls("response", total=3.0)]
    async with workbench(workspace, *replies) as bed:
        yield bed


async def test_an_agent_is_tested_with_its_tools_and_its_answer(bed: Workbench):
    result = await bed.run("Two pens, please.", agent="cashier")

    assert result.outcome == "completed"
    assert result.tools == ("price", "response")
    assert result.answer(Total) == Total(total=3.0)
    [priced] = bed.model.requests[1].messages[-1].results
    assert priced.text == "1.5"


async def test_workbenchs_share_a_server_and_a_session_goes_on(workspace: Path):
    async with server() as address:
        async with workbench(workspace, says("Hello."), address=address) as bed:
            await bed.run("Hi.", session="s")
            again = await bed.run("Hi again.", session="s")
        async with workbench(workspace, says("Somebody else."), address=address) as other:
            apart = await other.run("Hi.", session="s")

    assert len(bed.model.requests[1].messages) == 3
    assert [event.turn for event in again.events] == [2] * len(again.events)
    assert apart.text == "Somebody else."
    assert len(apart.messages) == 2


async def test_sessions_of_one_name_and_turns_of_one_session_are_told_apart(workspace: Path):
    """Two workbenches on one server, and three messages of one session, all at once."""
    (workspace / "agents" / "clerk.md").write_text("You answer.")
    held = [says("One.", hold="door")]
    async with (
        server() as address,
        workbench(workspace, *held, address=address) as bed,
        workbench(workspace, says("Two."), address=address) as other,
    ):
        first = asyncio.create_task(bed.run("Hi.", session="s"))
        await bed.model.reached("door")
        assert (await other.run("Hi.", session="s", seconds=30)).text == "Two."

        next_ones = []
        for agent in (None, "clerk"):
            next_ones.append(asyncio.create_task(bed.run("And?", session="s", agent=agent)))
            await waiting(bed, len(next_ones))
        bed.model.release("door")
        ended = [await first, *[await one for one in next_ones]]

    assert [{event.turn for event in result.events} for result in ended] == [{1}, {2}, {3}]
    assert [event.type for event in ended[2].events][-1] == "turn_finished"


async def waiting(bed: Workbench, messages: int) -> None:
    """Until so many messages of session s wait for their turn."""
    key = SessionKey(bed._tenant, "s")
    async with asyncio.timeout(30):
        while (await bed._runtime.store.session(key)).waiting < messages:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_built_in_tools_work_in_the_working_folder_and_on_the_store(workspace: Path):
    (workspace / "desk").mkdir()
    settings = 'working_dir = "desk"\n[memory]\nscopes = ["session"]\n'
    (workspace / "everturn.toml").write_text(settings)
    replies = [
        calls("write_file", path="note.txt", content="tea"),
        calls("memory_save", text="They like tea."),
        says("Done."),
    ]
    async with workbench(workspace, *replies) as bed:
        result = await bed.run("Write it down.")

    assert result.outcome == "completed"
    assert (workspace / "desk" / "note.txt").read_text() == "tea"
    assert "Remembered as session fact 1." in str(result.messages)


async def test_a_turn_that_fails_tells_its_outcome_and_reason(workspace: Path):
    async with workbench(workspace, calls("price", article="pen")) as bed:
        result = await bed.run("Hi.")
        again = await bed.run("Hi.")

    assert result.outcome == "model_failed"
    assert "No reply at 1." in (result.reason or "")
    assert result.text == ""
    # Without a name each is a session of its own.
    assert [len(one.messages) for one in (result, again)] == [3, 3]


async def test_a_turn_that_does_not_end_is_a_clear_failure(workspace: Path):
    async with workbench(workspace, says("One two.", hold="door")) as bed:
        with pytest.raises(TimeoutError, match=r"session s did not end within 0\.5 s"):
            await bed.run("Hi.", session="s", seconds=0.5)
