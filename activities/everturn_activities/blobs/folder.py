"""Contents by their digests in a folder; each is written once."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from everturn.errors import RuntimeUnavailable
from everturn_activities.blobs import digest_of


class FolderBlobs:
    """Contents that a power cut may take: they are found incomplete then, and None. OSError comes
    through as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, content: bytes) -> str:
        digest = digest_of(content)
        path = self.path(digest)
        with suppress(FileNotFoundError):
            # A power cut may have left less of it.
            if path.stat().st_size == len(content):
                # A sweep leaves alone what was in use of late.
                os.utime(path)
                return digest
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = part_of(path)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            self._written(file)
        part.replace(path)
        return digest

    def _written(self, file: IO[bytes]) -> None:
        """What a content needs before it has its name."""

    def get(self, digest: str) -> bytes | None:
        """None where it is kept no more, or not whole."""
        with suppress(FileNotFoundError):
            content = self.path(digest).read_bytes()
            if digest_of(content) == digest:
                return content
        return None

    def delete(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


class SyncedFolderBlobs(FolderBlobs):
    """Contents that rows name, so that each outlives a power cut as its row does."""

    def put(self, content: bytes) -> str:
        try:
            digest = super().put(content)
            # The names of the file and of its folder, whoever has made them.
            for folder in (self.path(digest).parent, self.folder):
                _sync(folder)
            return digest
        except OSError as error:
            raise self._away(error) from None

    def _written(self, file: IO[bytes]) -> None:
        file.flush()
        os.fsync(file.fileno())

    def get(self, digest: str) -> bytes | None:
        try:
            return super().get(digest)
        except OSError as error:
            raise self._away(error) from None

    def delete(self, digest: str) -> None:
        try:
            super().delete(digest)
        except OSError as error:
            raise self._away(error) from None

    def _away(self, error: OSError) -> RuntimeUnavailable:
        return RuntimeUnavailable(
            f"The blobs in {self.folder} cannot be reached: {error.strerror}."
        )


def part_of(path: Path) -> Path:
    """Where this thread, and no other, writes what will be at `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
