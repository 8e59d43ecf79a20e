"""Requests that a tool makes to the web, and their answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from everturn.errors import ToolFailed

IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(frozen=True)
class HttpAnswer:
    """What a server answered, whatever its status. The names of `headers` are in lower case;
    `complete` says that nothing of `content` was cut."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    complete: bool = True

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Raises ToolFailed for what is no JSON."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise ToolFailed(f"The answer (HTTP {self.status}) is no JSON.") from None


class Http(Protocol):
    async def __call__(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
    ) -> HttpAnswer:
        """Ask the server at `url`; one that the agent may not reach raises ToolFailed.

        What may change something carries the call's key as `Idempotency-Key`, the same with
        every attempt. Redirects are answers: nothing is followed.
        """
        ...


async def no_http(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    content: bytes | None = None,
) -> HttpAnswer:
    """The `Http` of a call that has none."""
    raise ToolFailed("There is no way to the web here.")
