"""Reading a skill's text by its name."""

from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import ToolContext, tool
from everturn_activities.builtin.inside import InsideContext

LIST = "list"


@tool(effect="pure", quick=True, searches=True)
async def skill(
    skill: Annotated[str, Field(description="The skill's name; 'list' lists all of them.")],
    context: ToolContext,
    args: Annotated[str, Field(description="What the skill is to work on.")] = "",
) -> str:
    """Get the instructions of a skill, to follow them.

    Call it before you begin a task that a skill's description fits.
    """
    if not isinstance(context, InsideContext) or context.services.skills is None:
        raise ToolFailed("There are no skills here.")
    shelf = context.services.skills.shelf(context.spec)
    if skill.strip() == LIST:
        return await shelf.listing()
    return await shelf.text(skill, args)
