"""Which worker has a session's stateful servers: their state is in its processes."""

from collections.abc import Awaitable, Callable, Sequence

from everturn.agents import AgentSpec, ToolSpec
from everturn.errors import OwnerAlive
from everturn.mcp import SOURCE, Server
from everturn.mcp_tools import has_resources, reads_resources
from everturn.session import SessionKey
from everturn_activities.mcp.servers import Servers
from everturn_activities.store import Store


class Homes:
    """`queue_of` names the queue of a worker, and `own_queue` this one's, once it is polled."""

    def __init__(
        self,
        store: Store,
        servers: Servers,
        worker: str,
        is_alive: Callable[[str], Awaitable[bool]],
        queue_of: Callable[[str], str],
        own_queue: Callable[[], Awaitable[str]],
    ) -> None:
        self._store = store
        self._servers = servers
        self.worker = worker
        self._is_alive = is_alive
        self._queue_of = queue_of
        self._own_queue = own_queue

    async def queue(self, key: SessionKey, spec: AgentSpec, tool: ToolSpec) -> str:
        """The queue of the worker that has the tool's server; empty where any worker will do."""
        server = stateful(spec, tool)
        if server is None:
            return ""
        home = await self._store.home(key, spec.agent.name, server.name)
        return self._queue_of(home) if home is not None and await self._is_alive(home) else ""

    async def of(self, key: SessionKey, spec: AgentSpec, server: Server) -> str | None:
        """The living worker that has a stateful server; None where any will do."""
        if not server.config.stateful:
            return None
        home = await self._store.home(key, spec.agent.name, server.name)
        return home if home is not None and await self._is_alive(home) else None

    async def queue_of(self, key: SessionKey, spec: AgentSpec, servers: Sequence[Server]) -> str:
        """The queue of a worker that has one of the servers; this one's where none is elsewhere."""
        for server in servers:
            home = await self.of(key, spec, server)
            if home is not None and home != self.worker:
                return self._queue_of(home)
        return await self._own_queue()

    async def receive(self) -> None:
        """Take calls of servers that this worker is to have."""
        await self._own_queue()

    async def settle(self, key: SessionKey, spec: AgentSpec, tool: ToolSpec) -> None:
        """See to it that this worker has the tool's server; raises OwnerAlive where another has."""
        server = stateful(spec, tool)
        if server is not None and not await self.claim(key, spec, server):
            raise OwnerAlive(f"Another worker has server {server.name} of session {key.session}.")

    async def claim(self, key: SessionKey, spec: AgentSpec, server: Server) -> bool:
        """Whether this worker has the server now, which it takes over from a dead one."""
        agent = spec.agent.name
        while (home := await self._store.home(key, agent, server.name)) != self.worker:
            if home is not None and await self._is_alive(home):
                return False
            await self.receive()
            if await self._store.move_home(key, agent, server.name, home, self.worker):
                if home is not None:
                    self._servers.lose(key, server.name)
                return True
        return True


def stateful(spec: AgentSpec, tool: ToolSpec) -> Server | None:
    """The server of the tool, where it remembers what a session did."""
    if reads_resources(tool):
        # A worker that has one of them has them all, but where another died in between.
        having = (one for one in spec.servers if one.config.stateful and has_resources(one))
        return next(having, None)
    if not tool.source.startswith(SOURCE):
        return None
    name = tool.source.removeprefix(SOURCE)
    return next((one for one in spec.servers if one.name == name and one.config.stateful), None)
