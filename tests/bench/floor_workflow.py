"""The floor: the least that a hand-written agent on Temporal does. Frozen; never tuned for us.

Model calls and tool calls are ordinary activities, one an activity; the conversation
travels as their arguments and stands in the workflow; nothing is stored or streamed.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from openai import AsyncOpenAI

QUEUE = "floor"
SECONDS = timedelta(seconds=30)
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


class FloorActivities:
    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client

    @activity.defn
    async def floor_model(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        completion = await self._client.chat.completions.create(
            model="gpt-5-mini",
            messages=messages,  # type: ignore[arg-type]
            tools=[ADD],  # type: ignore[list-item]
        )
        return completion.choices[0].message.model_dump(exclude_none=True)

    @activity.defn
    async def floor_add(self, call: dict[str, Any]) -> dict[str, Any]:
        import json

        arguments = json.loads(call["function"]["arguments"])
        total = arguments["a"] + arguments["b"]
        return {"role": "tool", "tool_call_id": call["id"], "content": str(total)}

    @activity.defn
    async def floor_slow(self, began: str) -> None:
        """The 5 s tool of W5: appends the time at which it begins to the file `began`."""
        import time

        with open(began, "a") as log:  # noqa: ASYNC230 - one line, as a tool would write it
            log.write(f"{time.time()}\n")
        for _ in range(10):
            activity.heartbeat()
            await asyncio.sleep(0.5)

    @activity.defn
    async def floor_nap(self, log: str) -> None:
        """The 100 ms tool of W7: appends when it began and ended to the file `log`."""
        import time

        began = time.time()
        await asyncio.sleep(0.1)
        with open(log, "a") as file:  # noqa: ASYNC230 - one line, as a tool would write it
            file.write(f"{began} {time.time()}\n")


@workflow.defn
class FloorFan:
    @workflow.run
    async def run(self, log: str, count: int) -> None:
        await asyncio.gather(
            *(
                workflow.execute_activity_method(
                    FloorActivities.floor_nap, log, start_to_close_timeout=SECONDS
                )
                for _ in range(count)
            )
        )


@workflow.defn
class FloorSwarm:
    """W4: one child workflow an item, `width` at a time."""

    @workflow.run
    async def run(self, texts: list[str], width: int) -> None:
        waiting = iter(texts)

        async def place() -> None:
            for text in waiting:
                messages = [{"role": "user", "content": text}]
                await workflow.execute_child_workflow(FloorTurn.run, messages)

        await asyncio.gather(*(place() for _ in range(width)))


@workflow.defn
class FloorSlow:
    @workflow.run
    async def run(self, began: str) -> None:
        await workflow.execute_activity_method(
            FloorActivities.floor_slow,
            began,
            start_to_close_timeout=SECONDS,
            heartbeat_timeout=timedelta(seconds=2),
        )


@workflow.defn
class FloorTurn:
    @workflow.run
    async def run(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        while True:
            reply = await workflow.execute_activity_method(
                FloorActivities.floor_model, messages, start_to_close_timeout=SECONDS
            )
            messages.append(reply)
            if not reply.get("tool_calls"):
                return messages
            messages += await asyncio.gather(
                *(
                    workflow.execute_activity_method(
                        FloorActivities.floor_add, call, start_to_close_timeout=SECONDS
                    )
                    for call in reply["tool_calls"]
                )
            )
