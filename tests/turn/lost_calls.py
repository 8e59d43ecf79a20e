"""Calls whose worker was lost in their midst."""

from harness import Bench

from everturn.events import Event
from everturn.session import SessionKey
from everturn_activities.store import Caller, ToolStarted


async def interrupted(made: Bench, tool: str, owner: str) -> SessionKey:
    """A session whose first step asked for `tool`, which `owner` has begun and not ended."""
    key = await made.session()
    store = made.runtime.store
    begin = type(store).begin_tool

    async def begun_by_another(*given: object, **more: object) -> object:
        # Another worker was quicker by an instant, and wrote its intent first.
        store.begin_tool = begin.__get__(store)  # type: ignore[method-assign]
        _, turn, step, index, epoch, _, once = (key, *given[1:])
        first = await store.begin_tool(key, turn, step, index, epoch, Caller(owner, "n"), once)  # type: ignore[arg-type]
        assert isinstance(first, ToolStarted)
        return await store.begin_tool(*given, **more)  # type: ignore[arg-type]

    store.begin_tool = begun_by_another  # type: ignore[method-assign]
    return key


def result(events: list[Event]) -> tuple[bool, str]:
    (finished,) = [e for e in events if e.type == "tool_finished"]
    return finished.body["failed"], finished.body["text"]
