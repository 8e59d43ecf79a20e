"""Which methods a path takes, as the application's own routes tell."""

from starlette.routing import Match
from starlette.types import Scope

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


def is_served(scope: Scope, method: str | None = None) -> bool:
    """Whether a route takes the request, or would take it as one of `method`."""
    # Matching writes into the scope, and this is not yet the request's turn.
    asked = {**scope, "method": method or scope["method"]}
    return any(route.matches(asked)[0] is Match.FULL for route in scope["app"].routes)


def methods(scope: Scope) -> list[str]:
    """What the request's path takes; nothing where nothing stands there."""
    return [method for method in _METHODS if is_served(scope, method)]
