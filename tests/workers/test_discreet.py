"""What an error may tell Temporal and the log."""

import logging
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from everturn.errors import StaleHost
from everturn_workers.discreet import Discreet

CANARY = "the-secret-of-the-prompt"


class Raises(ActivityInboundInterceptor):
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        raise self._error


async def told(error: Exception) -> ApplicationError:
    given = ExecuteActivityInput(fn=told, args=[], executor=None, headers={})
    with pytest.raises(ApplicationError) as caught:
        await ActivityEnvironment().run(
            Discreet().intercept_activity(Raises(error)).execute_activity, given
        )
    return caught.value


async def test_an_error_that_is_not_ours_reaches_neither_history_nor_log_with_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        error = await told(ValueError(CANARY))

    assert CANARY not in str(error)
    assert error.__cause__ is None
    assert error.type == "ValueError"
    assert CANARY not in caplog.text
    assert "test_discreet.py" in caplog.text


async def test_an_error_of_ours_says_what_it_says_and_is_known_by_its_name() -> None:
    error = await told(StaleHost("Another run hosts the session."))

    assert (error.type, str(error)) == ("StaleHost", "StaleHost: Another run hosts the session.")
