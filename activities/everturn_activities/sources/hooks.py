"""The layer of what hooks printed: `spawn_hooks`."""

from collections.abc import Awaitable, Callable, Sequence

from everturn.context.layers import Item
from everturn.hooks import Hook
from everturn.session import SessionKey
from everturn_activities.sources import Asked, Sources

Outputs = Callable[[SessionKey, Sequence[Hook]], Awaitable[list[str]]]
"""What the hooks printed that succeeded in a session, empty for the others."""


class HookSources:
    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def named(self) -> Sources:
        return {"spawn_hooks": self.spawned}

    async def spawned(self, asked: Asked) -> Sequence[Item]:
        """The `text` that each of the agent's hooks printed, and the `name` of its program."""
        hooks = asked.spec.agent.hooks.agent_spawn
        if not hooks:
            return ()
        printed = await self._outputs(asked.key, hooks)
        return [
            {"name": hook.shown, "text": text.strip("\n")}
            for hook, text in zip(hooks, printed, strict=True)
            if text.strip()
        ]
