"""Source `capabilities`: the tools that the agent has."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.sources import Asked


async def capabilities(asked: Asked) -> Sequence[Item]:
    """An item for each tool: `name`, `description`, and its first line as `summary`."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "summary": tool.description.partition("\n")[0],
        }
        for tool in asked.spec.tools
    ]
