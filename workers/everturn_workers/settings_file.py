"""The file of settings: which one is read, what it sets, and at which line."""

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everturn.errors import UsageError

NAME = "everturn.toml"
"""In the home folder. A workspace's file has the same name, and its folder is never the home."""

FORMER = "config.toml"
"""What the file was called before."""

_OF_A_FILE = frozenset({"config"})
"""What says where the file is cannot stand in it."""


@dataclass(frozen=True)
class SettingsFile:
    """What `path` sets, which need not exist; `lines` has where each name first stands."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, name: str) -> str:
        line = self.lines.get(name)
        return f"{self.path} line {line}" if line is not None else str(self.path)


def read_file(home: Path, named: Path | None, known: Collection[str]) -> SettingsFile:
    """The file that a person has `named`, else the one in the home folder.

    Raises UsageError where it is not there though it was named, cannot be read, or sets what is
    not `known`.
    """
    if named is not None:
        path = named.expanduser().absolute()
        if not path.is_file():
            raise UsageError(
                f"There is no settings file {path}, which --config or EVERTURN_CONFIG names; make"
                " it, or name another."
            )
        return _checked(_read(path), known)
    home = home.expanduser().absolute()
    _refuse_former(home)
    file = _checked(_read(home / NAME), known)
    if "home" in file.values:
        raise UsageError(
            f"{file.place('home')} names another home folder, which a file in the home folder"
            " cannot; set EVERTURN_HOME, or put the file elsewhere and name it by EVERTURN_CONFIG."
        )
    return file


def nearest(name: str, known: Collection[str]) -> str:
    """` (did you mean ...?)` where a known name is near."""
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _checked(file: SettingsFile, known: Collection[str]) -> SettingsFile:
    allowed = set(known) - _OF_A_FILE
    for name, value in file.values.items():
        if name not in allowed:
            raise UsageError(
                f"{file.place(name)}: unknown setting {name!r}{nearest(name, allowed)}; mend or"
                " remove it (what agents work with is set in a workspace's own file)."
            )
        if isinstance(value, dict) and name in ("agent", "model"):
            raise UsageError(
                f"{file.place(name)}: [{name}] belongs into a workspace's {NAME}; keep the home"
                " folder apart from workspaces: set EVERTURN_HOME to another folder."
            )
    return file


def _refuse_former(home: Path) -> None:
    """A file by the former name is refused where it sets anything: it would be ignored."""
    former = _read(home / FORMER)
    if former.values:
        raise UsageError(
            f"{home / FORMER} is called {NAME} now; rename it, or remove it where {NAME} has all"
            " that it sets."
        )


def _read(path: Path) -> SettingsFile:
    try:
        text = path.read_bytes().decode()
        values = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return SettingsFile(path)
    except OSError as error:
        raise UsageError(
            f"The settings file {path} cannot be read: {error.strerror}; mend or remove it."
        ) from None
    except ValueError as error:
        # Of bytes that are no UTF-8 the error would quote some.
        why = "it is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UsageError(
            f"The settings file {path} cannot be read: {why}; mend or remove it."
        ) from None
    return SettingsFile(path, values, _lines(text, values))


def _lines(text: str, names: Collection[str]) -> dict[str, int]:
    """Where each of `names` first stands, as a key before all tables or in a table's head."""
    found: dict[str, int] = {}
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        head = stripped.startswith("[")
        if in_table and not head:
            continue
        in_table = in_table or head
        if match := re.match(r"\[*\s*[\"']?([\w-]+)", stripped):
            name = match.group(1)
            if name in names:
                found.setdefault(name, number)
    return found
