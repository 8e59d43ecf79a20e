"""Keeps what people wrote out of Temporal's history and our logs, also when things go wrong.

An exception's text can quote anything: a validation error its input, a driver its
parameters. Those that we raise ourselves say what may be said; of any other, history
and log learn the type and where it came from.
"""

import logging
import traceback
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn.errors import FAULT, EverturnError

FAULTS_MAX = 20
"""A fault of ours does not mend itself: after so many attempts, about a minute, it is final."""
AWAY = ("OperationalError", "InterfaceError")
"""What drivers of databases raise while their server is away, which may last."""

log = logging.getLogger(__name__)


class Discreet(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - named so by the SDK
        return _Activity(next)


class _Activity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - named so by the SDK
        try:
            return await super().execute_activity(input)
        except FailureError:
            raise
        except EverturnError as error:
            raise ApplicationError(str(error), type=type(error).__name__) from None
        except Exception as error:
            name = type(error).__name__
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in %s at\n%s", name, input.fn.__name__, where)
            text = f"{name}; the worker's log tells where."
            if isinstance(error, OSError) or name in AWAY or activity.info().attempt < FAULTS_MAX:
                raise ApplicationError(text, type=name) from None
            raise ApplicationError(text, type=FAULT, non_retryable=True) from None


def log_to_stderr(level: str) -> None:
    """Log lines with a time, and of libraries no more than warnings: some print addresses."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for chatty in ("httpx", "httpcore", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
