"""Turns that must wait for the governor: what they wait for, and that they can be stopped."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import Bench, bench, calls, says, scripted

from everturn_activities import admission
from everturn_activities.gateways.chat_completions import ChatCompletionsGateway

pytestmark = pytest.mark.parametrize("placement", ["inline", "queued"])


class Limited:
    """Opens a bench whose provider has limits."""

    def __init__(self, address: str, folder: Path, workspace: Path) -> None:
        self._at = (address, folder, workspace)

    @asynccontextmanager
    async def to(self, **limits: Any) -> AsyncIterator[Bench]:
        async with bench(*self._at, provider_limits={"*": limits}) as made:
            yield made


@pytest.fixture
def limited(server_address: str, tmp_path: Path, workspace: Path) -> Limited:
    return Limited(server_address, tmp_path / "home", workspace)


async def test_t14_with_a_concurrency_limit_of_one_two_turns_never_call_at_once(
    limited: Limited, placement: str
) -> None:
    gateway = scripted(says("one two three", hold="mid"))
    # With a cache: without one the SDK cuts inline calls off to evict a run.
    async with (
        limited.to(concurrency=1) as made,
        made.worker(gateway, workflows_cached=100, placement=placement),
    ):
        first, second = await made.session("first"), await made.session("second")
        await made.send(first, "hello")
        await gateway.reached("mid")
        await made.send(second, "hello")
        await made.until(second, "turn_started")
        await asyncio.sleep(1)  # Long enough to call, had it been let.
        began = [e for e in await made.events(second) if e.type == "step_started"]
        gateway.release("mid")
        await made.until(first, "turn_finished")
        events = await made.until(second, "turn_finished")
    assert began == []
    assert events[-1].body["outcome"] == "completed"
    # A wait is no attempt that failed.
    assert [e.attempt for e in events if e.type == "step_started"] == [1]


async def test_a_turn_that_waits_says_why_and_ends_at_once_when_it_is_cancelled(
    limited: Limited, placement: str
) -> None:
    gateway = scripted(calls("add", a=1, b=2), says("3"))
    async with (
        limited.to(requests_per_minute=1) as made,
        made.worker(gateway, placement=placement),
    ):
        key = await made.session()
        await made.send(key, "add")
        told = await made.until(key, "status")
        await made.cancel(key)
        events = await made.until(key, "turn_finished")
    assert "is at its limit" in told[-1].body["text"]
    assert len([e for e in events if e.type == "status"]) == 1
    assert events[-1].body["outcome"] == "cancelled"
    assert events[-1].time - told[-1].time < 3
    assert len(gateway.requests) == 1


async def test_a_provider_that_refuses_one_turn_is_left_alone_by_all(
    made: Bench, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other turn may come late on a busy machine, and has to wait for little then.
    monkeypatch.setattr(admission, "TOLD_SECONDS", 0.0)
    gateway = scripted(
        by_last_user={"busy": [says("ok", status=429, retry_after=3)], "": [says("ok")]}
    )
    first, second = await made.session("first"), await made.session("second")
    async with made.worker(gateway, placement=placement):
        await made.send(first, "busy")
        refused = (await made.until(first, "status"))[-1]
        await made.send(second, "hello")
        events = await made.until(second, "turn_finished")
        await made.until(first, "turn_finished")
    (began,) = [e.time for e in events if e.type == "step_started"]
    assert began - refused.time > 2
    assert "asked for a pause" in next(e.body["text"] for e in events if e.type == "status")
    assert len(gateway.requests) == 3


async def test_a_model_that_recovers_is_tried_once_and_used_again(
    limited: Limited, placement: str
) -> None:
    gateway = scripted(says("ok", status=500))
    async with (
        limited.to(breaker_failures=1, breaker_seconds=1) as made,
        made.worker(gateway, placement=placement),
    ):
        key = await made.session()
        await made.send(key, "hello")
        events = await made.until(key, "turn_finished")
        state = await made.runtime.governor.state()
    assert events[-1].body["outcome"] == "completed"
    began = [e.time for e in events if e.type == "step_started"]
    assert began[1] - began[0] >= 1
    assert state.breakers == []


async def test_a_model_that_stays_away_ends_the_turns_that_wait_for_it(
    limited: Limited, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "PATIENCE_UNREACHABLE_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    gateway = ChatCompletionsGateway(base_url=url, key="none")
    async with (
        limited.to(breaker_failures=1, breaker_seconds=60) as made,
        made.worker(gateway, placement=placement),
    ):
        key = await made.session()
        await made.send(key, "hello")
        events = await made.until(key, "turn_finished")
    assert events[-1].body["outcome"] == "model_failed"
    assert "at the-provider cannot be reached" in events[-1].body["reason"]


async def test_a_model_that_is_left_alone_is_replaced_by_a_fallback_at_once(
    limited: Limited, workspace: Path, placement: str
) -> None:
    (workspace / "agents").mkdir()
    (workspace / "agents" / "default.md").write_text(
        "---\nmodel: openai/gpt-5-mini\nfallback_models: [openai/gpt-5]\n---\nBe brief.\n"
    )
    gateway = scripted(says("ok", status=500))
    async with (
        limited.to(breaker_failures=1, breaker_seconds=60) as made,
        made.worker(gateway, placement=placement),
    ):
        first, second = await made.session("first"), await made.session("second")
        await made.send(first, "hello")
        events = await made.until(first, "turn_finished")
        await made.send(second, "hello")
        await made.until(second, "turn_finished")
    assert events[-1].body["outcome"] == "completed"
    asked = [request.model for request in gateway.requests]
    assert asked == ["openai/gpt-5-mini", "openai/gpt-5", "openai/gpt-5"]
