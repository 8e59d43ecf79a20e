"""A call that waits for the governor longer than all its attempts may take has not failed."""

from pathlib import Path

import pytest
from harness import bench, says, scripted
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as TimedOut

from everturn_activities.admission import must_wait
from everturn_activities.governor import Wait
from everturn_workers import isolation
from everturn_workflows import calls

CALLS = Path(calls.__file__)


@pytest.fixture
def _four_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workflow code in which all attempts at a model call may take 4 s."""
    source = CALLS.read_text()
    short = source.replace(
        "MODEL_ALL_SECONDS = timedelta(hours=2)", "MODEL_ALL_SECONDS = timedelta(seconds=4)"
    )
    assert short != source
    kept = isolation._KEPT._kept
    code = compile(short, str(CALLS), "exec")
    monkeypatch.setitem(kept, "everturn_workflows.calls", (code, str(CALLS), None))


@pytest.mark.usefixtures("_four_seconds")
async def test_a_turn_that_waits_longer_than_a_call_may_take_still_gets_its_answer(
    server_address: str, tmp_path: Path, workspace: Path
) -> None:
    gateway = scripted(says("ok"))
    limits = {"*": {"requests_per_second": 0.15}}
    async with (
        bench(server_address, tmp_path / "home", workspace, provider_limits=limits) as made,
        made.worker(gateway, placement="queued"),
    ):
        first, second = await made.session("first"), await made.session("second")
        await made.send(first, "hello")
        await made.until(first, "step_started")
        await made.send(second, "hello")
        events = await made.until(second, "turn_finished")
    assert events[-1].body["outcome"] == "completed"
    times = {event.type: event.time for event in events}
    assert times["step_started"] - times["turn_started"] > 4
    assert len(gateway.requests) == 2


def ended(state: RetryState, cause: BaseException) -> ActivityError:
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="call_model",
        activity_id="1",
        retry_state=state,
    )
    error.__cause__ = cause
    return error


WAIT = must_wait(Wait(7.5, "rate"))
FAILED = ApplicationError("The model call failed.", type="ModelUnavailable")
SILENT = TimedOut("silent", type=TimeoutType.HEARTBEAT, last_heartbeat_details=[])


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (ended(RetryState.TIMEOUT, WAIT), 7.5),
        # The store has not said that it was the last try.
        (ended(RetryState.TIMEOUT, FAILED), 1.0),
        (ended(RetryState.NON_RETRYABLE_FAILURE, FAILED), None),
        # It may be the call that ends its workers.
        (ended(RetryState.TIMEOUT, SILENT), None),
        (WAIT, None),
    ],
)
def test_only_what_ran_out_of_time_in_the_middle_goes_on(
    error: ActivityError, seconds: float | None
) -> None:
    assert calls.left_off(error) == seconds
