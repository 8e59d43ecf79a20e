"""Secret settings: read from the files that `EVERTURN_<NAME>_FILE` name, and masked to be shown."""

from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from everturn.errors import UsageError
from everturn.scrubbing import is_secret_name, secrets_of

PREFIX = "EVERTURN_"
FILE = "_FILE"
FILE_BYTES_MAX = 64 * 1024
MASK = "***"


def variable(name: str) -> str:
    return PREFIX + name.upper()


def file_variable(name: str) -> str:
    return variable(name) + FILE


def from_files(names: Collection[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values of those of `names` whose variables name a file, as containers' secrets do.

    Raises UsageError where the file cannot be read, is empty, or where the value is given too.
    """
    given = {name.upper(): value for name, value in environ.items()}
    found = {}
    for name in names:
        asked = file_variable(name)
        path = given.get(asked)
        if path is None:
            continue
        if variable(name) in given:
            raise UsageError(f"Both {variable(name)} and {asked} are set; unset one of them.")
        found[name] = _content(Path(path), asked)
    return found


def masked(name: str, value: str) -> str:
    """What may be shown of a secret: of a URL what leads to the server, else nothing."""
    return masked_url(value) if name.endswith("_url") else MASK


def masked_url(url: str) -> str:
    """`url` without password, and without what its query says that may be one."""
    parts = _parts(url)
    if parts is None:
        return MASK
    user, _, host = parts.netloc.rpartition("@")
    if user:
        name, colon, _ = user.partition(":")
        host = f"{name}{colon}{MASK if colon else ''}@{host}"
    query = parse_qsl(parts.query, keep_blank_values=True)
    told = "&".join(f"{key}={MASK if is_secret_name(key) else value}" for key, value in query)
    return f"{parts.scheme}://{host}{parts.path}{'?' if told else ''}{told}"


def server_of(url: str) -> str:
    """Host and port that a URL names, for a sentence."""
    parts = _parts(url)
    return parts.netloc.rpartition("@")[2] if parts is not None else "its address"


def parts_to_hide(name: str, value: str) -> tuple[str, ...]:
    """What of a secret must show nowhere: of a URL its passwords, as they stand and decoded."""
    parts = _parts(value) if name.endswith("_url") else None
    return (value,) if parts is None else tuple(secrets_of(parts))


def _parts(url: str) -> SplitResult | None:
    """The parts of a URL; None where it is none whose parts could be told apart for sure."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    # A password with a sign that separates parts of a URL ends up in the parts behind.
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    return parts if parts.scheme and "://" in url and "@" not in behind else None


def _content(path: Path, asked: str) -> str:
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise UsageError(
                f"{asked} names {path}, which is longer than {FILE_BYTES_MAX:,} bytes; name the"
                " file that holds the secret alone."
            )
        value = content.decode().strip()
    except OSError as error:
        raise UsageError(
            f"{asked} names {path}, which cannot be read: {error.strerror}; mend or unset it."
        ) from None
    except ValueError:
        raise UsageError(f"{asked} names {path}, which is not valid UTF-8; mend it.") from None
    if not value:
        raise UsageError(f"{asked} names {path}, which is empty; fill it, or unset {asked}.")
    return value
