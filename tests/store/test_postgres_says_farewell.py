"""A PostgreSQL that ends tells its idle clients so, and closes their connections a moment later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from everturn_activities.store.postgres import PostgresDatabase

# ErrorResponse: FATAL, admin_shutdown, a sentence.
SAID = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
FAREWELL = b"E" + (4 + len(SAID)).to_bytes(4, "big") + SAID


class Proxy:
    """Between clients and the server; `farewell` is the server's last word to who is connected."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._clients: list[asyncio.StreamWriter] = []
        self.meetings: list[asyncio.Task[None]] = []

    def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.meetings.append(asyncio.ensure_future(self._meet(reader, writer)))

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._clients.append(writer)
        await asyncio.gather(_passed(reader, server), _passed(behind, writer))

    async def farewell(self) -> None:
        for writer in self._clients:
            if not writer.is_closing():
                writer.write(FAREWELL)
                await writer.drain()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while read := await reader.read(65536):
            writer.write(read)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, PostgresDatabase]]:
    direct = make_url(url)
    assert direct.port is not None
    proxy = Proxy(direct.port)
    server = await asyncio.start_server(proxy.meet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    database = PostgresDatabase(direct.set(port=port), lambda keys: None)
    async with server:
        yield proxy, database
        await database.close()
        await asyncio.gather(*proxy.meetings)


async def test_a_look_after_the_servers_last_word_is_made_on_another_connection(postgres_url: str):
    async with proxied(postgres_url) as (proxy, database):
        assert await database.read(_one) == 1

        await proxy.farewell()
        await asyncio.sleep(0)

        assert await database.read(_one) == 1
        await proxy.farewell()
        await asyncio.sleep(0)

        assert await database.write(lambda tx: _one(tx.connection)) == 1


def _one(connection: sa.Connection) -> int:
    return int(connection.execute(sa.text("SELECT 1")).scalar_one())
