"""Why a Redis that answers does not do what it is asked, and what mends it: in our words, since its
own quote whom it refuses."""

from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NotConnected

RIGHTS = (
    "~everturn:* &everturn:* +@read +@write +@pubsub +@scripting +@connection -@dangerous"
    " +info +time"
)
"""What a user of ours needs, as `ACL SETUSER` takes it."""

_MEND_URL = "mend EVERTURN_REDIS_URL"
# How it says within a script what our user may not; it has no type of its own for that.
_WITHOUT_LEAVE = ("the user executing the script", "acl failure", "no permissions")


def refusal(error: BaseException) -> tuple[str, str] | None:
    """What Redis does not do, to be said after its name, and the mend; None for an error that is
    no refusal: nobody answers."""
    said = str(error)
    match error:
        case AuthenticationError():
            return ("refuses the user or the password", _MEND_URL)
        case NoPermissionError():
            return _no_leave()
        case NotConnected() if "max number of clients" in said:
            return (
                "has as many clients as it takes",
                "raise its maxclients, or end clients that nobody needs (CLIENT LIST)",
            )
        case OutOfMemoryError():
            return (
                "has no memory left, and takes no writes",
                "raise its maxmemory, or lower EVERTURN_EVENT_TTL_SECONDS",
            )
        case ReadOnlyError():
            return (
                "is a replica, which takes no writes",
                "name its primary in EVERTURN_REDIS_URL",
            )
        case ResponseError() if any(part in said.lower() for part in _WITHOUT_LEAVE):
            return _no_leave()
        case ResponseError() if said.startswith("MISCONF"):
            return (
                "cannot write its data to its disk, and takes no writes",
                "see its log; make room on its disk",
            )
        case ResponseError() if said.startswith("NOREPLICAS"):
            return (
                "has fewer replicas than it wants, and takes no writes",
                "start them, or lower its min-replicas-to-write",
            )
        case ResponseError() if said.startswith("DB index"):
            return ("has no database of that number", _MEND_URL)
        case ResponseError():
            return (
                f"answers with a {type(error).__name__}",
                "see that EVERTURN_REDIS_URL names a Redis from 6.2 on, and see its log",
            )
        case _:
            return None


def _no_leave() -> tuple[str, str]:
    return ("does not allow our user what we need", f"ACL SETUSER its name with {RIGHTS}")
