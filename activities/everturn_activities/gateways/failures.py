"""From what a provider answered to an error that names the thing and the mend."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from everturn.errors import (
    ContextOverflow,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelStalled,
    ModelUnavailable,
    ModelUnreachable,
)
from everturn.messages import without_lone_surrogates

DETAIL_CHARACTERS_MAX = 300

_OVERFLOW = re.compile(
    r"context.?length|maximum (context|prompt)|context window|prompt is too long|input is too long"
    r"|too many (input )?tokens|input token count|max_new_tokens.? must be"
    r"|exceeds? (the )?(model's |available )?(maximum|context)",
    re.IGNORECASE,
)
_KEY_LIKE = re.compile(r"\b(sk|pk|rk|gsk|xai|AIza|Bearer )[-_]?[\w\-*.]{8,}")
_STATUS_BY_CODE = {
    "rate_limit": 429,
    "too_many_requests": 429,
    "overloaded": 529,
    "authentication": 401,
    "invalid_api_key": 401,
    "permission": 403,
    "model_not_found": 404,
    "not_found": 404,
    "invalid_request": 400,
    "billing": 402,
}
_WAITABLE = {408, 409, 425, 429}


@dataclass(frozen=True)
class Called:
    """Who was asked: for the sentence that tells of a failure.

    `secrets` never show in it. Without a `key_variable` no key is meant for this host.
    """

    model: str
    host: str
    key_variable: str | None = "OPENAI_API_KEY"
    secrets: Callable[[], tuple[str, ...]] = tuple


def scrubbed(text: str, secrets: tuple[str, ...] = ()) -> str:
    """`text` without the secrets and without anything that looks like a key."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    return _KEY_LIKE.sub("***", text)


def from_answer(
    called: Called, status: int, error: object, headers: Mapping[str, str] | None = None
) -> ModelError:
    """The error of an answer of `status`, or of an error inside a stream."""
    code, text = _code_and_text(error)
    detail = _detail(called, text)
    model, host = called.model, called.host
    if status in (400, 413, 422) and (code.startswith("context_length") or _OVERFLOW.search(text)):
        return ContextOverflow(
            f"The request is longer than the window of model {model} at {host}{detail}"
            " Shorten the conversation or choose a model with a larger window."
        )
    if "insufficient_quota" in code or "insufficient_quota" in text:
        return ModelRefused(
            f"{host} refuses model {model} because the account has no quota left{detail}"
            " Top up the account or use another key."
        )
    if status in _WAITABLE or status >= 500:
        kind = ModelRateLimited if status == 429 else ModelUnavailable
        return kind(
            f"{host} cannot serve model {model} now (HTTP {status}){detail}",
            retry_after_seconds=retry_after_seconds(headers or {}),
        )
    return ModelRefused(_refusal(called, status, detail))


def _refusal(called: Called, status: int, detail: str) -> str:
    model, host = called.model, called.host
    match status:
        case 401 | 403 if called.key_variable is None:
            return (
                f"{host} wants a key for model {model} (HTTP {status}){detail} Name the variable"
                " that holds it by api_key_variable, beside base_url in the workspace's settings."
            )
        case 401:
            return (
                f"{host} refused the key for model {model} (HTTP 401){detail}"
                f" Set {called.key_variable} to a valid key."
            )
        case 402:
            return f"{host} wants payment for model {model} (HTTP 402){detail} Top up the account."
        case 403:
            return (
                f"{host} does not allow model {model} with this key (HTTP 403){detail}"
                f" Choose another model or set {called.key_variable} to a key that may use it."
            )
        case 404:
            return (
                f"{host} does not know model {model} (HTTP 404){detail}"
                " Check the model's name and the endpoint's address."
            )
        case 300 | 301 | 302 | 303 | 307 | 308:
            return f"{host} redirects elsewhere (HTTP {status}); set the endpoint's final address."
        case _:
            return (
                f"{host} refused the request for model {model} (HTTP {status}){detail}"
                " Change the request or choose another model."
            )


def from_stream_error(called: Called, error: object) -> ModelError:
    """The error of a stream that began well: without a telling code, time may repair it."""
    code, text = _code_and_text(error)
    status = 500
    if code.isdigit() and 400 <= int(code) <= 599:
        status = int(code)
    elif code.startswith("context_length") or _OVERFLOW.search(text):
        status = 400
    else:
        for name, known in _STATUS_BY_CODE.items():
            if name in code:
                status = known
                break
    return from_answer(called, status, error)


def unreachable(called: Called, why: str) -> ModelUnreachable:
    return ModelUnreachable(
        f"{called.host} cannot be reached for model {called.model}{_detail(called, why)}"
        " Check the endpoint's address and that it runs."
    )


def cut(called: Called, why: str) -> ModelUnavailable:
    return ModelUnavailable(f"The stream from {called.host} was cut {why}; model {called.model}.")


def stalled(called: Called, seconds: float) -> ModelStalled:
    return ModelStalled(
        f"The stream from {called.host} fell silent for {seconds:g} s (stall_seconds);"
        f" model {called.model}."
    )


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long a provider asks us to wait. Reads `retry-after-ms`, then `retry-after`."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None and _is_number(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    if _is_number(value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*\d+(\.\d+)?\s*", text) is not None


def _code_and_text(error: object) -> tuple[str, str]:
    """The provider's code, in lower case, and what it says, out of any usual shape."""
    if isinstance(error, Mapping):
        inner: Any = error.get("error", error)
        if isinstance(inner, Mapping):
            code = f"{inner.get('code') or ''} {inner.get('type') or ''}".strip()
            text = inner.get("message") or inner.get("detail") or inner.get("msg") or ""
            return code.lower(), text if isinstance(text, str) else str(text)
        return "", str(error.get("message") or inner)
    return "", "" if error is None else str(error)


def _detail(called: Called, text: str) -> str:
    """`: what the provider said.`, on one line, scrubbed and short; `.` where it said nothing."""
    text = " ".join(scrubbed(without_lone_surrogates(text), called.secrets()).split())
    if len(text) > DETAIL_CHARACTERS_MAX:
        text = text[: DETAIL_CHARACTERS_MAX - 3] + "..."
    return f": {text.rstrip('.')}." if text else "."
