"""Addresses of servers that speak HTTP, as people write them."""

from urllib.parse import urlsplit

EXAMPLE = "http://HOST:PORT or https://HOST/PATH"


def checked_address(url: str) -> str:
    """The same, without a slash at its end. Raises ValueError, with no word of it: it may hold a
    password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"this is no address; write {EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"this is no address; write {EXAMPLE}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"a key does not belong into it; write {EXAMPLE}, and give EVERTURN_API_KEY"
        )
    return url.rstrip("/")
