"""Which calls a worker has under way: for a person who waits for it to end."""

from collections import Counter
from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor


class UnderWay(Interceptor):
    """Counts running activities by their names, inline ones too."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - named so by the SDK
        return _Counted(next, self.running)

    def __str__(self) -> str:
        """Such as `2 call_model, 1 run_tools`; empty where nothing runs."""
        return ", ".join(
            f"{number} {name}" for name, number in sorted(self.running.items()) if number
        )


class _Counted(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, running: Counter[str]) -> None:  # noqa: A002 - named so by the SDK
        super().__init__(next)
        self._running = running

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - named so by the SDK
        name = input.fn.__name__
        self._running[name] += 1
        try:
            return await self.next.execute_activity(input)
        finally:
            self._running[name] -= 1
