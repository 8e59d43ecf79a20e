"""Where it is kept that somebody has signed in at a server: a file each, for nobody else to read.

Workers of one home share them: whoever renews a token holds the file's lock, and who comes next
finds the new one. Nothing of them is in the store, in a history or in a log.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from everturn.errors import ServerFailed

FOLDER = "oauth"
AHEAD_SECONDS = 30.0
"""A token that expires so soon is renewed before it is used."""
LOCK_SECONDS = 60.0
_LOCK_POLL_SECONDS = 0.05

Standing = Literal["signed in", "expired"]


@dataclass(frozen=True)
class SignIn:
    """What a person's consent came to. `tokens`, `client`, `metadata` and `resource` are as OAuth
    tells them; `hosts` are where tokens are renewed, beside the server's own. One that was
    `refused` is not to be renewed any more."""

    server: str
    url: str
    tokens: dict[str, Any]
    client: dict[str, Any]
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    hosts: tuple[str, ...] = ()
    expires_at: float | None = None
    refused: bool = False

    def is_fresh(self, now: float) -> bool:
        """Whether the token can be used without renewing it."""
        soon = self.expires_at is not None and self.expires_at - AHEAD_SECONDS < now
        return not (self.refused or soon)

    @property
    def can_renew(self) -> bool:
        return bool(self.tokens.get("refresh_token")) and not self.refused

    def standing(self, now: float) -> Standing:
        return "signed in" if self.can_renew or self.is_fresh(now) else "expired"

    def secrets(self) -> Iterator[str]:
        """What may not be told."""
        values = (
            self.tokens.get("access_token"),
            self.tokens.get("refresh_token"),
            self.client.get("client_secret"),
        )
        yield from (value for value in values if value)


class Kept:
    """The file of one server's sign-in."""

    def __init__(self, home: Path, workspace: str, server: str, url: str) -> None:
        name = "\0".join((workspace, server, url))
        self._folder = home / FOLDER
        self._path = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    def read(self) -> SignIn | None:
        """None where nobody has signed in, or what is there cannot be read."""
        try:
            found = json.loads(self._path.read_text("utf-8"))
            return SignIn(**{**found, "hosts": tuple(found["hosts"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, sign_in: SignIn) -> None:
        """Put it in place of what is there, at once and whole."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = self._path.with_suffix(f".{secrets.token_hex(4)}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(sign_in), file)
                file.flush()
                os.fsync(file.fileno())
            made.replace(self._path)
        except BaseException:
            with suppress(FileNotFoundError):
                made.unlink()
            raise

    def remove(self) -> bool:
        """Whether there was one."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    def refuse(self, refused: SignIn) -> None:
        """Remember that it is not to be renewed any more, where nobody has signed in anew."""
        if self.read() == refused:
            self.write(replace(refused, refused=True))

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """While nobody else renews it. A process that dies lets go."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + LOCK_SECONDS
            while not _has_locked(descriptor):
                if time.monotonic() > until:
                    raise ServerFailed("another worker does not get done with renewing its token")
                await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _has_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
