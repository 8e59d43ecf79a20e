"""A way to a PostgreSQL that loses the answer to a COMMIT, once for each time it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

# The simple query of that text: what the driver sends where we commit.
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"


class Cutter:
    """Passes on what comes either way; `cuts` COMMITs are passed on, and their answers are not."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self.port = 0
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, ahead = await asyncio.open_connection("127.0.0.1", self._behind)
        cutting = asyncio.Event()

        async def there() -> None:
            while piece := await reader.read(65536):
                if COMMIT in piece and self.cuts:
                    self.cuts -= 1
                    cutting.set()
                ahead.write(piece)
                await ahead.drain()

        async def back() -> None:
            while piece := await behind.read(65536):
                if cutting.is_set():
                    return  # It was committed, and nobody hears of it.
                writer.write(piece)
                await writer.drain()

        ways = [asyncio.create_task(there()), asyncio.create_task(back())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        with suppress(OSError):
            await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, ahead):
            end.close()
            with suppress(OSError):
                await end.wait_closed()


@asynccontextmanager
async def cutter(port: int) -> AsyncIterator[Cutter]:
    made = Cutter(port)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
