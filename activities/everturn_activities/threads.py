"""Blocking functions beside the event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ExitError(Exception):
    """A function raised what would end the program, such as KeyboardInterrupt or SystemExit."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"{type(raised).__name__} was raised")
        self.raised = raised


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `function` returns, from a thread of its own.

    Cancelling the wait leaves the thread running: nothing can stop it. It is a daemon, not
    one of an executor's, so that a function that hangs does not keep the process from ending.
    Raises ExitError for what is no Exception: raised in a task, it would end the event loop.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        result: R | None = None
        raised: BaseException | None = None
        try:
            result = context.run(function, *args, **kwargs)
        except (Exception, asyncio.CancelledError) as error:  # It belongs to whoever waits.
            raised = error
        except BaseException as error:
            raised = ExitError(error)
        try:
            loop.call_soon_threadsafe(_settle, future, result, raised)
        except RuntimeError:
            # The loop has closed: nobody waits any more.
            return

    threading.Thread(target=run, name=getattr(function, "__name__", "tool"), daemon=True).start()
    return await future


def _settle(future: "asyncio.Future[R]", result: "R | None", raised: BaseException | None) -> None:
    if future.done():
        return
    if raised is None:
        future.set_result(result)  # type: ignore[arg-type]
    elif isinstance(raised, StopIteration):
        # A future refuses to carry it.
        future.set_exception(RuntimeError("StopIteration was raised"))
    else:
        future.set_exception(raised)
