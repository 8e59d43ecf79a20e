"""From a file's text to the pieces that are found: at headings, else at blank lines."""

import re
from collections.abc import Iterator

from everturn_activities.knowledge import Chunk

CHARACTERS_MAX = 1_600
"""About 400 tokens: some paragraphs, or a function."""
HEADING_CHARACTERS_MAX = 200

_MARKDOWN = (".md", ".markdown", ".mdx", ".rst", ".txt")
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*\s*$")
_FENCE = re.compile(r"\s*(```|~~~)")


def chunks_of(path: str, text: str) -> list[Chunk]:
    """The pieces of a file, in order; none of a file that says nothing."""
    lines = text.splitlines()
    sections = _sections(lines) if path.lower().endswith(_MARKDOWN) else [("", 0, len(lines))]
    return [
        chunk for heading, start, end in sections for chunk in _pieces(lines, heading, start, end)
    ]


def _sections(lines: list[str]) -> list[tuple[str, int, int]]:
    """The headings that lines stand under, the outer ones first, and which lines those are."""
    sections: list[tuple[str, int, int]] = []
    open_headings: list[tuple[int, str]] = []
    begun, fenced = 0, False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        found = None if fenced else _HEADING.match(line)
        if found is None:
            continue
        if number > begun:
            sections.append((_joined(open_headings), begun, number))
        level = len(found[1])
        open_headings = [each for each in open_headings if each[0] < level]
        open_headings.append((level, found[2]))
        begun = number
    sections.append((_joined(open_headings), begun, len(lines)))
    return sections


def _joined(headings: list[tuple[int, str]]) -> str:
    return " > ".join(title for _, title in headings)[:HEADING_CHARACTERS_MAX]


def _pieces(lines: list[str], heading: str, start: int, end: int) -> Iterator[Chunk]:
    while start < end:
        if not lines[start].strip():
            start += 1
            continue
        stop = _stop(lines, start, end)
        text = "\n".join(lines[start:stop]).rstrip()
        # One line may be longer than a piece: then several pieces stand in the same line.
        for at in range(0, len(text), CHARACTERS_MAX):
            yield Chunk(start + 1, stop, heading, text[at : at + CHARACTERS_MAX])
        start = stop


def _stop(lines: list[str], start: int, end: int) -> int:
    """Where a piece that begins at `start` ends: before it is too long, and rather at the last
    blank line of its second half."""
    length, blank = 0, None
    for number in range(start, end):
        length += len(lines[number]) + 1
        if length > CHARACTERS_MAX:
            return blank or max(number, start + 1)
        if not lines[number].strip() and length > CHARACTERS_MAX // 2:
            blank = number
    return end
