"""TurnEnd: runs the hooks of a turn's end, beside whatever its session does next."""

from temporalio import workflow

from everturn_workflows import calls
from everturn_workflows.home import at_home

with workflow.unsafe.imports_passed_through():
    from everturn.session import AwaitHome, EndHooks


@workflow.defn(name="TurnEnd")
class TurnEnd:
    @workflow.run
    async def run(self, request: EndHooks) -> None:
        async def start(seconds: float | None) -> None:
            await calls.end_hooks(request, seconds)

        key = (request.tenant, request.session, request.turn, request.home)
        await at_home(AwaitHome(*key, at="end"), start)
