"""The way of tools to servers of the web: through the guard, and with the key of the call."""

from collections.abc import Mapping
from typing import Any

from everturn.hosts import Reach
from everturn.outgoing import IDEMPOTENCY_KEY, HttpAnswer

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


async def keyed_http(
    allowed_hosts: tuple[str, ...] | None,
    key: str,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    content: bytes | None = None,
) -> HttpAnswer:
    """`Http` of the call that has this idempotency key."""
    # Imported late: most workers' tools ask no server.
    from everturn_activities.web import ask

    told = {} if method.upper() in _READS else {IDEMPOTENCY_KEY: key}
    # The call's own key wins: it is what makes a second attempt no second effect.
    own = {name: value for name, value in (headers or {}).items() if name.title() not in told}
    reach = Reach.of(allowed_hosts)
    return await ask(reach, method, url, headers={**own, **told}, json=json, content=content)
