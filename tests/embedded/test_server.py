"""The embedded Temporal server: one a file, found where it was, nothing lost, closed to the web."""

import asyncio
import re
import signal
from pathlib import Path

import httpx
import pytest
from temporalio.client import Client

from everturn.errors import RuntimeUnavailable
from everturn_workers.locks import is_held
from everturn_workers.server import EmbeddedServer, answers, lock_path, start_server


async def start(client: Client, workflow_id: str) -> None:
    await client.start_workflow("Turn", id=workflow_id, task_queue="nobody")


async def kill(server: EmbeddedServer) -> None:
    server.process.send_signal(signal.SIGKILL)
    await server.process.wait()


async def test_a_killed_server_comes_back_at_its_port_with_all_it_had_accepted(
    server: EmbeddedServer, temporal: Path, home: Path
):
    client = await Client.connect(server.address)
    await asyncio.gather(*(start(client, f"w{i}") for i in range(20)))
    await kill(server)

    again = await start_server(temporal, home)

    try:
        assert again.address == server.address
        client = await Client.connect(again.address)
        for i in range(20):
            described = await client.get_workflow_handle(f"w{i}").describe()
            assert described.status is not None
            assert described.status.name == "RUNNING"
    finally:
        await kill(again)


async def test_a_second_server_on_one_file_is_refused_while_the_first_lives(
    server: EmbeddedServer, temporal: Path, home: Path
):
    with pytest.raises(RuntimeUnavailable, match=r"Another Temporal server works on .*; end it"):
        await start_server(temporal, home)

    assert await answers(server.address, "default", seconds=5)


async def test_the_lock_on_the_file_is_free_exactly_when_the_server_is_gone(
    server: EmbeddedServer, home: Path
):
    assert is_held(lock_path(home))

    await kill(server)

    assert not is_held(lock_path(home))


async def test_a_port_that_another_program_took_is_replaced(
    server: EmbeddedServer, temporal: Path, home: Path
):
    await kill(server)
    port = int(server.address.rpartition(":")[2])
    other = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)

    async with other:
        again = await start_server(temporal, home)

    assert again.address != server.address
    assert (home / "run" / "temporal.port").read_text().strip() in again.address
    await kill(again)


async def test_the_servers_http_api_refuses_every_web_page(server: EmbeddedServer, home: Path):
    await start(await Client.connect(server.address), "victim")
    ports = listening(server.process.pid)
    path = "/api/v1/namespaces/default/workflows/victim/terminate"
    refused = 0
    async with httpx.AsyncClient(trust_env=False) as web:
        for port in ports:
            for host in ("evil.example", f"127.0.0.1:{port}", "localhost"):
                headers = {
                    "Host": host,
                    "Origin": "http://evil.example",
                    "Content-Type": "text/plain",
                }
                try:
                    answer = await web.post(
                        f"http://127.0.0.1:{port}{path}", headers=headers, content="{}"
                    )
                except httpx.TransportError:
                    continue  # A port that does not speak HTTP/1.
                assert answer.status_code in (403, 404), f"{host} at {port}"
                refused += answer.status_code == 403

    assert refused >= 3
    victim = (await Client.connect(server.address)).get_workflow_handle("victim")
    assert (await victim.describe()).status.name == "RUNNING"


async def test_the_server_listens_on_the_loopback_only_and_has_no_web_page(server: EmbeddedServer):
    addresses = listening_addresses(server.process.pid)

    assert addresses
    assert {address for address, _ in addresses} == {"0100007F"}
    port = int(server.address.rpartition(":")[2])
    assert port + 1000 not in {port for _, port in addresses}


async def test_a_server_that_does_not_come_up_is_reported_with_its_last_words(home: Path):
    binary = home / "temporal"
    binary.write_text("#!/bin/sh\necho 'unable to open database file' >&2\nexit 7\n")
    binary.chmod(0o755)

    with pytest.raises(
        RuntimeUnavailable, match=r"ended with code 7; .* ends with: unable to open database file"
    ):
        await start_server(binary, home)
    assert not is_held(lock_path(home))


async def test_a_server_that_ends_as_it_starts_is_started_once_more(home: Path, temporal: Path):
    """As one does that found a free port which another took before it."""
    binary, ended = home / "temporal", home / "ended"
    binary.write_text(f"""#!/bin/sh
[ -e {ended} ] || {{ touch {ended}; echo 'panic: nil pointer' >&2; exit 2; }}
exec {temporal} "$@"
""")
    binary.chmod(0o755)

    server = await start_server(binary, home)

    assert ended.exists()
    assert await answers(server.address, "default", seconds=5)
    await server.stop()
    assert not is_held(lock_path(home))


async def test_a_server_that_never_answers_is_ended(home: Path):
    binary = home / "temporal"
    binary.write_text("#!/bin/sh\nexec sleep 1000\n")
    binary.chmod(0o755)

    with pytest.raises(RuntimeUnavailable, match=r"did not answer within 0\.5 s"):
        await start_server(binary, home, seconds=0.5)
    assert not is_held(lock_path(home))


def listening(pid: int) -> list[int]:
    return [port for _, port in listening_addresses(pid)]


def listening_addresses(pid: int) -> list[tuple[str, int]]:
    """The TCP sockets on which a process listens, as Linux tells: address in hex, port."""
    links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {found[1] for link in links if (found := re.match(r"socket:\[(\d+)\]", link))}
    sockets = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                sockets.append((address, int(port, 16)))
    return sockets
