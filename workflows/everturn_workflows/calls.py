"""Typed calls to activities: every time-out, every retry policy, and where each call runs."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import exceptions, workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    RetryState,
    TimeoutType,
)
from temporalio.workflow import ChildWorkflowHandle

with workflow.unsafe.imports_passed_through():
    from everturn.errors import FAULT, OVERFLOW
    from everturn.session import (
        Approved,
        AwaitHome,
        BeginTurn,
        BegunStep,
        CheckInbox,
        Compact,
        Compacted,
        Consolidate,
        ContextHead,
        Delegated,
        EndHooks,
        Finished,
        FinishTurn,
        FireSchedule,
        Gated,
        Gathered,
        GatherTools,
        InboxHead,
        PreparedFolder,
        PrepareFolder,
        PrepareStep,
        RunHooks,
        RunTools,
        StepHead,
        ToolHead,
        ToolsDone,
        TurnHead,
    )
    from everturn.swarms import (
        BeginItem,
        BegunItem,
        GiveUpItem,
        ShardStart,
        SwarmHead,
        SwarmStart,
        TakeItems,
        Taken,
    )
    from everturn_activities.call_hooks import CallHookActivities
    from everturn_activities.compaction import CompactionActivities
    from everturn_activities.consolidation import ConsolidationActivities
    from everturn_activities.end_hooks import EndHookActivities
    from everturn_activities.executors import ExecutorActivities
    from everturn_activities.folders import FolderActivities
    from everturn_activities.hooks import HookActivities
    from everturn_activities.mcp.gather import GatherActivities
    from everturn_activities.model import ModelActivities
    from everturn_activities.scheduled import ScheduleActivities
    from everturn_activities.step import StepActivities
    from everturn_activities.swarms import SwarmActivities
    from everturn_activities.tools import ToolActivities
    from everturn_activities.turn import TurnActivities

# A run that no longer hosts its session must not go on.
STALE = "StaleHost"
BLOCKED = "BudgetBlocked"

# The store is away: it comes back, and nothing may be given up meanwhile.
STORE_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    maximum_interval=timedelta(seconds=5),
    non_retryable_error_types=[STALE, "UnknownSession"],
)
STORE_SECONDS = timedelta(seconds=30)

# The store counts what the provider's side failed, and makes the last failure final: an
# attempt that lost its worker does not count. Waiting is done by the server, in no slot.
MODEL_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=[STALE],
)
MODEL_ATTEMPT_SECONDS = timedelta(minutes=15)
# For one run of attempts and waits. What is left then is begun anew (`left_off`); only a call
# that loses its worker all that time has failed.
MODEL_ALL_SECONDS = timedelta(hours=2)

# A tool's own failures are results; what is retried here is a lost worker.
TOOL_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    maximum_interval=timedelta(seconds=1),
    backoff_coefficient=1.5,
    non_retryable_error_types=[STALE],
)
TOOL_MARGIN_SECONDS = 30.0
# The worker keeps a call's time, which stands still while a person is asked in its midst; each
# question expires by itself. A worker that is lost meanwhile is heard of by its heartbeats.
ASKING = timedelta(days=30)

# 128 calls of a step at 10 s a preview.
PREVIEWS_SECONDS = timedelta(minutes=25)

# A whole disk can be copied meanwhile.
FOLDER_SECONDS = timedelta(hours=2)

# Each hook ends by its own time-out; this is for one that our own code would hang beside.
END_HOOKS_SECONDS = timedelta(hours=6)
# 128 tasks of a step, each a session, a message and a signal.
HAND_OVER_SECONDS = timedelta(minutes=5)

HEARTBEAT_SECONDS = timedelta(seconds=5)

# After so long a call in a worker's own queue goes to whoever is there: that worker is gone.
OWN_QUEUE_SECONDS = timedelta(seconds=5)
# After so long a call at a session's home is asked about: either all places there are taken, when
# it is given twice the time, or nobody works there.
HOME_SECONDS = 3.0
# Servers are launched one after the other, each within a time of its own.
LAUNCH_SECONDS = timedelta(hours=1)

# A shard's tasks are longer than a turn's: whoever takes one over replays many turns.
SHARD_TASK_SECONDS = timedelta(seconds=4)

# A local activity that waits longer than this between attempts waits as a timer.
LOCAL_RETRY_THRESHOLD = timedelta(seconds=1)


async def begin_turn(request: BeginTurn) -> TurnHead | None:
    return await workflow.execute_local_activity_method(
        TurnActivities.begin_turn, request, **_stored()
    )


async def check_inbox(request: CheckInbox) -> InboxHead:
    return await workflow.execute_local_activity_method(
        TurnActivities.check_inbox, request, **_stored()
    )


async def begin_step(turn: TurnHead, tried: bool, gathered: bool) -> BegunStep:
    """`tried`: a compaction before this step has failed just now. `gathered`: this run has asked
    the agent's servers for their tools."""
    request = PrepareStep(
        *(turn.tenant, turn.session, turn.turn, turn.step + 1, turn.epoch),
        tried=tried,
        gathered=gathered,
        home=turn.home,
    )
    return await workflow.execute_local_activity_method(
        StepActivities.begin_step,
        request,
        # An inline call that turns out slow is paid for: it is waited for.
        **{**_stored(), "start_to_close_timeout": MODEL_ATTEMPT_SECONDS},
    )


