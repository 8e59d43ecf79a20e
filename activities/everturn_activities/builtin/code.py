"""Finding one's way in code: what a file defines, where a name is defined and used."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import ToolContext, tool
from everturn_activities.code import Symbol
from everturn_activities.code.languages import Language, language_of
from everturn_activities.code.syntax import definitions, references
from everturn_activities.knowledge.walk import Unread, read, walk
from everturn_activities.threads import in_thread

LINES_MAX = 500
LINE_CHARACTERS_MAX = 160
SECONDS_MAX = 20.0
"""How long a search may take; what was not looked at by then is told."""

Find = Callable[[Language, bytes], Iterable[Symbol]]


@tool(effect="pure", searches=True, timeout_seconds=60.0)
async def code(
    find: Annotated[
        Literal["symbols", "definitions", "references"],
        Field(
            description="symbols: what a file defines; definitions: where a name is defined;"
            " references: where it is used."
        ),
    ],
    context: ToolContext,
    path: Annotated[
        str, Field(description="File or folder to look in, relative to the working folder.")
    ] = ".",
    name: Annotated[
        str | None, Field(min_length=1, description="For definitions and references.")
    ] = None,
    limit: Annotated[int, Field(ge=1, le=LINES_MAX, description="Lines at most.")] = 100,
) -> str:
    """Find definitions and uses in Python, TypeScript, JavaScript, Go, Rust and Java code."""
    if find != "symbols" and name is None:
        raise ToolFailed(f"{find} are those of a name; give one.")
    if find == "symbols" and (path in ("", ".") or path.endswith("/")):
        raise ToolFailed("symbols are those of one file; give its path.")
    return await in_thread(_found, context.working_dir, find, path, name, limit)


def _found(root: Path, find: str, path: str, name: str | None, limit: int) -> str:
    paths = [path] if find == "symbols" else _paths(root, path)
    asked = _asked(find, name)
    until = time.monotonic() + SECONDS_MAX
    lines: list[str] = []
    notes: list[str] = []
    for number, each in enumerate(paths):
        for line in _of_file(root, each, asked, name, skips=len(paths) > 1):
            lines.append(line)
            if len(lines) > limit or time.monotonic() > until:
                break
        if len(lines) > limit:
            break
        if time.monotonic() > until and number < len(paths) - 1:
            left = len(paths) - number - 1
            notes.append(f"{left} of {len(paths)} files were not looked at")
            break
    if lines:
        return _shown(lines, limit, notes)
    if find == "symbols":
        return f"{path} defines nothing."
    told = "; ".join([f"No {find} of {name} in {len(paths)} files of code", *notes])
    return f"{told}."


def _asked(find: str, name: str | None) -> Find:
    if find == "symbols":
        return definitions
    wanted = name or ""
    if find == "references":
        return lambda language, content: references(language, content, wanted)
    # `Turn.run` is the `run` that stands in `Turn`.
    within, _, last = wanted.rpartition(".")
    return lambda language, content: (
        symbol
        for symbol in definitions(language, content)
        if symbol.name == last and f".{symbol.within}".endswith(f".{within}" if within else "")
    )


def _paths(root: Path, path: str) -> list[str]:
    """The files of code at or below `path`, which no link leads out of the folder."""
    named = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in named:
        raise ToolFailed(f"{path!r} must be relative to the working folder, without '..'.")
    below = "/".join(named)
    if language_of(below) is not None:
        return [below]
    known = [each for each in walk(root).files if language_of(each) is not None]
    found = [each for each in known if not below or each.startswith(f"{below}/")]
    if not found:
        raise ToolFailed(f"There is no file of code that is understood at {path}.")
    return found


def _of_file(
    root: Path, path: str, find: Find, name: str | None = None, skips: bool = False
) -> Iterator[str]:
    """A line for each symbol; a file that cannot be read has none where it `skips` such."""
    language = language_of(path)
    if language is None:
        raise ToolFailed(
            f"{path} is no file of Python, TypeScript, JavaScript, Go, Rust or Java; use read_file."
        )
    text = read(root, path)
    if isinstance(text, Unread):
        if skips:
            return
        raise ToolFailed(f"{path} {text.why}.")
    # Most files do not have the name at all, and to look for it is cheap.
    if name is not None and name.rpartition(".")[2] not in text:
        return
    source = text.split("\n")
    for symbol in find(language, text.encode("utf-8", "replace")):
        line = source[symbol.line - 1].strip() if symbol.line <= len(source) else ""
        lines = f"{symbol.line}-{symbol.last}" if symbol.last > symbol.line else f"{symbol.line}"
        full = f"{symbol.within}.{symbol.name}" if symbol.within else symbol.name
        what = f"{symbol.what} {full}" if symbol.kind == "definition" else f"in {symbol.within}"
        shown = "" if what == "in " else f" {what}"
        yield f"{path}:{lines}{shown}: {line[:LINE_CHARACTERS_MAX]}"


def _shown(lines: list[str], limit: int, notes: list[str]) -> str:
    if len(lines) > limit:
        notes = [*notes, f"there are more than {limit}; look in a narrower path"]
        lines = lines[:limit]
    return "\n".join([*lines, *(f"[{note}]" for note in notes)])
