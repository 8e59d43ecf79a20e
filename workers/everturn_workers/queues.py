"""Which queue has which work: what each role of a worker takes, as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from everturn_workers.assembly import Assembly
from everturn_workers.roles import Role
from everturn_workers.settings import Settings

# After a kill the next workflow task waits this long in the dead worker's own queue.
STICKY_TIMEOUT = timedelta(seconds=1)


@dataclass(frozen=True)
class Queue:
    """A queue's name, what comes by it, and how much of that at a time."""

    name: str
    activities: Sequence[Callable[..., Any]]
    slots: dict[str, Any]
    workflows: Sequence[type] = ()


def queues(work: Assembly, settings: Settings, home: str, workflows_cached: int) -> list[Queue]:
    """Those of the worker's roles, in the order in which they are opened; with that of its home,
    for what only workers of a home come to, where the store is shared by several."""
    made: dict[Role, Callable[[], Queue]] = {
        "turns": lambda: _turns(work, settings, workflows_cached),
        "models": lambda: _models(work, settings),
        "tools": lambda: _tools(work, settings),
    }
    found = [make() for role, make in made.items() if role in settings.works]
    if settings.has_homes and "tools" in settings.works:
        found.append(_at_home(work, settings, home))
    return found


def own(work: Assembly, settings: Settings, name: str) -> Queue:
    """The queue of one worker: of what needs the MCP servers that it has."""
    return Queue(
        name,
        [work.tools.run_tools, work.gathering.gather_tools],
        {"max_concurrent_activities": settings.tools_max},
    )


def _turns(work: Assembly, settings: Settings, workflows_cached: int) -> Queue:
    # Imported late: no other role needs workflows, and the sandbox that they run in.
    from everturn_workers.isolation import sandbox
    from everturn_workflows.consolidation import Consolidation
    from everturn_workflows.scheduled import Scheduled
    from everturn_workflows.shard import SwarmShard
    from everturn_workflows.swarm import Swarm
    from everturn_workflows.turn import Turn
    from everturn_workflows.turn_end import TurnEnd

    return Queue(
        settings.task_queue,
        # All of them local: they run in the process that runs the workflow.
        [
            work.turns.begin_turn,
            work.turns.check_inbox,
            work.turns.finish_turn,
            work.steps.begin_step,
            work.tools.run_tools,
            work.tools.check_approvals,
            work.executors.check_executors,
            work.swarms.begin_swarm,
            work.swarms.check_swarm,
            work.swarms.take_items,
            work.swarms.begin_item,
            work.swarms.give_up_item,
            work.schedules.fire,
            work.folders.tell_away,
        ],
        {
            "workflow_runner": sandbox,
            "no_remote_activities": True,
            "max_cached_workflows": workflows_cached,
            "max_concurrent_workflow_tasks": settings.turns_max,
            "max_concurrent_local_activities": settings.inline_max,
            "sticky_queue_schedule_to_start_timeout": STICKY_TIMEOUT,
        },
        [Turn, Consolidation, TurnEnd, Swarm, SwarmShard, Scheduled],
    )


def _models(work: Assembly, settings: Settings) -> Queue:
    return Queue(
        f"{settings.task_queue}-models",
        [
            work.models.call_model,
            work.compactions.compact,
            work.consolidations.consolidate,
        ],
        {"max_concurrent_activities": settings.models_max},
    )


def _tools(work: Assembly, settings: Settings) -> Queue:
    return Queue(
        settings.tools_queue,
        [*_with_files(work), work.executors.begin_executors, work.swarms.stop_items],
        {"max_concurrent_activities": settings.tools_max},
    )


def _at_home(work: Assembly, settings: Settings, home: str) -> Queue:
    return Queue(
        settings.own_queue(home),
        [*_with_files(work), work.steps.begin_step_at_home],
        {"max_concurrent_activities": settings.tools_max},
    )


def _with_files(work: Assembly) -> Sequence[Callable[..., Any]]:
    """What reads or changes what a session works in."""
    return (
        work.tools.run_tools,
        work.tools.ask_approvals,
        work.gathering.gather_tools,
        work.hooks.run_hooks,
        work.folders.prepare_folder,
        work.call_hooks.before_calls,
        work.call_hooks.after_calls,
        work.end_hooks.end_hooks,
    )
