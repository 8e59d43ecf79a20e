"""Scheduled: what Temporal starts at each time of a schedule. The store decides what follows."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from everturn_workflows import calls

with workflow.unsafe.imports_passed_through():
    from everturn.session import FireSchedule, ScheduleStart

_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


@workflow.defn(name="Scheduled")
class Scheduled:
    @workflow.run
    async def run(self, start: ScheduleStart) -> str:
        """What became of the time for which Temporal started this, however late that was."""
        at = workflow.info().typed_search_attributes.get(_TIME)
        if at is None:
            return "ignored"
        return await calls.fire(FireSchedule(start.tenant, start.name, at.timestamp()))
