"""The secrets of a process: read where they are, at use, and kept out of all that is said."""

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from everturn.errors import SecretMissing
from everturn.scrubbing import SECRET_CHARACTERS_MIN, Scrubber, secrets_of
from everturn.secrets import SecretSource

FILE_BYTES_MAX = 64 * 1024
_SECRET_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


def secret_names(environ: Mapping[str, str]) -> list[str]:
    """The variables whose names say that they hold a secret."""
    return [name for name in environ if name.endswith(_SECRET_ENDINGS) and environ[name]]


@dataclass(frozen=True)
class _Read:
    mark: tuple[int, int, int]
    value: str


class Vault:
    """Values by the names that a workspace's settings give them.

    `scrubber` knows every value that was ever read here, and from the start those of
    `environ` that providers are called with.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.scrubber = Scrubber()
        self.environ = environ
        self._files: dict[Path, _Read] = {}
        self._reading = threading.Lock()
        for name in secret_names(environ):
            self.scrubber.learn(name, environ[name])
        for name, value in environ.items():
            for secret in _of_url(value) if name.endswith("_URL") else ():
                self.scrubber.learn(name, secret)

    def variable(self, name: str) -> str | None:
        """A provider's key, by its variable."""
        value = self.environ.get(name)
        if value:
            self.scrubber.learn(name, value)
        return value

    def keys(self) -> tuple[str, ...]:
        """The values of all variables whose names say that they hold a secret."""
        return tuple(self.environ[name] for name in secret_names(self.environ))

    def value(self, root: Path, secrets: Mapping[str, SecretSource], name: str) -> str:
        """The secret of the workspace `root` that is called so.

        Raises SecretMissing. A keyring may make a person wait, so that is for a thread.
        """
        source = secrets.get(name)
        if source is None:
            known = f"; it names {', '.join(sorted(secrets))}" if secrets else ""
            raise SecretMissing(
                f"The workspace names no secret {name}{known}: add it to [secrets] of its settings."
            )
        value = self._found(root, name, source).strip()
        if len(value) < SECRET_CHARACTERS_MIN:
            raise SecretMissing(
                f"Secret {name} has fewer than {SECRET_CHARACTERS_MIN} characters, so it could not"
                " be kept out of what is said; choose a longer one."
            )
        self.scrubber.learn(name, value)
        return value

    def know(self, root: Path, secrets: Mapping[str, SecretSource]) -> None:
        """Learn the values that a tool could come upon by itself: variables and files."""
        for name, source in secrets.items():
            if source.keyring is not None:
                continue
            try:
                self.value(root, secrets, name)
            except SecretMissing:
                continue

    def missing(
        self, root: Path, secrets: Mapping[str, SecretSource], names: Iterable[str]
    ) -> dict[str, str]:
        """Why those of `names` cannot be had that cannot."""
        reasons = {}
        for name in names:
            try:
                self.value(root, secrets, name)
            except SecretMissing as error:
                reasons[name] = str(error)
        return reasons

    def _found(self, root: Path, name: str, source: SecretSource) -> str:
        if source.env is not None:
            value = self.environ.get(source.env)
            if not value:
                raise SecretMissing(f"Secret {name} is missing: set the variable {source.env}.")
            return value
        if source.file is not None:
            return self._of_file(root, name, source.file)
        assert source.keyring is not None
        return _of_keyring(name, source.keyring)

    def _of_file(self, root: Path, name: str, file: str) -> str:
        try:
            path = root / Path(file).expanduser()
            status = path.stat()
            mark = (status.st_mtime_ns, status.st_size, status.st_ino)
            with self._reading:
                known = self._files.get(path)
                if known is not None and known.mark == mark:
                    return known.value
                with open(path, "rb", opener=_at_once) as opened:
                    content = opened.read(FILE_BYTES_MAX + 1)
                if len(content) > FILE_BYTES_MAX:
                    raise SecretMissing(
                        f"The file {file} of secret {name} is longer than {FILE_BYTES_MAX:,} bytes;"
                        " shorten it."
                    )
                value = content.decode()
                self._files[path] = _Read(mark, value)
        except UnicodeDecodeError:
            raise SecretMissing(
                f"The file {file} of secret {name} is not valid UTF-8; save it as text."
            ) from None
        except (OSError, RuntimeError, ValueError) as error:
            # The last two of a home that nobody has, and of a NUL in a name.
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise SecretMissing(
                f"The file {file!r} of secret {name} cannot be read: {reason}; mend that."
            ) from None
        return value


def _at_once(path: str, flags: int) -> int:
    # A pipe that nobody writes to would be waited for.
    return os.open(path, flags | os.O_NONBLOCK)


def _of_url(url: str) -> Iterable[str]:
    try:
        return secrets_of(urlsplit(url))
    except ValueError:
        return ()


def _of_keyring(name: str, place: str) -> str:
    from everturn_activities import keyrings

    service, _, user = place.partition("/")
    return keyrings.password(name, service, user)
