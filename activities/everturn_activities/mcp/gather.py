"""gather_tools: what the MCP servers of a turn's agent offer, before the turn takes a step."""

from collections.abc import Mapping

from temporalio import activity

from everturn.agents import AgentSpec
from everturn.context.untrusted import neutral
from everturn.errors import ServerFailed, TurnCancelled
from everturn.mcp import Catalogue, Server
from everturn.mcp_tools import is_served, with_catalogues
from everturn.session import Gathered, GatherTools, SessionKey
from everturn_activities.flights import CancelWatch, Flights
from everturn_activities.heartbeat import heartbeating
from everturn_activities.mcp.homes import Homes
from everturn_activities.mcp.rendering import Renderer
from everturn_activities.mcp.servers import Servers, changed
from everturn_activities.store import Store
from everturn_activities.store.turns import UNUSABLE_SETTINGS
from everturn_activities.toolbox import broken_schema

MEND = "Mend that, or let the session take them as they are: everturn mcp accept {session}"


class GatherActivities:
    def __init__(
        self,
        store: Store,
        servers: Servers,
        homes: Homes,
        renderer: Renderer,
        watch: CancelWatch,
        worker: str,
    ) -> None:
        self._store = store
        self._servers = servers
        self._homes = homes
        self._renderer = renderer
        self._watch = watch
        self._worker = worker
        self._flights = Flights()

    @activity.defn
    async def gather_tools(self, request: GatherTools) -> Gathered:
        """Launch the servers here, and pin what they offer, or compare it with what was pinned.

        A difference ends the turn, unless the agent's servers may change: nobody has agreed to
        what a model would be told. Then what a person asks of the servers is asked for, once.
        """
        async with heartbeating():
            call = (request.tenant, request.session, request.turn)
            return await self._flights.join(call, lambda: self._prepare(request))

    async def _prepare(self, request: GatherTools) -> Gathered:
        gathered = await self._gather(request)
        if gathered.failure is not None:
            return gathered
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        rendering = self._renderer.render(request, spec)
        try:
            problem = await self._watch.guard(key, request.turn, rendering)
        except TurnCancelled:
            return gathered
        return gathered if problem is None else await self._failed(request, spec, problem)

    async def _gather(self, request: GatherTools) -> Gathered:
        key = SessionKey(request.tenant, request.session)
        spec = await self._store.spec(key, request.turn)
        try:
            here = await self._here(key, spec)
            asking = self._servers.catalogues(key, spec, here)
            found = await self._watch.guard(key, request.turn, asking)
        except ServerFailed as error:
            return await self._failed(request, spec, str(error))
        except TurnCancelled:
            return Gathered(0)
        if not spec.is_pending:
            different = changed(here, found) if spec.lifecycle == "frozen" else None
            if different is not None:
                mend = MEND.format(session=request.session)
                return await self._failed(request, spec, f"{different} {mend}")
            self._servers.accept(key, spec)
            return Gathered(sum(map(is_served, spec.tools)))
        pinned = {server.name: server for server in await self._pinned(key, spec)}
        servers, problems = _taken(request.session, spec, found, pinned)
        settled, left_out = with_catalogues(spec.but(servers=servers), broken_schema)
        if any(server.config.stateful for server in servers):
            # It may have come by the queue of all; their calls will not.
            await self._homes.receive()
        settled = await self._store.settle_servers(
            request, settled, [*problems, *left_out], self._worker
        )
        self._servers.accept(key, settled)
        return Gathered(sum(map(is_served, settled.tools)))

    async def _here(self, key: SessionKey, spec: AgentSpec) -> tuple[Server, ...]:
        """The servers that are to run here: all but those that another worker has."""
        if spec.is_pending:
            return spec.servers
        return tuple(
            [
                server
                for server in spec.servers
                if not server.config.stateful or await self._homes.claim(key, spec, server)
            ]
        )

    async def _pinned(self, key: SessionKey, spec: AgentSpec) -> tuple[Server, ...]:
        if spec.lifecycle != "hot":
            return ()
        return await self._store.served_tools(key, spec.agent.name)

    async def _failed(self, request: GatherTools, spec: AgentSpec, reason: str) -> Gathered:
        # What a server has said stays in the store: the workflow learns only that it failed.
        broken = spec.but(settings_error=neutral(reason))
        await self._store.settle_servers(request, broken, (), self._worker)
        return Gathered(0, UNUSABLE_SETTINGS)


def _taken(
    session: str, spec: AgentSpec, found: Mapping[str, Catalogue], pinned: Mapping[str, Server]
) -> tuple[tuple[Server, ...], list[str]]:
    """The servers with what is taken over of their offers, and what is not, in sentences.

    A tool whose description changed since it was pinned keeps the old one, and calls of it are
    refused: what it would tell the model now, no person has seen.
    """
    taken, problems = [], []
    for server in spec.servers:
        now = found.get(server.name)
        if now is None:
            problems.append(f"MCP server {server.name} cannot be launched; its tools are missing.")
            continue
        offers = []
        before = pinned[server.name].catalogue if server.name in pinned else None
        known = {} if before is None else {offer.name: offer for offer in before.offers}
        for offer in now.offers:
            if offer.name in known and known[offer.name].digest != offer.digest:
                problems.append(
                    f"Tool {neutral(offer.name)!r} of server {server.name} is not run any more: it"
                    " is described otherwise than when the session began. A person can accept"
                    f" that by: everturn mcp accept {session}"
                )
                offer = known[offer.name]
            offers.append(offer)
        catalogue = now.model_copy(update={"offers": tuple(offers)})
        taken.append(server.model_copy(update={"catalogue": catalogue}))
    return tuple(taken), problems
