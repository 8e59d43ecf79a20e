"""What a server remembers of a session, while that says nothing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from small import Small

from everturn.agents import Agent, AgentSpec
from everturn.mcp import Server, ServerConfig
from everturn.session import SessionKey
from everturn_activities.mcp.servers import Servers
from everturn_activities.vault import Vault

QUIET, OTHER = SessionKey("t", "quiet"), SessionKey("t", "other")


@dataclass
class Held:
    small: Small
    working: set[SessionKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.servers = Servers(Vault({}), works=self._works)

    async def _works(self, key: SessionKey) -> bool:
        return key in self.working

    @property
    def spec(self) -> AgentSpec:
        command, *args = self.small.command
        config = ServerConfig.model_validate({"command": command, "args": args, "stateful": True})
        servers = (Server(name="a", config=config),)
        return AgentSpec(agent=Agent(), workspace="/", working_dir="/", servers=servers)

    async def use(self, key: SessionKey) -> None:
        await self.servers.catalogues(key, self.spec, self.spec.servers)

    def is_kept(self) -> bool:
        known = self.servers._sessions.get(QUIET)
        return known is not None and known.manager.is_running("a")


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    held = Held(Small.made(tmp_path / "a", "count"))
    yield held
    await held.servers.close()


@pytest.mark.parametrize("works", [True, False])
async def test_a_session_that_is_quiet_for_long_keeps_its_servers_as_long_as_its_turn_is_open(
    held: Held, works: bool
):
    await held.use(QUIET)
    held.servers._sessions[QUIET].used -= 100_000
    held.working = {QUIET} if works else set()
    await held.use(OTHER)
    assert held.is_kept() is works


async def test_a_session_that_was_heard_of_just_now_keeps_them(held: Held):
    await held.use(QUIET)
    await held.use(OTHER)
    assert held.is_kept()
