"""TurnEnd: runs the hooks of a turn's end, beside whatever its session does next."""

from temporalio import workflow

from everturn_workflows import calls

with workflow.unsafe.imports_passed_through():
    from everturn.session import EndHooks


@workflow.defn(name="TurnEnd")
class TurnEnd:
    @workflow.run
    async def run(self, request: EndHooks) -> None:
        await calls.end_hooks(request)
