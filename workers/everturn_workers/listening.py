"""The address that the API listens on."""

import socket

from everturn.errors import UsageError


def listening(host: str, port: int) -> socket.socket:
    """A bound socket; UsageError where the address cannot be had."""
    # asyncio turns Nagle's delay off only where the protocol is named; it costs 40 ms an event.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"The API cannot listen on {host}:{port} ({error.strerror or error}); end what"
            " listens there, or choose another port with --port or EVERTURN_PORT."
        ) from None
    return listener
