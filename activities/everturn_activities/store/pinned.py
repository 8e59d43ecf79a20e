"""What is put back after a compaction, whatever its summary says."""

from collections.abc import Callable, Sequence

from everturn_activities.store.locked import LockedSession

Source = Callable[[LockedSession], Sequence[str]]
"""Blocks of text that hold now, such as pinned facts, or calls that wait for a person."""

SOURCES: list[Source] = []


def blocks(session: LockedSession) -> list[str]:
    """The blocks of all sources, in their order."""
    return [block for source in SOURCES for block in source(session) if block]
