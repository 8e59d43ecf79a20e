"""ToolOutput: shown in pieces beside the call, and kept."""

import asyncio

from everturn.errors import Fenced
from everturn.scrubbing import Scrubber
from everturn_activities import tool_output
from everturn_activities.tool_output import NOT_SHOWN, ToolOutput


async def test_pieces_are_joined_and_numbered(monkeypatch):
    monkeypatch.setattr(tool_output, "SHOWN_SECONDS", 0.01)
    told: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    async def tell(n: int, text: str) -> None:
        await told.put((n, text))

    output = ToolOutput(tell, Scrubber())
    await asyncio.to_thread(output.add, "a")
    output.add("b")
    first = await told.get()
    output.add("c")
    second = await told.get()
    await output.stop()

    assert (first, second) == ((1, "ab"), (2, "c"))
    assert output.text() == "abc"


async def test_a_flood_is_shown_to_a_bound_and_an_overtaken_attempt_not_at_all(monkeypatch):
    monkeypatch.setattr(tool_output, "SHOWN_SECONDS", 0.01)
    monkeypatch.setattr(tool_output, "SHOWN_CHARACTERS_MAX", 4)
    told: list[str] = []
    over = asyncio.Event()

    async def tell(n: int, text: str) -> None:
        told.append(text)
        over.set()
        raise Fenced("a newer attempt has begun")

    output = ToolOutput(tell, Scrubber())
    for text in ("abcd", "e", "f"):
        output.add(text)
    await over.wait()
    output.add("g")
    assert output._telling is not None
    await output._telling

    assert told == ["abcd" + NOT_SHOWN]
    assert output.text() == "abcdefg"


async def test_what_may_begin_a_secret_is_kept_where_nothing_follows():
    scrubber = Scrubber()
    scrubber.learn("TOKEN", "canary-0123456789")
    output = ToolOutput(None, scrubber)
    output.add("it was canary-")
    output.add("0123456789, not can")
    assert output.text() == "it was [secret TOKEN], not can"
