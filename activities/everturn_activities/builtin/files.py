"""Reading, writing, editing and listing files of the working folder."""

import difflib
import fcntl
import fnmatch
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from everturn.errors import NotThere, ToolFailed
from everturn.tools import ToolContext, tool
from everturn_activities.builtin.inside import InsideContext
from everturn_activities.paths import Place, WorkingFolder, read_marks
from everturn_activities.threads import in_thread

FILE_BYTES_MAX = 10 * 1024 * 1024
ENTRIES_MAX = 50_000
_MARKS_MAX = 16
_LOCK_SECONDS = 5.0

FilePath = Annotated[str, Field(description="Path relative to the working folder.")]


@tool(effect="pure", quick=True, searches=True)
async def read_file(
    path: FilePath,
    context: ToolContext,
    first_line: Annotated[int, Field(ge=1, description="Line to begin at, from 1.")] = 1,
    lines: Annotated[
        int | None, Field(ge=1, description="How many lines; all of them if left out.")
    ] = None,
) -> str:
    """Read a text file of the working folder."""
    try:
        content = _read(context.working_dir, path, path)
    except ToolFailed:
        # A skill that the model was told of may lie outside of the working folder.
        found = await _of_skill(context, path)
        if found is None:
            raise
        content = _read(*found, path)
    text = _text(content, path)
    if first_line == 1 and lines is None:
        return text
    all_lines = text.splitlines(keepends=True)
    if first_line > max(len(all_lines), 1):
        raise ToolFailed(f"{path} has {len(all_lines)} lines; line {first_line} is past its end.")
    end = None if lines is None else first_line - 1 + lines
    return "".join(all_lines[first_line - 1 : end])


def _read(folder: Path, inside: str, path: str) -> bytes:
    with WorkingFolder(folder).reading(inside) as descriptor:
        return _content(descriptor, path)


async def _of_skill(context: ToolContext, path: str) -> tuple[Path, str] | None:
    """The folder of the skill that the model was told of at `path`, and the rest of the path."""
    if not isinstance(context, InsideContext) or context.services.skills is None:
        return None
    found = await context.services.skills.shelf(context.spec).folder(path)
    return None if found is None else (Path(found[0]), found[1])


@tool(effect="pure", quick=True, searches=True)
async def list_files(
    context: ToolContext,
    pattern: Annotated[
        str,
        Field(description="Pattern relative to the working folder; ** stands for any folders."),
    ] = "**",
    limit: Annotated[int, Field(ge=1, le=5000, description="How many paths at most.")] = 500,
) -> str:
    """List the files of the working folder whose paths match a pattern, one path a line.

    Symbolic links are listed and not followed; the insides of .git are left out.
    """
    return await in_thread(_list, WorkingFolder(context.working_dir), pattern, limit)


async def _preview_write(path: str, content: str, context: ToolContext) -> str:
    """What would change in the file, as a unified diff."""

    def preview() -> str:
        after = _text(_encoded(content, path), path)
        folder = WorkingFolder(context.working_dir, context.protected)
        before = ""
        with suppress(NotThere), folder.writing(path) as place, place.reading() as descriptor:
            before = _text(_content(descriptor, path), path)
        return _diff(path, before, after)

    return await in_thread(preview)


@tool(effect="idempotent", quick=True, preview=_preview_write)
async def write_file(path: FilePath, content: str, context: ToolContext) -> str:
    """Write a whole text file in the working folder, with the folders that it needs.

    A file that exists is replaced.
    """
    encoded = _encoded(content, path)

    def write() -> str:
        folder = WorkingFolder(context.working_dir, context.protected)
        with folder.writing(path, create_folders=True) as place:
            place.replace(encoded)
        return f"Wrote {len(encoded)} bytes to {path}."

    return await in_thread(write)


# An edit that ran once cannot be told from its text: after replacing "x" by "xy" the file
# still holds "x" once, and a second run would make "xyy". So each edit leaves its idempotency
# key on the file it writes, in an extended attribute that takes effect with the same rename,
# and a run that finds its own key there answers as the first one did: `keyed`, not `once`,
# because the file system is the other side that remembers the key. Where a file system has
# no such attributes, a repeated run that cannot tell says so and changes nothing.
async def _preview_edit(
    path: str, old: str, new: str, context: ToolContext, replace_all: bool = False
) -> str:
    """What would change in the file, as a unified diff."""

    def preview() -> str:
        folder = WorkingFolder(context.working_dir, context.protected)
        with folder.writing(path) as place, place.reading() as descriptor:
            before = _text(_content(descriptor, path), path)
        _occurrences(before, old, path, replace_all)
        return _diff(path, before, before.replace(old, new))

    return await in_thread(preview)


@tool(effect="keyed", quick=True, preview=_preview_edit)
async def edit_file(
    path: FilePath,
    old: Annotated[str, Field(min_length=1, description="Text to replace, exactly as it is.")],
    new: Annotated[str, Field(description="Text to put in its place.")],
    context: ToolContext,
    replace_all: Annotated[
        bool, Field(description="Replace every occurrence, instead of the only one.")
    ] = False,
) -> str:
    """Replace a piece of text in a file of the working folder.

    The old text must occur exactly once, unless replace_all is set.
    """
    return await in_thread(_edit, context, path, old, new, replace_all)


def _edit(context: ToolContext, path: str, old: str, new: str, replace_all: bool) -> str:
    folder = WorkingFolder(context.working_dir, context.protected)
    with folder.writing(path) as place, _locked(place) as descriptor:
        content = _content(descriptor, path)
        before = _text(content, path)
        marks = read_marks(descriptor)
        done = dict(mark.split("=", 1) for mark in (marks or "").split() if "=" in mark)
        key = hashlib.sha256(context.idempotency_key.encode()).hexdigest()[:32]
        if key in done:
            return _edited(path, int(done[key]))
        if context.attempt > 1 and marks is None:
            _refuse_unknown(path, before, old, new)
        count = _occurrences(before, old, path, replace_all)
        done[key] = str(count)
        kept = list(done.items())[-_MARKS_MAX:]
        after = _encoded(before.replace(old, new), path)
        place.replace(after, " ".join(f"{key}={count}" for key, count in kept))
        return _edited(path, count)


