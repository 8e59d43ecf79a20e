"""The source of what there is nothing to tell of, such as `managed` where nobody manages others."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.sources import Asked


async def nothing(asked: Asked) -> Sequence[Item]:
    return ()
