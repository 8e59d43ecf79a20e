"""Who has had nothing to do with a turn so far knows its secrets before it asks a model."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from harness import Bench, OneGateway, calls, says, scripted

from everturn.context.compose import Context
from everturn_activities.gateways import Delta, ModelGateway, Reply
from everturn_activities.vault import Vault
from everturn_activities.workspaces import Workspaces
from everturn_workers.worker import running_worker

SETTINGS = '[secrets]\nTOKEN = {env = "SHOP_CREDENTIAL"}\n'
CANARY = "canary/0123456789+mine"
LONG = "word " * 300
SUMMARISER = "CRITICAL: answer with text only"


class Noting:
    """`gateway`, and how many secrets were known when each request began."""

    def __init__(self, gateway: ModelGateway, vault: Vault) -> None:
        self._gateway = gateway
        self._vault = vault
        self.known: list[int] = []

    async def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]:
        self.known.append(len(self._vault.scrubber))
        async for item in self._gateway.stream(context):
            yield item

    async def close(self) -> None:
        await self._gateway.close()


@asynccontextmanager
async def newcomer(made: Bench, gateway: ModelGateway) -> AsyncIterator[Noting]:
    """A worker whose process has not seen any workspace."""
    vault = Vault({"SHOP_CREDENTIAL": CANARY})
    # As a name that says nothing: only settings tell that it is a secret.
    assert len(vault.scrubber) == 0
    noting = Noting(gateway, vault)
    toolbox = Workspaces(services=replace(made.runtime.services, vault=vault))
    registry = Workspaces(services=made.runtime.services)
    async with running_worker(
        made.client,
        made.runtime,
        made.settings,
        OneGateway(noting),
        registry,
        toolbox,
        workflows_cached=0,
    ):
        yield noting


async def test_a_worker_that_takes_a_turn_over_knows_its_secrets_before_it_compacts(
    made: Bench,
) -> None:
    (made.workspace / "everturn.toml").write_text(SETTINGS)
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text(
        "---\ntools: [echo]\nwindow_tokens: 8000\ncompaction: {keep_last: 4}\n---\nBe brief.\n"
    )
    replies: dict[str, Any] = {
        SUMMARISER: [says("THE GIST", hold="summary")],
        "was summarised": [says("Done.")],
        "": [calls("echo", text=LONG)] * 20,
    }
    key = await made.session()
    first = scripted(by_last_user=replies)
    async with made.worker(first):
        await made.send(key, "echo it")
        await first.reached("summary")
    second = scripted(by_last_user=replies)
    second.release("summary")
    async with newcomer(made, second) as noting:
        await made.until(key, "turn_finished")
    assert noting.known[0] == 1
