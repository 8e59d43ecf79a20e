"""Contents by their digests: in a folder, or at an address that speaks S3.

What a tool has changed in files is kept beside the records of it, always in the home folder. Texts
that are too large for rows of the store go where `EVERTURN_BLOBS_URL` says.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FORMS = "write s3://BUCKET/PREFIX or file:///FOLDER"


class Blobs(Protocol):
    """Contents by the SHA-256 of what they hold. Each method blocks: call it in a thread.

    Each raises RuntimeUnavailable while the place cannot be reached, with a sentence that names it
    and no secret of ours. Nothing is tried twice.
    """

    def put(self, content: bytes) -> str:
        """Keep `content`, durably; its digest. Doing it again is no harm."""
        ...

    def get(self, digest: str) -> bytes | None:
        """None where there is no such content, or it is not what its digest says."""
        ...

    def delete(self, digest: str) -> None:
        """Keep it no more; no harm where it is not there."""
        ...


@dataclass(frozen=True)
class Bucket:
    """A place that speaks S3; `endpoint` is None for Amazon's own."""

    name: str
    prefix: str
    endpoint: str | None = None

    def __str__(self) -> str:
        return f"s3://{self.name}/{self.prefix}".rstrip("/")


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def place_of(url: str, endpoint: str | None = None) -> Path | Bucket:
    """Where `url` says. Raises ValueError, with no word of the URL: it may hold a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"this is no URL; {_FORMS}") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"credentials and options do not belong into it; {_FORMS}, and give AWS_ACCESS_KEY_ID"
            " and AWS_SECRET_ACCESS_KEY as variables, or a file of AWS"
        )
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ValueError("a folder is written with three slashes: file:///FOLDER")
        return Path(unquote(parts.path))
    if parts.scheme != "s3":
        raise ValueError(f"this is no place for blobs; {_FORMS}")
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise ValueError(
            "a bucket's name has 3 to 63 small letters, digits, dots and hyphens:"
            " s3://BUCKET/PREFIX"
        )
    return Bucket(parts.netloc, parts.path.strip("/"), endpoint)


def checked_endpoint(url: str) -> str:
    """The same. Raises ValueError as `place_of` does."""
    try:
        parts = urlsplit(url)
        wrong = not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or parts.scheme not in ("http", "https") or parts.path.strip("/"):
        raise ValueError("an endpoint is http://HOST:PORT or https://HOST")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("credentials and options do not belong into it: https://HOST")
    return url


def opened(place: Path | Bucket) -> Blobs:
    if isinstance(place, Bucket):
        from everturn_activities.blobs.s3 import S3Blobs

        return S3Blobs(place)
    from everturn_activities.blobs.folder import SyncedFolderBlobs

    return SyncedFolderBlobs(place)
