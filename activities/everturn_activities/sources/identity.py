"""Source `identity`: who the agent is among the agents of a task."""

from collections.abc import Sequence

from everturn.context.layers import Item, expand
from everturn_activities.sources import Asked


async def identity(asked: Asked) -> Sequence[Item]:
    """`options.primary` for who answers a person, `options.subordinate` for who answers that
    one, with the fields `level` and `name`."""
    level = asked.spec.level
    template = asked.layer.options.get("subordinate" if level else "primary", "")
    agent = asked.spec.agent
    fields = {"level": str(level), "name": agent.name, "title": agent.title or agent.name}
    return ({**fields, "text": expand(str(template), fields)},)
