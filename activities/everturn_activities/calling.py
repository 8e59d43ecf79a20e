"""What every call of a model does alike: who makes it, and when its reply counts."""

import secrets
from collections.abc import Callable
from contextlib import aclosing

from temporalio import activity

from everturn.context.compose import Context
from everturn.errors import ModelUnavailable
from everturn_activities.gateways import Delta, ModelGateway, Reply
from everturn_activities.store import Caller


def caller(worker: str) -> Caller:
    """The running activity, as the journals know it; with a nonce of its own."""
    info = activity.info()
    return Caller(worker, secrets.token_hex(8), None if info.is_local else info.task_token)


async def whole_reply(
    gateway: ModelGateway, context: Context, tell: Callable[[Delta], None] | None = None
) -> Reply:
    """The reply of a stream, whose pieces `tell` takes; ModelUnavailable where it has none."""
    reply = None
    async with aclosing(gateway.stream(context)) as items:
        async for item in items:
            if isinstance(item, Reply):
                reply = item
            elif tell is not None:
                tell(item)
    if reply is None:
        raise ModelUnavailable(f"Model {context.model} ended its stream without a reply.")
    return reply
