"""Which entries of a third-party store are verified: what a person has seen, byte for byte.

A store is a folder with one folder for each skill, and a file `SHA256SUMS` as `sha256sum`
writes it: `sha256sum pdf/* > SHA256SUMS`, run in the store once its skills were read. An
entry is verified while its folder has just the files that are listed there, unchanged, and
no link. Whatever else lies in a store does not exist for any agent.
"""

import hashlib
import os
import re
import stat

from everturn_activities.texts import Stamp, UnreadableError, read, stamp

SUMS_FILE = "SHA256SUMS"
FILES_MAX = 1000
ENTRY_BYTES_MAX = 64 * 1024 * 1024
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?(.+)")

Seen = tuple[tuple[str, Stamp], ...]


class Verifier:
    """Looks whether entries are verified, and at their content only when it has changed."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Stamp, dict[str, dict[str, str]]]] = {}
        self._verdicts: dict[str, tuple[object, str | None]] = {}

    def why_not(self, store: str, name: str, shown: str) -> str | None:
        """Why the entry `name` of a store does not count, as a sentence; None where it does."""
        try:
            listed = self._listed(store, os.path.dirname(shown)).get(name)
        except UnreadableError as error:
            return str(error)
        if listed is None:
            return f"The skill {shown} is not verified, as {SUMS_FILE} does not list it."
        folder = f"{store}/{name}"
        try:
            seen = _seen(folder)
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            return f"The skill {shown} is not verified: {said}."
        key = (seen, tuple(sorted(listed.items())))
        known = self._verdicts.get(folder)
        if known is None or known[0] != key:
            known = self._verdicts[folder] = (key, _difference(folder, seen, listed))
        if known[1] is None:
            return None
        return f"The skill {shown} is not verified: {known[1]}."

    def _listed(self, store: str, shown: str) -> dict[str, dict[str, str]]:
        """The digests of each entry's files, by the entry's name and the path in it."""
        file = f"{store}/{SUMS_FILE}"
        try:
            found = stamp(os.stat(file))
        except OSError:
            return {}
        known = self._sums.get(file)
        if known is None or known[0] != found:
            found, text = read(file, f"{shown}/{SUMS_FILE}")
            entries: dict[str, dict[str, str]] = {}
            for line in text.splitlines():
                if (match := _LINE.fullmatch(line)) is not None:
                    entry, _, path = match[2].partition("/")
                    entries.setdefault(entry, {})[path] = match[1].lower()
            known = self._sums[file] = (found, entries)
        return known[1]


def _seen(folder: str) -> Seen:
    found: list[tuple[str, Stamp]] = []
    size = 0
    for parent, folders, names in os.walk(folder, followlinks=False):
        for name in (*folders, *names):
            path = f"{parent}/{name}"
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                continue
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{path[len(folder) + 1 :]} is a link or a special file")
            size += status.st_size
            found.append((path[len(folder) + 1 :], stamp(status)))
            if len(found) > FILES_MAX or size > ENTRY_BYTES_MAX:
                raise ValueError(
                    f"it has more than {FILES_MAX:,} files or {ENTRY_BYTES_MAX:,} bytes"
                )
    return tuple(sorted(found))


def _difference(folder: str, seen: Seen, listed: dict[str, str]) -> str | None:
    names = {name for name, _ in seen}
    for name in sorted(names ^ set(listed)):
        return f"{name} is not listed" if name in names else f"{name} is listed and missing"
    for name in sorted(names):
        try:
            with open(f"{folder}/{name}", "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if digest != listed[name]:
            return f"{name} has changed since"
    return None
