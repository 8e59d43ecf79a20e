"""The store of what MCP servers made of messages."""

from collections.abc import Callable, Sequence

from everturn.mcp_prompts import Due, Rendering
from everturn.messages import UserMessage
from everturn.session import GatherTools, SessionKey
from everturn_activities.store import renderings
from everturn_activities.store.database import Database


class SqlRenderings:
    """`count_tokens` measures a message once, when it is written."""

    def __init__(self, database: Database, count_tokens: Callable[[UserMessage], int]) -> None:
        self._database = database
        self._count = count_tokens

    async def due(self, key: SessionKey, turn: int) -> list[Due]:
        return await self._database.read(lambda connection: renderings.due(connection, key, turn))

    async def settle(self, request: GatherTools, rendered: Sequence[Rendering]) -> None:
        await self._database.write(lambda tx: renderings.settle(tx, request, rendered, self._count))
