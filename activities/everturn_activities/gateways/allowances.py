"""What providers tell of their limits in the headers of an answer."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

LOW = 0.2
"""The part of an allowance that is little enough to be shared out."""
SECONDS_MIN = 10.0

_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|us|h|m|s|d)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Allowance:
    """A provider's bucket: `remaining` of `limit` are left, and it is full again, if nobody
    takes anything, after `reset_seconds`."""

    counts: Literal["calls", "tokens"]
    limit: float
    remaining: float
    reset_seconds: float

    @property
    def lasts(self) -> bool:
        """Whether it still says something when it is read: the bucket is no matter of seconds."""
        used = self.limit - self.remaining
        return used <= 0 or self.limit * self.reset_seconds / used >= SECONDS_MIN

    @property
    def is_ample(self) -> bool:
        """Whether nobody needs to wait for it."""
        return self.reset_seconds <= 0 or self.remaining > LOW * self.limit


def allowances(headers: Mapping[str, str]) -> tuple[Allowance, ...]:
    """Reads OpenAI's names, which many use, and Anthropic's."""
    if "x-ratelimit-remaining-requests" in headers or "x-ratelimit-remaining-tokens" in headers:
        names = "x-ratelimit-{what}-{of}"
    elif "anthropic-ratelimit-requests-remaining" in headers:
        names = "anthropic-ratelimit-{of}-{what}"
    else:
        return ()
    calls = _allowance(headers, names, "calls", "requests")
    tokens = _allowance(headers, names, "tokens", "tokens")
    return tuple(one for one in (calls, tokens) if one is not None and one.lasts)


def _allowance(
    headers: Mapping[str, str], names: str, counts: Literal["calls", "tokens"], of: str
) -> Allowance | None:
    """None where one of its headers is missing, or is nothing that we can read."""
    told = [headers.get(names.format(what=what, of=of)) for what in ("limit", "remaining", "reset")]
    try:
        limit, remaining = float(told[0] or ""), float(told[1] or "")
        reset = _seconds((told[2] or "").strip())
    except ValueError:
        return None
    if not 0 < limit < 1e15 or not 0 <= remaining <= limit:
        return None
    return Allowance(counts, limit, remaining, reset)


def _seconds(text: str) -> float:
    """A duration such as `6m0s`, `17ms` or `1.5`, or a moment of the calendar."""
    pieces = _PIECE.findall(text)
    if pieces and "".join(number + unit for number, unit in pieces) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in pieces)
    if "T" in text:
        return max(0.0, datetime.fromisoformat(text).timestamp() - time.time())
    return float(text)
