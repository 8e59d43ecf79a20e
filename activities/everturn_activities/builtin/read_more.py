"""Reading on in a result that was too long to be shown whole."""

from typing import Annotated

from pydantic import Field

from everturn.errors import RuntimeUnavailable, ToolFailed
from everturn.session import SessionKey
from everturn.tools import tool
from everturn_activities.builtin.inside import InsideContext

CHARACTERS_MAX = 60_000


@tool(effect="pure", quick=True, searches=True, untrusted=True)
async def read_more(
    result: Annotated[
        str, Field(pattern=r"^\d{1,9}\.\d{1,9}\.\d{1,9}$", description="As the cut result says.")
    ],
    context: InsideContext,
    begin: Annotated[int, Field(ge=0, description="The character to begin at.")] = 0,
    characters: Annotated[int, Field(ge=1, le=CHARACTERS_MAX)] = 20_000,
) -> str:
    """Read what was cut out of the middle of a long result of this session."""
    turn, step, index = map(int, result.split("."))
    results = context.services.results
    key = SessionKey(context.tenant, context.session)
    try:
        text = None if results is None else await results.whole_result(key, turn, step, index)
    except RuntimeUnavailable:
        # Where results are kept is none of the model's business.
        raise ToolFailed(f"Result {result} cannot be read now; try again later.") from None
    if text is None:
        raise ToolFailed(f"There is no cut result {result} in this session.")
    if begin >= len(text):
        raise ToolFailed(f"Result {result} has {len(text)} characters; {begin} is past its end.")
    piece = text[begin : begin + characters]
    return f"Characters {begin} to {begin + len(piece)} of {len(text)}:\n{piece}"
