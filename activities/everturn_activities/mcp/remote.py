"""HTTP to servers at addresses: only to checked addresses of hosts that may be reached."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpcore2
import httpx2

from everturn.errors import ServerFailed, ToolFailed
from everturn.hosts import Reach
from everturn_activities.egress import addresses

CONNECT_SECONDS = 30.0

NOWHERE = Reach(())


@asynccontextmanager
async def checked_client(
    reach: Reach,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None = None,
    also: Callable[[], Reach] = lambda: NOWHERE,
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that gets to what `reach` or `also` allow, whatever it is asked or led to.

    Raises ServerFailed where something else was asked for.
    """
    backend = _Checked(reach, also)
    transport = httpx2.AsyncHTTPTransport(trust_env=False)
    # Its own pool would look names up by itself.
    await transport._pool.aclose()
    transport._pool = httpcore2.AsyncConnectionPool(
        ssl_context=httpx2.create_ssl_context(trust_env=False), network_backend=backend
    )
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
    client = httpx2.AsyncClient(
        transport=transport, headers=dict(headers), timeout=timeout, trust_env=False, auth=auth
    )
    try:
        async with client:
            yield client
    except BaseException:
        if backend.refused is not None:
            raise ServerFailed(backend.refused) from None
        raise


class _Checked(httpcore2.AsyncNetworkBackend):
    """Connects to the checked addresses of a host; TLS still asks for the host's certificate."""

    def __init__(self, reach: Reach, also: Callable[[], Reach]) -> None:
        self._reach = reach
        self._also = also
        self._inner = httpcore2.AnyIOBackend()
        self.refused: str | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failed: Exception | None = None
        try:
            found = await self._addresses(host, port)
        except ToolFailed as error:
            self.refused = str(error).rstrip(".")
            raise httpcore2.ConnectError(self.refused) from None
        for address in found:
            try:
                return await self._inner.connect_tcp(address, port, timeout, None, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore2.ConnectError("no address")

    async def _addresses(self, host: str, port: int) -> list[str]:
        also = self._also()
        if self._reach.refused_host(host, port) is None or also.rules == ():
            return await addresses(self._reach, host, port)
        return await addresses(also, host, port)
