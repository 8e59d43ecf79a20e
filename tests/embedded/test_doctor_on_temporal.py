"""What `everturn doctor` says of a Temporal server, and of workers on it."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from everturn_workers import check_temporal
from everturn_workers.check import Check
from everturn_workers.server import EmbeddedServer
from everturn_workers.settings import Settings, read_settings
from everturn_workflows.turn_end import TurnEnd


@activity.defn
async def nothing() -> None: ...


async def found(settings: Settings, name: str) -> Check:
    checks = await check_temporal.check_temporal(settings)
    return next(check for check in checks if check.name == name)


async def test_no_worker_at_all_is_named_with_the_command_that_starts_one(
    home: Path, server: EmbeddedServer
) -> None:
    settings = read_settings(home=home, temporal_address=server.address)

    check = await found(settings, "workers")

    assert (check.ok, check.mend) == (False, "Start one: everturn worker.")
    assert check.sentence == "No worker takes turns, models and tools from the queues 'everturn'."


async def test_a_class_of_work_that_nobody_takes_is_named(
    home: Path, server: EmbeddedServer
) -> None:
    settings = read_settings(home=home, temporal_address=server.address, task_queue="q")
    client = await Client.connect(server.address)

    async def until_said(text: str) -> Check:
        async with asyncio.timeout(20):
            while text not in (check := await found(settings, "workers")).sentence:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return check

    async with AsyncExitStack() as stack:
        for one in (
            Worker(
                client,
                task_queue="q",
                workflows=[TurnEnd],
                workflow_runner=UnsandboxedWorkflowRunner(),
            ),
            Worker(client, task_queue="q-tools", activities=[nothing]),
        ):
            await stack.enter_async_context(one)
        lacking = await until_said("takes models from")
        await stack.enter_async_context(Worker(client, task_queue="q-models", activities=[nothing]))
        whole = await until_said("1 worker takes work")

    assert lacking.sentence == "No worker takes models from the queues 'q'."
    assert lacking.mend == "Start one: everturn worker --roles models."
    assert (whole.ok, whole.mend) == (True, None)


async def test_a_namespace_that_is_not_there_is_told_apart_from_no_server(
    home: Path, server: EmbeddedServer
) -> None:
    lacking = read_settings(
        home=home, temporal_address=server.address, temporal_namespace="elsewhere"
    )

    check = await found(lacking, "temporal")

    assert "has no namespace 'elsewhere'" in check.sentence
    assert "temporal operator namespace create -n elsewhere" in (check.mend or "")


def test_a_server_that_does_not_let_us_in_is_told_apart_from_no_server() -> None:
    refused = RPCError("secret", RPCStatusCode.PERMISSION_DENIED, b"")

    check = check_temporal._refused("there:7233", "ours", refused)

    assert check is not None
    assert "does not let us into the namespace 'ours'" in check.sentence
    away = RPCError("secret", RPCStatusCode.UNAVAILABLE, b"")
    assert check_temporal._refused("there:7233", "ours", away) is None


async def test_an_old_server_is_warned_about(
    home: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_settings(home=home, temporal_address=server.address)
    now = await found(settings, "temporal")
    monkeypatch.setattr(check_temporal, "VERSION", (99, 0))

    old = await found(settings, "temporal")

    assert (now.ok, now.mend, old.ok) == (True, None, True)
    assert "Upgrade" in (old.mend or "")


async def test_a_server_that_says_nothing_is_given_up_in_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everturn_workers.check.REACH_SECONDS", 0.3)

    # What connects waits to be accepted, for ever.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings = read_settings(home=home, temporal_address=f"127.0.0.1:{port}")
        check = await found(settings, "temporal")

    assert not check.ok
    assert f"No Temporal server answers at 127.0.0.1:{port}" in check.sentence
