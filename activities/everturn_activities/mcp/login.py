"""everturn mcp login: a person signs in at a server, once for all workers of a home."""

import asyncio
from collections.abc import Callable

import httpx2
from mcp.client.auth import OAuthFlowError

from everturn.errors import ServerFailed
from everturn.hosts import Reach
from everturn.mcp import ServerConfig
from everturn_activities.mcp.callback import listening
from everturn_activities.mcp.oauth import SigningIn, is_private
from everturn_activities.mcp.remote import checked_client
from everturn_activities.mcp.sign_ins import Kept

PATIENCE_SECONDS = 600.0
"""How long a person may take."""

# Who is to be asked for a token a server says to whoever asks it anything.
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-06-18",
}


async def sign_in(
    name: str,
    config: ServerConfig,
    kept: Kept,
    told: Callable[[str], None],
    client_secret: str | None = None,
) -> None:
    """Have a person sign in, who is `told` where, and keep what comes of it.

    Raises ServerFailed, with the end of a sentence.
    """
    assert config.url is not None
    if not is_private(config.url):
        raise ServerFailed(
            "its address begins with http://, over which a token would be read by others; an"
            " address to sign in at begins with https://"
        )
    oauth = config.oauth
    async with listening(told) as callback:
        auth = SigningIn(
            config.url,
            callback,
            scope=oauth.scope if oauth is not None else None,
            client_id=oauth.client_id if oauth is not None else None,
            client_secret=client_secret,
        )
        try:
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                # Which server gives tokens is the server's to say; it may be any public one.
                checked_client(config.reach, {}, auth, lambda: Reach.of(None)) as client,
                client.stream("POST", config.url, json=_PING, headers=_HEADERS) as answer,
            ):
                status = answer.status_code
        except TimeoutError:
            raise ServerFailed(f"nobody did within {PATIENCE_SECONDS:g} s") from None
        except (OAuthFlowError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            # What follows on the first line may quote an answer, and that a token.
            said = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            raise ServerFailed(said[:300]) from None
        made = auth.made(name)
    if made is None:
        beside = "" if status == httpx2.codes.OK else f", and answers with the status {status}"
        raise ServerFailed(f"it asks nobody to{beside}")
    kept.write(made)
