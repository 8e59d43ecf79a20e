"""The source of what a layer is not told by, such as `summary`, which is put in later."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.sources import Asked


async def nothing(asked: Asked) -> Sequence[Item]:
    return ()
