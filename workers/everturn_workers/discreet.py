"""Keeps what people wrote out of Temporal's history and our logs, also when things go wrong.

An exception's text can quote anything: a validation error its input, a driver its
parameters. Those that we raise ourselves say what may be said; of any other, history
and log learn the type and where it came from.
"""

import io
import logging
import sys
import traceback
from typing import Any, TextIO

from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn.errors import FAULT, EverturnError
from everturn.scrubbing import Scrubber

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
    for chatty in ("httpx", "httpcore", "httpx2", "httpcore2", "alembic", "boto3", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def keep_out_of_logs(scrubber: Scrubber) -> None:
    """Take known secrets out of all that this process prints: a tool's `print` goes there too."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            handler.setStream(_Scrubbed(sys.stderr, scrubber))
    sys.stdout, sys.stderr = _Scrubbed(sys.stdout, scrubber), _Scrubbed(sys.stderr, scrubber)


class _Scrubbed(io.TextIOBase):
    def __init__(self, stream: TextIO, scrubber: Scrubber) -> None:
        self._stream = stream
        self._scrubber = scrubber

    def write(self, text: str) -> int:
        self._stream.write(self._scrubber.scrubbed(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    # It logs what servers have said where that cannot be read.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
