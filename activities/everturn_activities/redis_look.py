"""What an operator should know of a Redis: whether it does what we need, and keeps its data."""

import secrets
from dataclasses import dataclass
from typing import Any

import redis.asyncio as aioredis
from redis.exceptions import RedisError

from everturn_activities.redis_link import LOOK, LOOKED_AT, connect
from everturn_activities.redis_refusals import refusal


@dataclass(frozen=True)
class RedisFacts:
    """`evicts` is the policy by which keys are dropped where memory is short, None for none;
    `memory_share` how much of the memory that it may take is taken, None where it may take all."""

    version: str
    is_replica: bool
    has_aof: bool
    cannot_write: bool
    evicts: str | None
    memory_share: float | None


@dataclass(frozen=True)
class Refused:
    """What it does not do, to be said after its name, and what mends that."""

    what: str
    mend: str


async def look(url: str, seconds: float) -> RedisFacts | Refused | None:
    """Asks for what we need of it, once; None where nobody answers.

    Raises UsageError for a URL that is none.
    """
    client = connect(url, seconds)
    try:
        told: dict[str, Any] = await client.info("everything")
        if _takes_writes(told):
            await client.eval(LOOK, 1, LOOKED_AT)
        await _tell(client, seconds)
    except (TimeoutError, RedisError, OSError) as error:
        refused = refusal(error)
        return None if refused is None else Refused(*refused)
    finally:
        await client.aclose()
    policy = str(told.get("maxmemory_policy", "noeviction"))
    most = int(told.get("maxmemory", 0))
    ends = ("aof_last_write_status", "rdb_last_bgsave_status")
    return RedisFacts(
        version=str(told.get("redis_version", "0")),
        is_replica=not _takes_writes(told),
        has_aof=bool(told.get("aof_enabled")),
        cannot_write=any(told.get(end) == "err" for end in ends),
        evicts=policy if most and policy != "noeviction" else None,
        memory_share=int(told.get("used_memory", 0)) / most if most else None,
    )


def _takes_writes(told: dict[str, Any]) -> bool:
    return told.get("role") != "slave"


async def _tell(client: "aioredis.Redis", seconds: float) -> None:
    """Hear of a message of our own. Raises TimeoutError where it does not come."""
    channel = f"{LOOKED_AT}:{secrets.token_hex(6)}"
    async with client.pubsub() as hearing:
        await hearing.subscribe(channel)
        await hearing.get_message(timeout=seconds)
        await client.publish(channel, "")
        if await hearing.get_message(timeout=seconds) is None:
            raise TimeoutError
