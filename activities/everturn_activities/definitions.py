"""Reading settings and agents that people write, with errors that say where and what."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from everturn.errors import WorkspaceError
from everturn_activities import front_matter
from everturn_activities.trust import read_text

Model = TypeVar("Model", bound=BaseModel)

_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_LONG_STRING = re.compile(r'"""|' + r"'''")
_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[=:.]""")


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The tables of a TOML file, and its text."""
    text = read_text(path)
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        message = str(error).removesuffix(")").replace(" (at ", ", at ")
        raise WorkspaceError(f"{path} is not valid TOML: {message}; mend it there.") from None
    except RecursionError:
        raise WorkspaceError(f"{path} is nested too deeply; flatten it.") from None


def read_front_matter(path: Path) -> tuple[dict[str, Any], str, str]:
    """The keys of a Markdown file's front matter, its body, and the front matter's text.

    Lines of the text are those of the file.
    """
    try:
        found = front_matter.parse(read_text(path))
    except front_matter.FrontMatterError as error:
        where = f" line {error.line}" if error.line is not None else ""
        raise WorkspaceError(f"{path}{where} {error}.") from None
    return found.keys, found.body, found.raw


def validated(
    kind: type[Model],
    values: dict[str, Any],
    path: Path,
    text: str,
    within: tuple[str, ...] = (),
) -> Model:
    """`values` as a `kind`; `text` is searched for the line of what is wrong, where `values`
    stand in its table `within`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # An unknown key is often what a missing or wrong one was meant to be.
        found = error.errors(include_url=False)
        first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
    place = place_of(path, text, (*within, *first["loc"]))
    where = [str(part) for part in first["loc"] if not isinstance(part, int)]
    name = ".".join((*within, *where))
    if first["type"] == "extra_forbidden":
        known = _keys(kind, where[:-1])
        raise WorkspaceError(
            f"{place}: unknown key {name!r}{meant(where[-1], known)};"
            f" the keys there are {', '.join(known)}."
        )
    if first["type"] == "value_error":
        # Our own rules say themselves what is wrong with which value.
        raise WorkspaceError(f"{place}: {first['ctx']['error']}; mend it.")
    if first["type"] == "missing":
        raise WorkspaceError(f"{place}: the key {name!r} is missing; add it.")
    message = first["msg"][:1].lower() + first["msg"][1:]
    given = repr(first["input"])
    given = given if len(given) <= 80 else given[:80] + "..."
    if where and "key" in where[-1]:
        given = "not shown here"  # It may be the key itself.
    raise WorkspaceError(f"{place}: {name} is {given}, and the {message}; mend it.")


def place_of(path: Path, text: str, where: Sequence[str | int]) -> str:
    """`path`, with the line of the key `where` in `text` if it is found."""
    line = line_of(text, where)
    return f"{path} line {line}" if line else str(path)


def meant(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` without the question mark where a known name is near."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def line_of(text: str, where: Sequence[str | int]) -> int | None:
    """The line of a key in TOML or flat YAML, found by reading tables and keys only.

    Numbers in `where` are places in an array of tables: the line of such a table is the
    answer where it lacks the key.
    """
    plain = [part for part in where if isinstance(part, str)]
    table: list[str | int] = []
    arrays: dict[tuple[str, ...], int] = {}
    nearest, quoted = None, False
    for number, line in enumerate(text.splitlines(), start=1):
        inside, quoted = quoted, quoted ^ (len(_LONG_STRING.findall(line)) % 2 == 1)
        if inside:
            continue
        if heading := _TABLE.match(line):
            names = tuple(part.strip(" \"'") for part in heading[2].split("."))
            if heading[1] == "[[":
                arrays[names] = arrays.get(names, -1) + 1
            table = _numbered(names, arrays)
            if table in (list(where), plain):
                return number
            if isinstance(table[-1], int) and table == list(where[: len(table)]):
                nearest = number
        elif key := _KEY.match(line):
            named = [*table, key[1]]
            if named == list(where[: len(named)]) or named == plain[: len(named)]:
                return number
    return nearest


def _numbered(names: tuple[str, ...], arrays: dict[tuple[str, ...], int]) -> list[str | int]:
    """A table's names, with its place after each that is an array of tables."""
    table: list[str | int] = []
    for index, name in enumerate(names, start=1):
        table.append(name)
        if names[:index] in arrays:
            table.append(arrays[names[:index]])
    return table


def _keys(kind: type[BaseModel], where: list[str]) -> list[str]:
    for name in where:
        if name not in kind.model_fields:
            continue  # A name that a person gave, in a table of such.
        annotation = kind.model_fields[name].annotation
        for found in (annotation, *get_args(annotation)):
            if isinstance(found, type) and issubclass(found, BaseModel):
                kind = found
                break
        else:
            return []
    return list(kind.model_fields)
