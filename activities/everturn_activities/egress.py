"""The one way of tools into the network: a host is looked up once, and what is found is checked.

Whoever connects does so to an address from here, never to a name: a second look-up may find
another address.
"""

import asyncio
import socket
from ipaddress import ip_address

from everturn.errors import ToolFailed
from everturn.hosts import Address, Reach, literal

LOOKUP_SECONDS = 10.0


async def addresses(reach: Reach, host: str, port: int) -> list[str]:
    """Where `host` is, the first to be tried first. Raises ToolFailed where it is not allowed.

    One address that is not allowed refuses the host: it may come first the next time.
    """
    host = host.lower().removesuffix(".")
    _refuse(host, reach.refused_host(host, port))
    address = literal(host)
    found = [address] if address is not None else await _looked_up(host, port)
    for each in found:
        _refuse(host, reach.refused_address(each, port))
    return [str(each) for each in found]


def _refuse(host: str, reason: str | None) -> None:
    if reason is not None:
        raise ToolFailed(f"There is no way to {host}, because {reason}.")


async def _looked_up(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError):
        raise ToolFailed(f"There is no way to {host}: no address is known of it.") from None
    return list(dict.fromkeys(ip_address(address[0]) for *_, address in found))
