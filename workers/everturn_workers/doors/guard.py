"""What every request passes before any route: host, origin, key, media type, size.

Plain ASGI and deny by default: a new route is behind it without being told so. Decisions
are made on `scope["path"]`, which is what the router matches; a URL rebuilt from headers
is not.
"""

import hmac
import ipaddress
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everturn.errors import UsageError
from everturn.inputs import BODY_BYTES_MAX, MESSAGE_BODY_BYTES_MAX
from everturn_workers.doors.problems import problem
from everturn_workers.doors.routes import is_served
from everturn_workers.settings import Settings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/healthz"})
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
_SWARMS = re.compile(r"/v1/swarms(/[^/]+/items)?")
_MESSAGES = re.compile(r"/v1/sessions/[^/]+/(messages|import)")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def demand_key(settings: Settings) -> None:
    """Refuse to listen to a network without a key."""
    if settings.api_key is not None and not settings.api_key.get_secret_value().strip():
        raise UsageError("EVERTURN_API_KEY is empty; set a long random text, or unset it.")
    if settings.api_key is None and not is_loopback(settings.host):
        raise UsageError(
            f"Host {settings.host!r} is reachable from other machines and no key is set; set"
            " EVERTURN_API_KEY, or listen on 127.0.0.1."
        )


class Guard:
    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        key = settings.api_key
        self._authorization = (
            f"Bearer {key.get_secret_value()}".encode() if key is not None else None
        )
        # Where we listen on every address, any name may be ours; then the key is compulsory,
        # and a page that rebinds a name does not have it.
        self._hosts = (
            None
            if settings.host in ("0.0.0.0", "::")  # noqa: S104
            else LOOPBACK_NAMES | {settings.host.lower()}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # We speak no WebSocket; a handshake that is not accepted is refused.
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refusal(scope)
        reads = scope["method"] not in _BODILESS and is_served(scope)
        if refused is None and reads:
            refused = self._refused_body(scope)
        if refused is None and reads:
            body = await self._body(scope, receive)
            if body is None:
                refused = self._too_large(scope)
            else:
                receive = _replay(body, receive)
        if refused is None:
            await self._app(scope, receive, send)
        else:
            status, detail, headers = refused
            await problem(status, detail, headers=headers)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        """Why the request goes no further, from its head alone."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and _name(host) not in self._hosts:
            return 421, f"Host {host[:80]!r} is not served here; use 127.0.0.1.", {}
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() not in (
            f"http://{host}",
            f"https://{host}",
        ):
            return 403, "Requests from pages of another origin are refused; use a program.", {}
        if self._authorization is not None and scope["path"] not in OPEN_PATHS:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._authorization):
                detail = "The key is missing or wrong; send 'Authorization: Bearer KEY'."
                return 401, detail, {"www-authenticate": "Bearer"}
        return None

    def _refused_body(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        """Why the body is not read, from the request's head alone."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        # A form's body has a type; a request without a body has none.
        if media_type != b"application/json" and not _is_empty(headers):
            return 415, "The body must be JSON; send 'Content-Type: application/json'.", {}
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return 415, "Compressed bodies are not taken; send the body as it is.", {}
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > _bytes_max(scope):
            return self._too_large(scope)
        return None

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body, or None where it is above its limit."""
        pieces, size, limit = [], 0, _bytes_max(scope)
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b""
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                return None
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def _too_large(self, scope: Scope) -> tuple[int, str, dict[str, str]]:
        limit = _bytes_max(scope)
        return (
            413,
            f"The body is above the limit of {limit // (1024 * 1024)} MiB; {_mend(scope)}.",
            # What is left of the body would be taken for the next request.
            {"connection": "close"},
        )


def _is_empty(headers: dict[bytes, bytes]) -> bool:
    """Whether a request has no body, as its head says."""
    return (
        b"content-type" not in headers
        and b"transfer-encoding" not in headers
        and headers.get(b"content-length", b"0") == b"0"
    )


def _bytes_max(scope: Scope) -> int:
    return MESSAGE_BODY_BYTES_MAX if _MESSAGES.fullmatch(scope["path"]) else BODY_BYTES_MAX


def _mend(scope: Scope) -> str:
    if _SWARMS.fullmatch(scope["path"]):
        return (
            "begin the swarm with 'open', and send its items in pieces to /v1/swarms/{id}/items;"
            " put what is large in an item into a file and name the file"
        )
    return "put large content into a file of the working folder and name the file in the message"


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, then what the connection says."""
    told = False

    async def replayed() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
