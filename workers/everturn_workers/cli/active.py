"""The session that was used last, whose id stands in the home folder's `active_session`."""

from pathlib import Path

from everturn.errors import UsageError
from everturn.inputs import checked_id

FILE = "active_session"


def active_session(home: Path) -> str:
    """Its id; UsageError where none was used yet."""
    try:
        named = (home / FILE).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        named = ""
    if not named:
        raise UsageError(
            f"No session was used on {home} yet, so there is none to go on with; leave --continue"
            " out, or name one with --session."
        )
    return checked_id(named, f"session id in {home / FILE}")


def use(home: Path, session: str) -> None:
    """Let `session` be the one that `--continue` goes on with."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / FILE).write_text(f"{session}\n", encoding="utf-8")
    except OSError:
        # Whoever works in another's home folder has no session of its own there.
        return
