"""Finding files by their names, and lines by what they say."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import regex
from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import ToolContext, tool
from everturn_activities.builtin.files import matches, pattern_parts
from everturn_activities.knowledge.walk import Unread, read, walk
from everturn_activities.threads import in_thread

FOUND_MAX = 1000
LINE_CHARACTERS_MAX = 300
SECONDS_MAX = 20.0
"""How long a search may take; what was not looked at by then is told."""

Pattern = Annotated[
    str, Field(description="Pattern relative to the working folder; ** stands for any folders.")
]
Limit = Annotated[int, Field(ge=1, le=FOUND_MAX)]


@tool(effect="pure", searches=True, timeout_seconds=60.0)
async def glob(pattern: Pattern, context: ToolContext, limit: Limit = 100) -> str:
    """Find files by a pattern such as src/**/*.py, the one changed last first.

    Left out are links, what a .gitignore names, and names that begin with a dot.
    """
    return await in_thread(_named, context.working_dir, pattern, limit)


def _named(root: Path, pattern: str, limit: int) -> str:
    parts = pattern_parts(pattern)
    files = walk(root).files
    found = [path for path in files if matches(parts, tuple(path.split("/")))]
    found.sort(key=lambda path: (-files[path].mtime_ns, path))
    lines = found[:limit]
    if len(found) > limit:
        lines.append(f"[... {len(found) - limit} more; give a narrower pattern ...]")
    return "\n".join(lines) or f"No file matches {pattern}."


@tool(effect="pure", searches=True, timeout_seconds=60.0)
async def grep(
    pattern: Annotated[str, Field(min_length=1, description="A regular expression.")],
    context: ToolContext,
    files: Pattern = "**",
    ignore_case: bool = False,
    around: Annotated[int, Field(ge=0, le=20, description="Lines shown before and after.")] = 0,
    limit: Limit = 100,
) -> str:
    """Find lines of text files that match a regular expression; answers path:line: text.

    Left out are links, what a .gitignore names, and names that begin with a dot.
    """
    try:
        wanted = regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise ToolFailed(f"{pattern!r} is no regular expression: {error}.") from None
    except (OverflowError, RecursionError):
        raise ToolFailed("The regular expression is too large; give a smaller one.") from None
    return await in_thread(_said, context.working_dir, wanted, files, around, limit)


def _said(root: Path, wanted: "regex.Pattern[str]", files: str, around: int, limit: int) -> str:
    parts = pattern_parts(files)
    paths = [path for path in walk(root).files if matches(parts, tuple(path.split("/")))]
    until = time.monotonic() + SECONDS_MAX
    lines: list[str] = []
    matched = 0
    for number, path in enumerate(paths):
        try:
            for text in _of_file(root, path, wanted, around, until):
                matched += text is not None
                if matched > limit:
                    lines.append(f"[... there are more than {limit}; narrow the search ...]")
                    return "\n".join(lines)
                lines += text or ()
        except TimeoutError:
            left = len(paths) - number
            lines.append(
                f"[... {left} of {len(paths)} files were not looked at: the search took too long"
                " ...]"
            )
            break
    return "\n".join(lines) or f"No line of {len(paths)} files matches."


def _of_file(
    root: Path, path: str, wanted: "regex.Pattern[str]", around: int, until: float
) -> Iterator[list[str]]:
    """The lines of each match with those around it. Raises TimeoutError."""
    text = read(root, path)
    if isinstance(text, Unread):
        return
    lines = text.split("\n")
    shown = -1
    for index, line in enumerate(lines):
        left = until - time.monotonic()
        # An expression may take for ever on one line, so the search itself is timed.
        if left <= 0 or wanted.search(line, timeout=left) is None:
            if left <= 0:
                raise TimeoutError
            continue
        first, last = max(shown + 1, index - around), min(len(lines) - 1, index + around)
        found = [_line(path, at, lines[at], at == index) for at in range(first, last + 1)]
        if around and shown >= 0 and first > shown + 1:
            found.insert(0, "--")
        shown = max(shown, last)
        yield found


def _line(path: str, index: int, line: str, matched: bool) -> str:
    mark = ":" if matched else "-"
    return f"{path}{mark}{index + 1}{mark} {line.rstrip()[:LINE_CHARACTERS_MAX]}"
