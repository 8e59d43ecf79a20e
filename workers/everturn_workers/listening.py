"""The addresses that our processes listen on."""

import socket

from everturn.errors import UsageError


def listening(host: str, port: int, who: str = "API", setting: str = "port") -> socket.socket:
    """A bound socket; UsageError where the address cannot be had."""
    flag, variable = f"--{setting.replace('_', '-')}", f"EVERTURN_{setting.upper()}"
    # asyncio turns Nagle's delay off only where the protocol is named; it costs 40 ms an event.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"The {who} cannot listen on {host}:{port} ({error.strerror or error}); end what"
            f" listens there, or choose another port with {flag} or {variable}."
        ) from None
    return listener
