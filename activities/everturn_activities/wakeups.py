"""Tells every process which sessions changed; on one machine by datagrams on local sockets.

A datagram names sessions and carries nothing else. One may be lost: whoever waits looks
again by itself every `POLL_SECONDS`.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everturn.session import SessionKey

POLL_SECONDS = 0.5
DATAGRAM_BYTES = 8_000
TICK_NS = 100_000_000


class Exchange:
    """One process's place in the exchange, and all there is where no other process is told."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[SessionKey, set[asyncio.Event]] = {}

    async def close(self) -> None:
        pass

    def tell(self, keys: set[SessionKey]) -> None:
        """Wake whoever waits for one of `keys`; called from any thread."""
        self.tell_here(keys)

    def tell_here(self, keys: set[SessionKey]) -> None:
        """Wake whoever waits for one of `keys` in this process."""
        if self._loop is not None and self._waiting:
            # A loop that has ended takes nothing more, and neither does its process.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._heard_keys, keys)

    @contextmanager
    def waiting(self, key: SessionKey) -> Iterator[asyncio.Event]:
        """An event that is set whenever `key` changes; whoever waits clears it."""
        event = asyncio.Event()
        events = self._waiting.setdefault(key, set())
        events.add(event)
        self._waits_changed()
        try:
            yield event
        finally:
            events.discard(event)
            if not events:
                self._waiting.pop(key, None)
                self._waits_changed()

    def _waits_changed(self) -> None:
        """Hook: other topics than before are waited for."""

    def _heard_keys(self, keys: set[SessionKey]) -> None:
        for key in keys:
            for event in self._waiting.get(key, ()):
                event.set()


class WakeUps(Exchange):
    """The exchange of one machine. Without `listen` a process tells others and itself, but hears
    nothing of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._own: Path | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._others: list[str] = []
        self._listed_at: int | None = None

    async def listen(self) -> None:
        """Open this process's socket; needs a running loop, which then hears of changes.

        Raises FileNotFoundError where the folder is gone; then this object is of no more use.
        """
        self._loop = asyncio.get_running_loop()
        own = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        try:
            receiver.bind(str(own))
        except OSError:
            receiver.close()
            self._sender.close()
            raise
        self._own = own
        self._transport, _ = await self._loop.create_datagram_endpoint(
            lambda: _Receiver(self._heard), sock=receiver
        )

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        if self._own is not None:
            self._own.unlink(missing_ok=True)
        self._sender.close()

    def tell(self, keys: set[SessionKey]) -> None:
        super().tell(keys)
        others = self._peers()
        if not others:
            return
        names = [f"{key.tenant}\0{key.session}".encode() for key in keys]
        for datagram in _packed(names):
            for other in others:
                self._send(datagram, other)

    def _peers(self) -> list[str]:
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed != self._listed_at:
                own = self._own.name if self._own else ""
                self._others = [
                    str(self._folder / name) for name in os.listdir(self._folder) if name != own
                ]
                # Folders tell time in coarse ticks: a second change within one goes unseen.
                self._listed_at = changed if time.time_ns() - changed > TICK_NS else None
        except FileNotFoundError:
            return []
        return self._others

    def _send(self, datagram: bytes, other: str) -> None:
        try:
            self._sender.sendto(datagram, other)
        except (ConnectionRefusedError, FileNotFoundError):
            # Its process is gone without having tidied up.
            Path(other).unlink(missing_ok=True)
        except OSError:
            pass  # A full queue: that process will look by itself.

    def _heard(self, datagram: bytes) -> None:
        keys = set()
        for name in datagram.decode("utf-8", "replace").split("\n"):
            tenant, _, session = name.partition("\0")
            keys.add(SessionKey(tenant, session))
        self._heard_keys(keys)


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._heard(data)


def _packed(names: list[bytes]) -> Iterator[bytes]:
    """`names` joined into datagrams that every system takes."""
    batch: list[bytes] = []
    size = 0
    for name in names:
        if batch and size + len(name) >= DATAGRAM_BYTES:
            yield b"\n".join(batch)
            batch, size = [], 0
        batch.append(name)
        size += len(name) + 1
    if batch:
        yield b"\n".join(batch)


async def changed(event: asyncio.Event, seconds: float = POLL_SECONDS) -> None:
    """Wait until `event` is set or `seconds` passed, and clear it."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
    event.clear()


def cancels(key: SessionKey) -> SessionKey:
    """The topic on which a session's cancels are told: no session id holds a slash."""
    return SessionKey(key.tenant, f"{key.session}/cancel")


def logged(key: SessionKey) -> SessionKey:
    """The topic on which a log beside the store tells of new entries."""
    return SessionKey(key.tenant, f"{key.session}/log")


def is_logged(key: SessionKey) -> bool:
    return key.session.endswith("/log")
