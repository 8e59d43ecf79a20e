"""The time of a call, which stands still while a person is asked."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class CallClock:
    """Holds the time-out of a call, once that runs."""

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._asking = 0
        self._left = 0.0

    def start(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While somebody is asked, the time-out does not come nearer."""
        self._stop()
        try:
            yield
        finally:
            self._go_on()

    def _stop(self) -> None:
        self._asking += 1
        timeout = self._timeout
        if self._asking == 1 and timeout is not None and (when := timeout.when()) is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._set(None)

    def _go_on(self) -> None:
        self._asking -= 1
        timeout = self._timeout
        if not self._asking and timeout is not None and timeout.when() is None:
            self._set(asyncio.get_running_loop().time() + max(self._left, 0.0))

    def _set(self, when: float | None) -> None:
        assert self._timeout is not None
        # The call may be over already.
        with suppress(RuntimeError):
            self._timeout.reschedule(when)
