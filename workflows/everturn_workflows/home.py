"""Calls that only a session's home can answer: what it works in lies there alone."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from everturn_workflows import calls
from everturn_workflows.calls import HOME_SECONDS

with workflow.unsafe.imports_passed_through():
    from everturn.session import AwaitHome

T = TypeVar("T")


async def at_home(request: AwaitHome, start: Callable[[float | None], Awaitable[T]]) -> T:
    """The result of the call that `start` begins, which waits so many seconds for a worker.

    That none lives is told once, and then waited for: the server gives the call to the first
    that comes, and a cancel of the turn ends the wait.
    """
    seconds: float | None = HOME_SECONDS
    while True:
        try:
            return await start(seconds)
        except ActivityError as error:
            if not (request.home and calls.is_unattended(error)):
                raise
        seconds = None if await calls.tell_away(request) else (seconds or HOME_SECONDS) * 2
