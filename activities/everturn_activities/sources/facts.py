"""Sources `facts`, `datetime` and `runtime`: where and when a step is, and for whom."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from everturn.context.layers import Item
from everturn_activities.sources import Asked

CHANNEL = "everturn"
"""Of sessions whose id names none: `telegram:5` is chat 5 of channel telegram."""


async def facts(asked: Asked) -> Sequence[Item]:
    """An item with `name` and `value` for each of `options.names`."""
    told = []
    for name in asked.layer.options.get("names", FACTS):
        if name in _FACTS:
            shown, value = _FACTS[name](asked)
            told.append({"name": shown, "value": value})
    return told


async def date_and_time(asked: Asked) -> Sequence[Item]:
    """`date`, `time` and `timezone`: that of `options.timezone`, or UTC."""
    now = _local(asked)
    return (
        {
            "date": now.strftime("%A, %Y-%m-%d"),
            "time": now.strftime("%H:%M:%S"),
            "timezone": str(now.tzinfo),
        },
    )


async def runtime(asked: Asked) -> Sequence[Item]:
    """Items with `name` and `value`: when it is, and whose session."""
    channel, colon, chat = asked.key.session.partition(":")
    if not colon:
        channel, chat = CHANNEL, asked.key.session
    told = {
        "Timestamp (UTC)": _utc(asked).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "Channel": channel,
        "Session Key": f"{channel}:{chat}",
        "Chat ID": chat,
        "User ID": asked.spec.user,
    }
    return [{"name": name, "value": value} for name, value in told.items()]


def _utc(asked: Asked) -> datetime:
    return datetime.fromtimestamp(asked.at, UTC)


def _local(asked: Asked) -> datetime:
    name = str(asked.layer.options.get("timezone", "UTC"))
    if name == "UTC":
        return _utc(asked)
    try:
        return datetime.fromtimestamp(asked.at, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        asked.warn(f"There is no timezone {name!r}; UTC is told. Write one like Europe/Berlin.")
        return _utc(asked)


FACTS = ("cwd", "folder", "date", "time")
_FACTS: dict[str, Callable[[Asked], tuple[str, str]]] = {
    "cwd": lambda asked: ("Working directory", asked.spec.working_dir),
    # The host's other folders are none of the model's business.
    "folder": lambda asked: ("Working folder", f"{Path(asked.spec.working_dir).name}/"),
    "date": lambda asked: ("Date", _local(asked).strftime("%A, %Y-%m-%d")),
    "time": lambda asked: ("Time", _local(asked).strftime("%Y-%m-%d %H:%M:%S %Z")),
}
