"""The tools that installed packages bring, by entry points of the group `everturn.tools`."""

import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from everturn.tools import Tool

GROUP = "everturn.tools"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packaged:
    """Tools and whose each is, by name; `notes` say in sentences what is left out, and why."""

    tools: dict[str, tuple[Tool, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@functools.cache
def packaged_tools() -> Packaged:
    """What was installed when this process first asked: an upgrade counts from the next start."""
    found = find_packaged()
    for note in found.notes:
        log.warning("%s", note)
    return found


def find_packaged() -> Packaged:
    tools: dict[str, tuple[Tool, str]] = {}
    notes: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda one: (_package(one), one.name)):
        source = f"package {_package(point)}"
        try:
            brought = list(_tools_of(point.load()))
        except BaseException as error:
            # It is somebody else's code, whatever it raises: a package must end no worker.
            told = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
            notes.append(
                f"The tools of {source} ({point.name} = {point.value}) cannot be loaded: {told};"
                " mend or uninstall it."
            )
            continue
        if not brought:
            notes.append(
                f"The entry point {point.name} = {point.value} of {source} leads to no tool; name"
                " a @tool, a module that has some, or a list of them."
            )
        for tool in brought:
            if tool.name in tools and tools[tool.name][0] is not tool:
                notes.append(_left_out(tool, source, tools[tool.name][1]))
                continue
            tools.setdefault(tool.name, (tool, source))
    return Packaged(tools, tuple(notes))


def without(packaged: Packaged, taken: dict[str, str]) -> Packaged:
    """`packaged` without the tools whose names others have, who are named in `taken`."""
    notes = [
        _left_out(tool, source, taken[name])
        for name, (tool, source) in packaged.tools.items()
        if name in taken
    ]
    tools = {name: found for name, found in packaged.tools.items() if name not in taken}
    return Packaged(tools, (*packaged.notes, *notes))


def _left_out(tool: Tool, source: str, other: str) -> str:
    return (
        f"Tool {tool.name} of {source} is left out, because one of {other} has its name; rename one"
        " of them, or uninstall the package."
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value.partition(".")[0]


def _tools_of(brought: object) -> Iterator[Tool]:
    if isinstance(brought, Tool):
        yield brought
    elif isinstance(brought, ModuleType):
        # Each once, whatever names it has there.
        yield from {
            id(one): one for one in vars(brought).values() if isinstance(one, Tool)
        }.values()
    elif isinstance(brought, list | tuple):
        yield from (one for one in brought if isinstance(one, Tool))
