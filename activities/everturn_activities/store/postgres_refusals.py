"""Why a PostgreSQL that answers does not do what it is asked until somebody mends it: in our words,
since its own quote what it was asked."""

_REFUSALS = {
    "53100": ("has no room left on its disk", "make room there"),
    "53200": ("has no memory left", "give it more, or lower its max_connections or work_mem"),
    "53300": (
        "has as many connections as it takes",
        "raise its max_connections, or lower EVERTURN_DATABASE_CONNECTIONS",
    ),
    "53": ("is at one of its limits", "see its log"),
    "58": ("cannot use its files", "see its log and its disk"),
}


def refusal(state: str) -> tuple[str, str] | None:
    """What the database does not do, to be said after its name, and the mend; None for a state that
    is no such refusal."""
    return _REFUSALS.get(state) or _REFUSALS.get(state[:2])
