"""Signing in at a server by OAuth, with the official SDK's client, and using what came of it."""

import ipaddress
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from pydantic import AnyUrl, ValidationError

from everturn_activities.mcp.callback import Callback
from everturn_activities.mcp.sign_ins import Kept, SignIn

NAME = "Everturn"


def _metadata(redirect: str, scope: str | None, secret: bool) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name=NAME,
        redirect_uris=[AnyUrl(redirect)],
        scope=scope,
        token_endpoint_auth_method="client_secret_post" if secret else "none",
    )


class _Memory:
    """The tokens of a sign-in that is under way."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class SigningIn(OAuthClientProvider):
    """The SDK's flow, from discovery and registration to the tokens, for a person who is there."""

    def __init__(
        self,
        url: str,
        callback: Callback,
        scope: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
    ) -> None:
        metadata = _metadata(callback.address, scope, client_secret is not None)
        client = None
        if client_id is not None:
            client = OAuthClientInformationFull(
                client_id=client_id,
                client_secret=client_secret,
                redirect_uris=metadata.redirect_uris,
                token_endpoint_auth_method=metadata.token_endpoint_auth_method,
            )
        self._known = client is not None
        self._memory = _Memory(client)
        self._callback = callback
        super().__init__(url, metadata, self._memory, self._show, self._answered)

    async def _show(self, address: str) -> None:
        for url in (address, self._get_token_endpoint()):
            if not is_private(url):
                host = httpx2.URL(url).host
                raise OAuthFlowError(
                    f"it sends to an address of {host} that begins with http://, over which a token"
                    " would be read by others; it is to name one that begins with https://"
                )
        await self._callback.show(address)

    async def _answered(self) -> AuthorizationCodeResult:
        answer = await self._callback.answer()
        return AuthorizationCodeResult(
            code=answer["code"], state=answer["state"], iss=answer.get("iss")
        )

    def made(self, server: str) -> SignIn | None:
        """What came of it; None where nobody was asked."""
        tokens, client, context = self._memory.tokens, self._memory.client, self.context
        if tokens is None or client is None:
            return None
        if self._known:
            # Where its secret is the settings say.
            client = client.model_copy(update={"client_secret": None})
        endpoint = httpx2.URL(self._get_token_endpoint())
        port = endpoint.port or (443 if endpoint.scheme == "https" else 80)
        return SignIn(
            server=server,
            url=context.server_url,
            tokens=_plain(tokens),
            client=_plain(client),
            metadata=_plain(context.oauth_metadata),
            resource=_plain(context.protected_resource_metadata),
            hosts=(f"{endpoint.host}:{port}",),
            expires_at=_expires_at(tokens),
        )


def is_private(url: str) -> bool:
    """Whether nobody between reads what is sent there."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


class SignedIn(OAuthClientProvider):
    """Sends a kept token with each request, and renews it. There is nobody to ask: what is wrong
    with it stands as an answer of 401. `learn` is told each value that nobody else may be told."""

    def __init__(
        self, url: str, kept: Kept, learn: Callable[[str], None], client_secret: str | None = None
    ) -> None:
        self._kept = kept
        self._learn = learn
        self._secret = client_secret
        self._found: SignIn | None = None
        super().__init__(url, _metadata("http://127.0.0.1/", None, client_secret is not None), self)

    # The SDK's storage of tokens.
    async def get_tokens(self) -> OAuthToken | None:
        return self.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        before = self._found
        assert before is not None
        if self._kept.read() == before:
            expires_at = _expires_at(tokens)
            self._kept.write(replace(before, tokens=_plain(tokens) or {}, expires_at=expires_at))
        # Where somebody has signed in anew, or out, meanwhile, that stands.
        self._take(self._kept.read())

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.context.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("nothing is registered without a person")

    def _take(self, found: SignIn | None) -> None:
        self._found = found
        context = self.context
        if found is None:
            context.clear_tokens()
            return
        for value in found.secrets():
            self._learn(value)
        client = dict(found.client)
        if self._secret is not None:
            client["client_secret"] = self._secret
        context.current_tokens = OAuthToken.model_validate(found.tokens)
        context.client_info = OAuthClientInformationFull.model_validate(client)
        if found.metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(found.metadata)
        if found.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                found.resource
            )

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        self.context.protocol_version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        # Read anew: somebody may have signed in, or out, meanwhile.
        self._take(self._kept.read())
        if self._found is not None and not self._found.is_fresh(time.time()):
            async for step in self._renewing(None):
                response = yield step
                await self._renewed(response)
        sent = self._authorize(request)
        response = yield request
        if response.status_code == 401 and sent is not None:
            async for step in self._renewing(sent):
                answer = yield step
                await self._renewed(answer)
            # The last answer is the caller's, and that to a renewal is none of its business.
            self._authorize(request)
            yield request

    def _authorize(self, request: httpx2.Request) -> str | None:
        """The token that the request is sent with."""
        request.headers.pop("Authorization", None)
        if self._found is None or self._found.refused:
            return None
        self._add_auth_header(request)
        return str(self._found.tokens["access_token"])

    async def _renewing(self, sent: str | None) -> AsyncGenerator[httpx2.Request, None]:
        """The request that renews the token, unless another worker has: then it is another than
        was `sent`, or is fresh."""
        async with self._kept.locked():
            found = self._kept.read()
            self._take(found)
            if found is None or not found.can_renew:
                return
            if sent is None and found.is_fresh(time.time()):
                return
            if sent is not None and found.tokens["access_token"] != sent:
                return
            yield await self._refresh_token()

    async def _renewed(self, response: httpx2.Response) -> None:
        before = self._found
        assert before is not None
        content = await response.aread()
        # Else it was too busy, or something in between answered, such as a page of a proxy's: that
        # says nothing of the sign-in. The SDK would quote it in a log.
        if response.status_code == 200 and _is_token(content):
            await self._handle_refresh_response(response)
        elif response.status_code in (400, 401) or _is_refusal(response.status_code, content):
            # Revoked, or used up: only a person can mend that.
            self._kept.refuse(before)
            self._take(self._kept.read())


def _is_token(content: bytes) -> bool:
    try:
        return bool(OAuthToken.model_validate_json(content).access_token)
    except ValidationError:
        return False


def _is_refusal(status: int, content: bytes) -> bool:
    """Whether it says so as OAuth does, which some servers do with a status of 200."""
    with suppress(ValueError):
        said = json.loads(content)
        return status == 200 and isinstance(said, dict) and "error" in said
    return False


def _expires_at(tokens: OAuthToken) -> float | None:
    return None if tokens.expires_in is None else time.time() + tokens.expires_in


def _plain(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)
