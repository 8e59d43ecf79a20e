"""A session that is opened again: it keeps what it was created with."""

import os

from everturn.errors import IdempotencyConflict
from everturn.views import SessionView

_FOLDERS = ("workspace", "working_dir")


def demand_same(session: SessionView, **named: str | None) -> None:
    """Refuse settings that are not the session's; those that are None were not named."""
    others = {
        setting: value
        for setting, value in named.items()
        if value is not None and not _same(setting, getattr(session, setting), value)
    }
    if others:
        created = ", and ".join(
            f"with {setting} {getattr(session, setting)!r}, not {value!r}"
            if getattr(session, setting) is not None
            else f"without {setting}, not with {value!r}"
            for setting, value in others.items()
        )
        raise IdempotencyConflict(
            f"Session {session.id!r} was created {created}; leave {' and '.join(others)} out, or"
            " use another session."
        )


def _same(setting: str, kept: str | None, value: str) -> bool:
    if kept is not None and setting in _FOLDERS:
        return os.path.realpath(kept) == os.path.realpath(value)
    return kept == value
