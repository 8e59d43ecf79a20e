"""Sessions whose files are at another home than the one that answers."""

from collections.abc import Sequence

from everturn.errors import UsageError
from everturn.session import SessionKey
from everturn_activities import session_homes
from everturn_activities.file_changes import Work
from everturn_workers.doors.parts import Parts
from everturn_workers.home import home_id


def is_elsewhere(parts: Parts, home: str | None) -> bool:
    """Whether what a session of `home` works in cannot be seen from here."""
    return home is not None and home != home_id(parts.settings.home)


async def left_elsewhere(
    parts: Parts, key: SessionKey, turn: int, below: Sequence[Work]
) -> tuple[str, ...]:
    """What to say of calls since that turn whose checkpoints are at other homes."""
    if not parts.settings.has_homes:
        return ()
    home = home_id(parts.settings.home)
    return await session_homes.left_elsewhere(parts.store, home, key, turn, below)


async def demand_here(parts: Parts, key: SessionKey, what: str) -> None:
    """Raise UsageError where the session's files, and so `what`, are at another home."""
    known = await parts.store.folder(key)
    if is_elsewhere(parts, known.home):
        raise UsageError(
            f"{what} of session {key.session!r} are at the home with the id {known.home}, and this"
            f" API works on the home {home_id(parts.settings.home)}; ask an API of that home."
        )
