"""Consolidation: makes one memory smaller, beside the turns that read it."""

from temporalio import workflow

from everturn_workflows import calls

with workflow.unsafe.imports_passed_through():
    from everturn.session import Consolidate


@workflow.defn(name="Consolidation")
class Consolidation:
    @workflow.run
    async def run(self, request: Consolidate) -> int:
        """How many facts the memory has then, 0 where it was left as it is."""
        return await calls.consolidate(request)
