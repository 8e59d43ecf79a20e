"""Problem documents (RFC 9457): every error of the API, in one shape and one sentence."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from everturn.errors import (
    EverturnError,
    IdempotencyConflict,
    RuntimeUnavailable,
    TooLarge,
    UnknownSchedule,
    UnknownSession,
    UnknownTask,
    UnknownWebhook,
    UsageError,
)
from everturn.views import Problem
from everturn_workers.doors.routes import methods

log = logging.getLogger(__name__)

_STATUS: dict[type[EverturnError], int] = {
    UnknownSession: 404,
    UnknownSchedule: 404,
    UnknownTask: 404,
    UnknownWebhook: 404,
    IdempotencyConflict: 409,
    TooLarge: 413,
    UsageError: 422,
    RuntimeUnavailable: 503,
}


def problem(
    status: int,
    detail: str,
    type: str = "about:blank",  # noqa: A002
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = Problem(type=type, title=HTTPStatus(status).phrase, status=status, detail=detail)
    return Response(body.model_dump_json(), status, headers, media_type="application/problem+json")


def tell_problems(app: FastAPI) -> None:
    """Make every error of `app` a problem document."""
    app.add_exception_handler(EverturnError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


def problem_of(error: EverturnError) -> Response:
    for kind in type(error).__mro__:
        if kind in _STATUS:
            status = _STATUS[kind]
            again = {"retry-after": "1"} if status == 503 else None
            return problem(status, str(error), f"urn:everturn:{type(error).__name__}", again)
    log.error("a request failed: %s", error)
    return problem(500, "The server failed on this request; its log tells why.")


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, EverturnError)
    return problem_of(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        why = first.get("ctx", {}).get("error", "")
        return problem(400, f"The body is not valid JSON ({why}); send one JSON object in UTF-8.")
    return problem(422, _sentence(first))


def _sentence(error: Mapping[str, Any]) -> str:
    """What a validation error asks for: the field, and what it must be."""
    where, *path = [str(part) for part in error["loc"]]
    name = ".".join(path)
    said = error["msg"].removeprefix("Value error, ")
    if not name:
        match error["type"]:
            case "missing":
                return f"The {where} is missing; send one JSON object."
            case "value_error":
                return f"The {where} is wrong: {said}; correct it and send again."
            case _:
                return f"The {where} is no JSON object; send one."
    said = said[0].lower() + said[1:]
    kind = "Field" if where == "body" else "Parameter"
    if error["type"] == "extra_forbidden":
        return f"{kind} {name!r} is not known here; leave it out."
    if error["type"] == "missing":
        return f"{kind} {name!r} is missing; add it."
    return f"{kind} {name!r} is wrong: {said}; correct it and send again."


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    headers = error.headers
    match error.status_code:
        case 404:
            detail = f"Nothing stands at {path!r}; the paths are in /v1/openapi.json."
        case 405:
            # The router names those of the first route at this path only.
            headers = {"Allow": ", ".join(methods(request.scope))}
            detail = f"{request.method} is not possible at {path!r}; use {headers['Allow']}."
        case _:
            detail = f"{error.detail.rstrip('.')}; correct the request and send it again."
    return problem(error.status_code, detail, headers=headers)


async def _bug(request: Request, error: Exception) -> Response:
    return problem(500, "The server failed on this request; its log tells why.")