def begin_step_at_home(
    turn: TurnHead, tried: bool, gathered: bool, seconds: float | None
) -> "workflow.ActivityHandle[BegunStep]":
    """Start the same on a worker that has the session's files, where this one has not."""
    request = PrepareStep(
        *(turn.tenant, turn.session, turn.turn, turn.step + 1, turn.epoch),
        tried=tried,
        gathered=gathered,
        home=turn.home,
    )
    return workflow.start_activity_method(
        StepActivities.begin_step_at_home,
        request,
        **_with_files(turn, seconds),
        start_to_close_timeout=MODEL_ATTEMPT_SECONDS,
        retry_policy=STORE_RETRY,
    )


def cancelled_step(turn: TurnHead) -> BegunStep:
    """A step that nothing is prepared of, since its turn was cancelled first."""
    nothing = ContextHead(
        *(turn.tenant, turn.session, turn.turn, turn.step + 1, turn.epoch, 0, 0, "queued"),
        cancelled=True,
    )
    return BegunStep(nothing)


async def tell_away(request: AwaitHome) -> bool:
    return await workflow.execute_local_activity_method(
        FolderActivities.tell_away, request, **_stored()
    )


async def finish_turn(request: FinishTurn) -> Finished:
    return await workflow.execute_local_activity_method(
        TurnActivities.finish_turn, request, **_stored()
    )


def call_model(context: ContextHead) -> "workflow.ActivityHandle[StepHead]":
    """Start the step's model call as an activity of its own."""
    return workflow.start_activity_method(
        ModelActivities.call_model,
        context,
        task_queue=f"{workflow.info().task_queue}-models",
        start_to_close_timeout=MODEL_ATTEMPT_SECONDS,
        schedule_to_close_timeout=MODEL_ALL_SECONDS,
        heartbeat_timeout=HEARTBEAT_SECONDS,
        retry_policy=MODEL_RETRY,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        priority=Priority(fairness_key=context.tenant),
    )


def compact(context: ContextHead, forced: bool) -> "workflow.ActivityHandle[Compacted]":
    """Start the compaction that is due before a step, or that a provider's answer asks for."""
    return workflow.start_activity_method(
        CompactionActivities.compact,
        Compact(
            context.tenant,
            context.session,
            context.turn,
            context.step,
            context.epoch,
            -context.step if forced else context.compaction,
            forced,
        ),
        task_queue=f"{workflow.info().task_queue}-models",
        start_to_close_timeout=MODEL_ATTEMPT_SECONDS,
        schedule_to_close_timeout=MODEL_ALL_SECONDS,
        heartbeat_timeout=HEARTBEAT_SECONDS,
        retry_policy=MODEL_RETRY,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        priority=Priority(fairness_key=context.tenant),
    )


