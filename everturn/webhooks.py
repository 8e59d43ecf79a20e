"""Webhooks: who is told of what happens, how that is signed, and when it is sent again."""

import base64
import binascii
import hashlib
import hmac
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from everturn.messages import Frozen
from everturn.secrets import UPPER_NAME

URL_CHARACTERS_MAX = 2_000
ATTEMPTS_MAX = 12
FIRST_SECONDS = 5.0
LONGEST_SECONDS = 3600.0
"""So a delivery is given up about two and a half hours after the first attempt."""

GONE = 410
"""By this status a receiver says that it wants nothing more."""

_BASE64 = "whsec_"
_USER_AGENT = "everturn"

WebhookState = Literal["waits", "delivered", "dead"]


class Webhook(Frozen):
    """Who is told: `secret` is the name of the secret, among those of the workspace's settings,
    by which each delivery is signed."""

    url: str = Field(max_length=URL_CHARACTERS_MAX)
    secret: str = Field(pattern=UPPER_NAME)

    @field_validator("url")
    @classmethod
    def _of_the_web(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it is no URL of the web; write one such as https://example.com/hook")
        try:
            _ = parts.port
        except ValueError:
            raise ValueError("its port is not one from 1 to 65535") from None
        if parts.username or parts.password:
            raise ValueError("a URL with a user or a password in it is not called; leave them out")
        return url


class WebhookView(Frozen):
    """A delivery: what is told of which session, and how that went so far."""

    id: str
    session: str
    task: str | None
    type: str
    url: str
    state: WebhookState
    attempts: int
    reason: str | None
    """Why the last attempt failed."""
    created_at: float
    due_at: float | None
    """When it is sent next."""


class WebhookPage(Frozen):
    """Answer of `GET /v1/webhooks`, the newest first; `before` gives the next page."""

    webhooks: tuple[WebhookView, ...]
    before: str | None


def signed_headers(secret: str, id: str, seconds: int, body: bytes) -> dict[str, str]:  # noqa: A002
    """The headers of a delivery, as Standard Webhooks has them.

    The signature is of id, time and body together, so that none can be put in another's
    place. A secret that begins with `whsec_` is taken for base64, as that standard says.
    """
    told = f"{id}.{seconds}.".encode() + body
    made = hmac.new(_key(secret), told, hashlib.sha256).digest()
    return {
        "User-Agent": _USER_AGENT,
        "Content-Type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }


def _key(secret: str) -> bytes:
    if secret.startswith(_BASE64):
        try:
            return base64.b64decode(secret.removeprefix(_BASE64), validate=True)
        except (binascii.Error, ValueError):
            pass
    return secret.encode()


def pause_seconds(attempts: int, spread: float) -> float:
    """How long to wait after so many `attempts` failed: the double each time, and by `spread`,
    from 0 to 1, up to a fifth more or less, so that not all come back at one moment."""
    longest: float = min(FIRST_SECONDS * 2.0 ** min(attempts - 1, 16), LONGEST_SECONDS)
    return longest * (0.8 + 0.4 * spread)


def host_and_port(url: str) -> tuple[str, int]:
    """Where a webhook's URL leads."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def refusal(status: int) -> str | None:
    """Why an answer is no acknowledgement; None where it is one."""
    if 200 <= status < 300:
        return None
    if status == GONE:
        return "The receiver wants nothing more (HTTP 410)."
    if 300 <= status < 400:
        return f"The receiver redirects (HTTP {status}), and that is not followed."
    return f"The receiver answered HTTP {status}."
