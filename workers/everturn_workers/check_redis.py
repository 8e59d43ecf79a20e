"""Whether Redis can be worked with, how it keeps its data, and what the governor holds back."""

from typing import TYPE_CHECKING

from everturn.errors import UsageError
from everturn_activities.governor.limits import Limits
from everturn_workers.check import Check, in_time
from everturn_workers.settings import Settings
from everturn_workers.settings_secrets import server_of

if TYPE_CHECKING:
    from everturn_activities.redis_look import RedisFacts

VERSION = (6, 2)
"""From which on a stream can be trimmed by number."""
ANSWER_SECONDS = 2.0
MEMORY_SHARE_MAX = 0.8


async def check_redis(settings: Settings) -> list[Check]:
    if settings.redis_url is None:
        return []
    url = settings.redis_url.get_secret_value()
    address = server_of(url)
    nobody = Check(
        "redis",
        False,
        f"No Redis answers at {address}: each process governs its model calls alone, and streams"
        " wait.",
        "Start it, or unset EVERTURN_REDIS_URL.",
    )
    return await in_time(_asked(url, address, nobody), nobody)


async def _asked(url: str, address: str, nobody: Check) -> list[Check]:
    # Imported late: the client takes a tenth of a second.
    from everturn_activities.redis_look import Refused, look

    try:
        found = await look(url, ANSWER_SECONDS)
    except UsageError as error:
        return [Check("redis", False, str(error), "Or unset it.")]
    if found is None:
        return [nobody]
    if isinstance(found, Refused):
        mend = found.mend[0].upper() + found.mend[1:]
        return [Check("redis", False, f"Redis at {address} {found.what}.", f"{mend}.")]
    keeps = "a log of its writes" if found.has_aof else "no log of its writes"
    answers = f"Redis {found.version} at {address} does all that we need, and keeps {keeps}"
    return [Check("redis", True, f"{answers}{await _held(url)}."), *troubles(found)]


def troubles(found: "RedisFacts") -> list[Check]:
    """What of a Redis that answers is to be mended, and what is to be known."""
    checks = []
    if tuple(int(part) for part in found.version.split(".")[:2] if part.isdigit()) < VERSION:
        sentence = f"Redis {found.version} is older than 6.2 and lacks what event logs need."
        checks.append(Check("redis", False, sentence, "Upgrade it."))
    if found.is_replica:
        sentence = "This Redis is a replica, which takes no writes."
        checks.append(Check("redis", False, sentence, "Name its primary in EVERTURN_REDIS_URL."))
    if found.cannot_write:
        sentence = "Redis could not write its data to the disk, and may refuse writes for that."
        checks.append(Check("redis", False, sentence, "See its log; make room on its disk."))
    if not found.has_aof:
        sentence = (
            "Redis keeps no log of its writes: a restart makes watchers begin anew from a snapshot."
        )
        checks.append(Check("redis", True, sentence, "Set `appendonly yes` to spare them that."))
    if found.memory_share is not None and found.memory_share > MEMORY_SHARE_MAX:
        sentence = f"Redis has taken {found.memory_share:.0%} of the memory that it may take."
        mend = (
            "Raise its maxmemory, or lower EVERTURN_EVENT_TTL_SECONDS; when full it takes no more."
        )
        checks.append(Check("redis", True, sentence, mend))
    if found.evicts is not None:
        sentence = f"Redis drops keys where its memory is full (maxmemory-policy {found.evicts})."
        mend = (
            "Set `maxmemory-policy noeviction`, or watchers lose events and limits are forgotten."
        )
        checks.append(Check("redis", True, sentence, mend))
    return checks


async def _held(url: str) -> str:
    """What the governor holds back now, as the end of a sentence."""
    from everturn_activities.governor.redis import RedisGovernor

    governor = RedisGovernor(url, Limits())
    try:
        state = await governor.state()
    finally:
        await governor.close()
    held = [f"{key.provider} is paused" for key in state.keys if key.paused_seconds]
    held += [f"{one.model} fails" for one in state.breakers if one.state != "closed"]
    return f"; now {', '.join(held)}" if held else ""
