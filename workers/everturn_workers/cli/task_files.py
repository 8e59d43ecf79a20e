"""Files of tasks: one JSON object a line, handed in by groups that are each one transaction."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from everturn.errors import UsageError
from everturn.inputs import BODY_BYTES_MAX, text_from_bytes
from everturn.tasks import TASKS_MAX, NewTask, checked_task

GROUP_BYTES_MAX = BODY_BYTES_MAX // 2


def read_tasks(file: str, common: dict[str, Any]) -> list[NewTask]:
    """The tasks of a file, or of stdin for `-`, with `common` where a line says nothing else.

    A line without an `id` has one of what it says and where it stands: the same file again
    names the same tasks.
    """
    tasks, seen = [], dict[str, int]()
    for number, line in enumerate(_read(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            given = orjson.loads(line)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise UsageError(f"Line {number} of {_name(file)} is no JSON object; mend it.")
        made = f"{number}-{hashlib.sha256(line.encode()).hexdigest()[:16]}"
        task = made_of({"id": made, **common, **given}, f"Line {number} of {_name(file)}")
        assert task.id is not None
        if task.id in seen:
            raise UsageError(
                f"Lines {seen[task.id]} and {number} of {_name(file)} have the same id"
                f" {task.id!r}; give each task one of its own."
            )
        seen[task.id] = number
        tasks.append(task)
    if not tasks:
        raise UsageError(f"There is no task in {_name(file)}; write one JSON object a line.")
    return tasks


def made_of(given: dict[str, Any], what: str) -> NewTask:
    """The task that `given` describes; UsageError says what of `what` is wrong."""
    try:
        return checked_task(NewTask.model_validate(given))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        at = f" in {field!r}" if field else ""
        raise UsageError(f"{what} is wrong{at}: {said[0].lower()}{said[1:]}.") from None


def groups(tasks: Sequence[NewTask]) -> Iterator[list[NewTask]]:
    """`tasks` in pieces that a request takes."""
    group: list[NewTask] = []
    size = 0
    for task in tasks:
        length = len(task.model_dump_json())
        if group and (len(group) == TASKS_MAX or size + length > GROUP_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(task)
        size += length
    if group:
        yield group


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"The file {file!r} cannot be read: {error.strerror}.") from None
    return text_from_bytes(raw, _name(file))


def _name(file: str) -> str:
    return "stdin" if file == "-" else file