async def consolidate(request: Consolidate) -> int:
    return await workflow.execute_activity_method(
        ConsolidationActivities.consolidate,
        request,
        task_queue=f"{workflow.info().task_queue}-models",
        start_to_close_timeout=MODEL_ATTEMPT_SECONDS,
        schedule_to_close_timeout=MODEL_ALL_SECONDS,
        heartbeat_timeout=HEARTBEAT_SECONDS,
        retry_policy=MODEL_RETRY,
        priority=Priority(fairness_key=request.tenant),
    )


def run_inline(turn: TurnHead, step: int, heads: list[ToolHead]) -> Any:
    """Start the step's inline tools: they share one local activity."""
    longest = max(head.timeout_seconds for head in heads)
    return workflow.start_local_activity_method(
        ToolActivities.run_tools,
        _tools(turn, step, heads),
        start_to_close_timeout=timedelta(seconds=longest + TOOL_MARGIN_SECONDS),
        retry_policy=TOOL_RETRY,
        local_retry_threshold=LOCAL_RETRY_THRESHOLD,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


def run_queued(
    turn: TurnHead, step: int, head: ToolHead, seconds: float | None
) -> "workflow.ActivityHandle[ToolsDone]":
    """Start one tool as an activity of its own, on the worker that it needs, if it needs one."""
    where = _with_files(turn, seconds)
    if head.queue:
        where |= {"task_queue": head.queue, "schedule_to_start_timeout": OWN_QUEUE_SECONDS}
    return workflow.start_activity_method(
        ToolActivities.run_tools,
        _tools(turn, step, [head]),
        **where,
        start_to_close_timeout=ASKING
        if head.may_ask
        else timedelta(seconds=head.timeout_seconds + TOOL_MARGIN_SECONDS),
        retry_policy=TOOL_RETRY,
    )


def run_at_home(
    turn: TurnHead, step: int, heads: list[ToolHead], seconds: float | None
) -> "workflow.ActivityHandle[ToolsDone]":
    """Start the step's inline tools on a worker that has the session's files."""
    longest = max(head.timeout_seconds for head in heads)
    return workflow.start_activity_method(
        ToolActivities.run_tools,
        _tools(turn, step, heads),
        **_with_files(turn, seconds),
        start_to_close_timeout=timedelta(seconds=longest + TOOL_MARGIN_SECONDS),
        retry_policy=TOOL_RETRY,
    )


def ask_approvals(
    turn: TurnHead, step: int, seconds: float | None
) -> "workflow.ActivityHandle[Approved]":
    """Start asking a person about the step's calls that need leave: previews come first."""
    return workflow.start_activity_method(
        ToolActivities.ask_approvals,
        _tools(turn, step, []),
        **_with_files(turn, seconds),
        start_to_close_timeout=PREVIEWS_SECONDS,
        retry_policy=STORE_RETRY,
    )


async def check_approvals(turn: TurnHead, step: int) -> Approved:
    return await workflow.execute_local_activity_method(
        ToolActivities.check_approvals, _tools(turn, step, []), **_stored()
    )


def prepare_folder(
    turn: TurnHead, seconds: float | None
) -> "workflow.ActivityHandle[PreparedFolder]":
    """Start making the session's own folder."""
    return workflow.start_activity_method(
        FolderActivities.prepare_folder,
        PrepareFolder(turn.tenant, turn.session, turn.turn, turn.epoch),
        **_with_files(turn, seconds),
        start_to_close_timeout=FOLDER_SECONDS,
        retry_policy=TOOL_RETRY,
    )


def begin_executors(
    turn: TurnHead, step: int, heads: list[ToolHead]
) -> "workflow.ActivityHandle[Delegated]":
    """Start handing the step's tasks to executors."""
    return workflow.start_activity_method(
        ExecutorActivities.begin_executors,
        _tools(turn, step, heads),
        task_queue=f"{workflow.info().task_queue}-tools",
        start_to_close_timeout=HAND_OVER_SECONDS,
        heartbeat_timeout=HEARTBEAT_SECONDS,
        retry_policy=STORE_RETRY,
        priority=Priority(fairness_key=turn.tenant),
    )


def before_calls(
    turn: TurnHead, step: int, heads: list[ToolHead], seconds: float | None
) -> "workflow.ActivityHandle[Gated]":
    """Start the hooks that may keep the step's calls from running, one after the other."""
    return workflow.start_activity_method(
        CallHookActivities.before_calls,
        _tools(turn, step, []),
        **_beside(turn, sum(head.before_seconds for head in heads), seconds),
    )


def after_calls(
    turn: TurnHead, step: int, heads: list[ToolHead], seconds: float | None
) -> "workflow.ActivityHandle[None]":
    """Start the hooks that are told of the step's results, one after the other."""
    return workflow.start_activity_method(
        CallHookActivities.after_calls,
        _tools(turn, step, []),
        **_beside(turn, sum(head.after_seconds for head in heads), seconds),
    )


def _beside(turn: TurnHead, hooks_seconds: float, seconds: float | None) -> dict[str, Any]:
    return {
        **_with_files(turn, seconds),
        "start_to_close_timeout": timedelta(seconds=hooks_seconds + TOOL_MARGIN_SECONDS),
        "retry_policy": TOOL_RETRY,
    }


def _with_files(turn: TurnHead, seconds: float | None) -> dict[str, Any]:
    """What a call needs that comes to what the session works in: a worker of its home, where it
    has one; nobody waits longer than `seconds` for that."""
    where: dict[str, Any] = {"task_queue": f"{workflow.info().task_queue}-tools"}
    if turn.home:
        where["task_queue"] += f"@{turn.home}"
        if seconds is not None:
            where["schedule_to_start_timeout"] = timedelta(seconds=seconds)
    return {
        **where,
        "heartbeat_timeout": HEARTBEAT_SECONDS,
        "cancellation_type": workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        "priority": Priority(fairness_key=turn.tenant),
    }


async def check_executors(turn: TurnHead, step: int) -> Delegated:
    return await workflow.execute_local_activity_method(
        ExecutorActivities.check_executors, _tools(turn, step, []), **_stored()
    )


def run_hooks(turn: TurnHead, seconds: float | None) -> "workflow.ActivityHandle[None]":
    """Start the hooks of the turn's agent, one after the other, as one activity."""
    return workflow.start_activity_method(
        HookActivities.run_hooks,
        RunHooks(turn.tenant, turn.session, turn.turn, turn.epoch),
        **_beside(turn, turn.hooks_seconds, seconds),
    )


async def end_hooks(request: EndHooks, seconds: float | None) -> None:
    queue = f"{workflow.info().task_queue}-tools"
    await workflow.execute_activity_method(
        EndHookActivities.end_hooks,
        request,
        task_queue=f"{queue}@{request.home}" if request.home else queue,
        schedule_to_start_timeout=timedelta(seconds=seconds) if request.home and seconds else None,
        start_to_close_timeout=END_HOOKS_SECONDS,
        heartbeat_timeout=HEARTBEAT_SECONDS,
        retry_policy=TOOL_RETRY,
        priority=Priority(fairness_key=request.tenant),
    )


async def fire(request: FireSchedule) -> str:
    return await workflow.execute_local_activity_method(
        ScheduleActivities.fire, request, **_stored()
    )


def gather_tools(
    turn: TurnHead, queue: str, seconds: float | None
) -> "workflow.ActivityHandle[Gathered]":
    """Start asking the servers of the turn's agent for their tools, on a worker of `queue`."""
    where = _with_files(turn, seconds)
    if is_of_one_worker(queue):
        where |= {"task_queue": queue, "schedule_to_start_timeout": OWN_QUEUE_SECONDS}
    return workflow.start_activity_method(
        GatherActivities.gather_tools,
        GatherTools(turn.tenant, turn.session, turn.turn, turn.epoch),
        **where,
        start_to_close_timeout=LAUNCH_SECONDS,
        retry_policy=TOOL_RETRY,
    )


def is_of_one_worker(queue: str) -> bool:
    """Whether it is a worker's own queue, and not that of all tools."""
    return queue != f"{workflow.info().task_queue}-tools"


async def begin_swarm(start: SwarmStart) -> SwarmHead:
    return await workflow.execute_local_activity_method(
        SwarmActivities.begin_swarm, start, **_stored()
    )


async def check_swarm(start: SwarmStart) -> SwarmHead:
    return await workflow.execute_local_activity_method(
        SwarmActivities.check_swarm, start, **_stored()
    )


async def stop_items(start: SwarmStart) -> int:
    """Cancel what works a swarm's items."""
    return await workflow.execute_activity_method(
        SwarmActivities.stop_items,
        start,
        task_queue=f"{workflow.info().task_queue}-tools",
        start_to_close_timeout=HAND_OVER_SECONDS,
        heartbeat_timeout=HEARTBEAT_SECONDS,
        retry_policy=STORE_RETRY,
        priority=Priority(fairness_key=start.tenant),
    )


async def start_shard(start: ShardStart, workflow_id: str) -> "ChildWorkflowHandle[Any, Any]":
    return await workflow.start_child_workflow(
        "SwarmShard",
        start,
        id=workflow_id,
        task_timeout=SHARD_TASK_SECONDS,
        priority=Priority(fairness_key=start.tenant),
    )


async def tell_parent() -> None:
    """Have the shard's swarm look: it stops."""
    parent = workflow.info().parent
    if parent is None:
        return
    # A swarm that is gone has nothing to look at.
    with suppress(FailureError):
        await workflow.get_external_workflow_handle(parent.workflow_id).signal("wake")


async def take_items(request: TakeItems) -> Taken:
    return await workflow.execute_local_activity_method(
        SwarmActivities.take_items, request, **_stored()
    )


async def begin_item(request: BeginItem) -> BegunItem:
    return await workflow.execute_local_activity_method(
        SwarmActivities.begin_item,
        request,
        # As for a step: an inline call that turns out slow is waited for.
        **{**_stored(), "start_to_close_timeout": MODEL_ATTEMPT_SECONDS},
    )


async def give_up_item(request: GiveUpItem) -> bool:
    return await workflow.execute_local_activity_method(
        SwarmActivities.give_up_item, request, **_stored()
    )


def is_unattended(error: FailureError) -> bool:
    """Whether nobody took the call from a queue that few take work from."""
    found = error.cause if isinstance(error, ActivityError) else error
    return (
        isinstance(found, exceptions.TimeoutError) and found.type is TimeoutType.SCHEDULE_TO_START
    )


def is_stale(error: FailureError) -> bool:
    """Whether the run must end because its session went on without it."""
    return _type(error) == STALE


def is_blocked(error: FailureError) -> bool:
    """Whether a budget did not let the call begin: the step is begun again, and asks it."""
    return _type(error) == BLOCKED


def left_off(error: FailureError) -> float | None:
    """In how many seconds a call goes on whose time for all attempts ran out before its tries
    did; None where it has failed. The store counts tries, and waits are no failures."""
    if not isinstance(error, ActivityError) or error.retry_state is not RetryState.TIMEOUT:
        return None
    raised = _raised(error)
    if raised is None:
        return None
    told = raised.details[0] if raised.details else None
    return float(told) if isinstance(told, int | float) else 1.0


def is_fault(error: FailureError) -> bool:
    """Whether the activity was given up because of a fault of ours."""
    return _type(error) == FAULT


def is_overflow(error: FailureError) -> bool:
    """Whether a model call failed because its request was longer than the model's window."""
    return _type(error) == OVERFLOW


def said(error: FailureError) -> str:
    """What an activity that failed told of it."""
    raised = _raised(error)
    return raised.message if raised is not None else type(error).__name__


def _type(error: FailureError) -> str | None:
    raised = _raised(error)
    return raised.type if raised is not None else None


def _raised(error: FailureError) -> ApplicationError | None:
    """What the activity raised: a local one's failure comes as it is, any other wrapped."""
    found = error.cause if isinstance(error, ActivityError) else error
    return found if isinstance(found, ApplicationError) else None


def _tools(turn: TurnHead, step: int, heads: list[ToolHead]) -> RunTools:
    return RunTools(
        *(turn.tenant, turn.session, turn.turn, step, turn.epoch),
        indexes=[head.index for head in heads],
        home=turn.home,
    )


def _stored() -> dict[str, Any]:
    return {
        "start_to_close_timeout": STORE_SECONDS,
        "retry_policy": STORE_RETRY,
        "local_retry_threshold": LOCAL_RETRY_THRESHOLD,
    }
