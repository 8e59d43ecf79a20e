"""A model endpoint whose every event a test writes, and which keeps what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from model_servers import DONE, RawServer, Request, event, raw_server, streaming

from everturn_activities.gateways.chat_completions import ChatCompletionsGateway


def call(index: int, name: str, arguments: str) -> dict[str, Any]:
    """A whole tool call in one delta."""
    return {
        "tool_calls": [
            {
                "index": index,
                "id": f"call-{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        ]
    }


def more_arguments(index: int, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


@asynccontextmanager
async def endpoint(
    *replies: tuple[Sequence[dict[str, Any]], str],
) -> AsyncIterator[tuple[RawServer, ChatCompletionsGateway]]:
    """Serves replies of deltas and a finish reason, one after each assistant message."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        said = [m for m in request.body["messages"] if m["role"] == "assistant"]
        deltas, finish = replies[len(said)]
        pieces = [event(delta) for delta in deltas]
        await streaming(*pieces, event({}, finish), DONE)(request, writer)

    async with raw_server(answer) as server:
        gateway = ChatCompletionsGateway(base_url=f"{server.url}/v1", key="sk-test")
        yield server, gateway
        await gateway.close()
