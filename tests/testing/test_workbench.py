"""`everturn.testing`, as somebody's own tests use it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel

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


async def test_a_turn_that_does_not_end_is_a_clear_failure(workspace: Path):
    async with workbench(workspace, says("One two.", hold="door")) as bed:
        with pytest.raises(TimeoutError, match=r"session s did not end within 0\.5 s"):
            await bed.run("Hi.", session="s", seconds=0.5)