def _occurrences(before: str, old: str, path: str, replace_all: bool) -> int:
    """How often the old text is there. Raises ToolFailed where that is not as it must be."""
    count = before.count(old)
    if count == 0:
        raise ToolFailed(
            f"{path} does not contain the old text; read the file and give it exactly."
        )
    if count > 1 and not replace_all:
        raise ToolFailed(
            f"{path} contains the old text {count} times; give more of its surroundings"
            " to make it unique, or set replace_all."
        )
    return count


def _diff(path: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), path, path
    )
    # A last line without its end would run into what follows.
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _edited(path: str, count: int) -> str:
    return f"Edited {path}: replaced {count} occurrence{'s' if count != 1 else ''}."


def _refuse_unknown(path: str, before: str, old: str, new: str) -> None:
    """Refuse where the text leaves open whether an earlier attempt did the edit."""
    if new in before and (old not in before or old in new):
        raise ToolFailed(
            f"An earlier attempt of this edit was cut off, and {path} looks as if it may have"
            " been done; read the file before editing it again."
        )


@contextmanager
def _locked(place: Place) -> Iterator[int]:
    """The open file, locked against other edits until the block ends.

    An edit replaces the file, so whoever waited for the lock may hold that of a file that
    is no longer there, and opens it anew.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with place.reading() as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ToolFailed(
                        f"{place.path} has been locked for {_LOCK_SECONDS:.0f} s by another"
                        " process; try again later."
                    ) from None
                time.sleep(0.01)
                continue
            if place.is_still(descriptor):
                yield descriptor
                return


def _content(descriptor: int, path: str) -> bytes:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"{path} is a folder; list_files shows what is in it.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{path} is a special file, which cannot be read.")
    chunks: list[bytes] = []
    length = 0
    # Counted while reading: the file may grow, and the size of some is not told.
    while length <= FILE_BYTES_MAX and (chunk := os.read(descriptor, 1 << 20)):
        chunks.append(chunk)
        length += len(chunk)
    if length > FILE_BYTES_MAX:
        raise ToolFailed(
            f"{path} has {max(length, status.st_size)} bytes, and the limit is {FILE_BYTES_MAX}."
        )
    return b"".join(chunks)


def _text(content: bytes, path: str) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed(
            f"{path} is not a text file: byte {error.start} is not valid UTF-8."
        ) from None
    if "\0" in text:
        raise ToolFailed(f"{path} is not a text file: it contains NUL bytes.")
    return text


def _encoded(text: str, path: str) -> bytes:
    content = text.encode("utf-8", "replace")
    if len(content) > FILE_BYTES_MAX:
        raise ToolFailed(
            f"{path} would have {len(content)} bytes, and the limit is {FILE_BYTES_MAX}."
        )
    return content


def pattern_parts(pattern: str) -> tuple[str, ...]:
    """The parts of a pattern. Raises ToolFailed for one that leads out of the folder."""
    named = [part for part in pattern.split("/") if part not in ("", ".")]
    # Several `**` in a row say what one does, and each would cost time at every file.
    parts = tuple(
        part
        for part, after in zip(named, [*named[1:], ""], strict=True)
        if not part == after == "**"
    )
    if pattern.startswith("/") or ".." in parts:
        raise ToolFailed(
            f"Pattern {pattern!r} must be relative to the working folder, without '..'."
        )
    return parts


def _list(folder: WorkingFolder, pattern: str, limit: int) -> str:
    parts = pattern_parts(pattern)
    found: list[str] = []
    complete = True
    with folder.reading(".", folder=True) as root:
        for seen, path in enumerate(_files(root, into_git=parts[:1] == (".git",))):
            if seen >= ENTRIES_MAX:
                complete = False
                break
            if matches(parts, tuple(path.split("/"))):
                found.append(path)
    found.sort()
    if not complete:
        found.append(f"[... only the first {ENTRIES_MAX} files were looked at ...]")
    if len(found) > limit:
        found[limit:] = [f"[... {len(found) - limit} more; give a narrower pattern ...]"]
    return "\n".join(found) or f"No file matches {pattern}."


def _files(root: int, into_git: bool) -> Iterator[str]:
    """Paths of all files below an open folder; folders that are links are not entered."""
    for folder, folders, names, descriptor in os.fwalk(".", dir_fd=root, follow_symlinks=False):
        prefix = "" if folder == "." else folder[2:] + "/"
        for name in names:
            yield prefix + name
        for name in list(folders):
            if _is_link(name, descriptor):
                yield prefix + name
        if not into_git and not prefix and ".git" in folders:
            folders.remove(".git")
        folders.sort()


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def matches(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether a path's parts fit a pattern's; `**` fits any number of parts, at the end one
    or more.

    All places in the pattern that the path's beginning may have reached advance together,
    a part at a time: trying them one after the other takes exponential time.
    """
    last = len(pattern) - 1
    reached = {0}
    for part in path:
        following: set[int] = set()
        for place in reached:
            # A `**` that is not the last may also fit nothing.
            while place < last and pattern[place] == "**":
                following.add(place)
                place += 1
            if place > last:
                continue
            if pattern[place] == "**":
                following |= {place, place + 1}
            elif fnmatch.fnmatchcase(part, pattern[place]):
                following.add(place + 1)
        reached = following
    return len(pattern) in reached
