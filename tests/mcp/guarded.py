"""A server of MCP that wants to know who is there, and says where to sign in: the SDK's own."""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl


@dataclass
class Guarded:
    """Whoever asks is let in, for `seconds`; `renewals` counts tokens that were made anew."""

    url: str = ""
    seconds: int = 3600
    refuses: bool = False
    renewals: int = 0
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    renewing: dict[str, RefreshToken] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)

    def forget(self) -> None:
        """Know no token any more."""
        self.tokens.clear()
        self.renewing.clear()

    # What the SDK asks of who gives tokens.
    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        back = str(params.redirect_uri)
        if self.refuses:
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(back, code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.pop(authorization_code, None)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        return self._made(str(client.client_id), authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        # Each is good for one use, as the best of them are.
        return self.renewing.pop(refresh_token, None)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.renewals += 1
        return self._made(str(client.client_id), refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.tokens.pop(token.token, None)

    async def exchange_identity_assertion(self, *arguments: Any) -> OAuthToken:
        raise NotImplementedError

    def _made(self, client: str, resource: str | None) -> OAuthToken:
        access, renew = f"access-{secrets.token_hex(16)}", f"renew-{secrets.token_hex(16)}"
        self.given += [access, renew]
        self.tokens[access] = AccessToken(
            token=access, client_id=client, scopes=[], resource=resource
        )
        self.renewing[renew] = RefreshToken(
            token=renew, client_id=client, scopes=[], resource=resource
        )
        return OAuthToken(access_token=access, refresh_token=renew, expires_in=self.seconds)


@asynccontextmanager
async def guarded(**more: Any) -> AsyncIterator[Guarded]:
    """The server on a free port, until the block ends; its tool `who` says hello."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        guard = Guarded(f"{origin}/mcp", **more)
        server = MCPServer(
            "guarded",
            auth_server_provider=guard,
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(origin),
                resource_server_url=AnyHttpUrl(guard.url),
                client_registration_options=ClientRegistrationOptions(enabled=True),
                validate_token_resource=True,
            ),
        )

        @server.tool()
        def who() -> str:
            return "Hello, you."

        async with serving(server.streamable_http_app(), listener):
            yield guard


class _Quiet(uvicorn.Server):
    """Signals are the test's."""

    def capture_signals(self) -> Any:
        return nullcontext()


@asynccontextmanager
async def serving(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """Serve `app` there until the block ends."""
    running = _Quiet(uvicorn.Config(app, log_level="error", access_log=False))
    task = asyncio.create_task(running.serve(sockets=[listener]))
    while not running.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        running.should_exit = True
        await task


@dataclass
class Faulty:
    """A server whose next calls are answered by `statuses` of HTTP, one each, and then by it."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        message = await receive()
        body = message["body"]
        status = None
        if b'"server/discover"' in body:
            # So both sides speak the protocol that knows sessions.
            status = 405
        elif b'"tools/call"' in body and self.statuses:
            status = self.statuses.pop(0)
        if status is None:
            given = [message]

            async def again() -> Any:
                return given.pop() if given else await receive()

            await self.app(scope, again, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def faulty(*statuses: int) -> AsyncIterator[Faulty]:
    """The server on a free port, until the block ends; its tool `who` says hello."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = MCPServer("faulty")

        @server.tool()
        def who() -> str:
            return "Hello, you."

        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        made = Faulty(url, list(statuses), server.streamable_http_app())
        async with serving(made, listener):
            yield made
