"""Searching the web, where the workspace's settings say by whom."""

from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import tool
from everturn_activities.builtin.inside import InsideContext
from everturn_activities.searching import search

QUERY_CHARACTERS_MAX = 400
"""What Brave takes; the others take more."""


@tool(effect="pure", searches=True, untrusted=True, timeout_seconds=60.0)
async def search_web(
    query: Annotated[str, Field(min_length=1, max_length=QUERY_CHARACTERS_MAX)],
    context: InsideContext,
    count: Annotated[int, Field(ge=1, le=20, description="How many results at most.")] = 8,
) -> str:
    """Search the web; answers with titles, addresses and a few lines of each page found.

    Read a page itself by its address.
    """
    settings = context.search
    if settings is None:
        raise ToolFailed("Searching the web is not enabled; [search] of the settings says by whom.")
    key = None if settings.key is None else await context.value_of(settings.key)
    found = await search(settings, key, query, count)
    if not found:
        return "Nothing was found."
    return "\n\n".join(f"{one.title}\n{one.url}\n{one.text}".strip() for one in found)
