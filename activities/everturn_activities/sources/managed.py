"""Source `managed`: what a manager hands work on to."""

from collections.abc import Sequence

from everturn.context.layers import Item
from everturn_activities.sources import Asked


async def managed(asked: Asked) -> Sequence[Item]:
    """The fields `model`, `steps_max` and `concurrent_max` of a manager's executors; nothing for
    who works itself."""
    spec, policy = asked.spec, asked.spec.executors
    if not policy.managed or spec.level:
        return ()
    return (
        {
            "text": asked.layer.text,
            "model": policy.model or spec.agent.model,
            "steps_max": str(min(spec.agent.steps_max, policy.steps_max or spec.agent.steps_max)),
            "concurrent_max": str(policy.concurrent_max),
        },
    )
