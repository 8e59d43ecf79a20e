"""The list of what is still to be done, as the model keeps it."""

from typing import Annotated, Literal

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.messages import Frozen
from everturn.tools import tool

ITEMS_MAX = 50
_MARKS = {"open": "[ ]", "doing": "[>]", "done": "[x]", "dropped": "[-]"}


class Item(Frozen):
    text: Annotated[str, Field(min_length=1, max_length=300)]
    state: Literal["open", "doing", "done", "dropped"] = "open"


# The list is in the call and its result, and nowhere else: the transcript is what keeps it.
@tool(effect="pure", quick=True)
def todo(items: Annotated[list[Item], Field(max_length=ITEMS_MAX)]) -> str:
    """Write down all steps of a longer task, each open, doing, done or dropped.

    Each call gives the whole list anew. At most one item is being done at a time.
    """
    doing = sum(item.state == "doing" for item in items)
    if doing > 1:
        raise ToolFailed(f"{doing} items are being done; one at a time is.")
    left = sum(item.state in ("open", "doing") for item in items)
    lines = [f"{_MARKS[item.state]} {' '.join(item.text.split())}" for item in items]
    return "\n".join([*lines, f"{left} of {len(items)} items are left."])
