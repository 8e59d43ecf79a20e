"""Swarms over HTTP: begun, given items, watched, read in part, stopped."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from by_hand import Runtime, Served
from in_need_of_leave import asks, sent
from swarms_by_hand import Hand, W

from everturn.budgets import Budget
from everturn.client import Client
from everturn.errors import IdempotencyConflict, UnknownSession, UsageError
from everturn.session import SessionKey
from everturn.swarms import SwarmSpec
from everturn_workers.doors import swarms as door

SPEC = SwarmSpec(prompt="Do {task}.", width=3)


def tasks(*names: str) -> list[dict[str, Any]]:
    return [{"task": name} for name in names]


@pytest.fixture
def hand(runtime: Runtime) -> Hand:
    return Hand(runtime)


async def test_a_swarm_is_begun_once_however_often_it_is_sent(
    runtime: Runtime, client: Client
) -> None:
    first = await client.swarms.create(SPEC, tasks("a", "b"), id="w")
    again = await client.swarms.create(SPEC, tasks("a", "b"), id="w")
    assert (first.state, first.items, first.open, first.counts.waiting) == ("running", 2, False, 2)
    assert again == first
    assert runtime.waker.swarms == [W, W]
    assert [view.id for view in (await client.swarms.list()).swarms] == ["w"]
    with pytest.raises(IdempotencyConflict, match="begun with other settings"):
        await client.swarms.create(SPEC.model_copy(update={"width": 4}), tasks("a"), id="w")
    with pytest.raises(IdempotencyConflict, match="Item 2 of swarm 'w' was another before"):
        await client.swarms.create(SPEC, tasks("a", "c"), id="w")


async def test_items_come_in_pieces_that_can_be_sent_again(
    runtime: Runtime, client: Client, hand: Hand
) -> None:
    nulls = [{"task": "a", "note": None}]
    await client.swarms.create(SPEC, nulls, id="w", open=True)
    await client.swarms.create(SPEC, nulls, id="w", open=True)
    await runtime.swarms.begin(W)
    await hand.work("did a")
    begun = await client.swarms.get("w")
    # How many more come, nobody knows.
    assert (begun.items_per_second is None, begun.left_seconds) == (False, None)
    await client.swarms.add("w", 2, tasks("b", "c"))
    view = await client.swarms.add("w", 2, tasks("b", "c", "d"), last=True)
    assert (view.items, view.open) == (4, False)
    with pytest.raises(UsageError, match="send those from 5 on first"):
        await client.swarms.add("w", 7, tasks("g"))
    with pytest.raises(UsageError, match="takes no more items: it was told the last"):
        await client.swarms.add("w", 5, tasks("e"))


IMPOSSIBLE: list[tuple[dict[str, Any], list[Any], str]] = [
    ({"prompt": "Do {task}"}, [{"job": "a"}], "Item 1 has no field 'task', which the prompt"),
    ({"prompt": "Do {task"}, [{"task": "a"}], "has a single '{' at character 4"),
    ({"prompt": "{id}"}, [{"id": "x"}, {"id": "x"}], "Items 1 and 2 have the same id 'x'"),
    ({}, [{"prompt": "x" * 300_000}], "The prompt of item 1 has 300,000 bytes"),
    ({}, [{"prompt": " "}], "The prompt of item 1 is empty"),
    ({}, [{"id": True, "prompt": "x"}], "The id of item 1 is no text"),
    ({}, [], "The swarm has no items"),
    ({"quorum": 2}, [{"prompt": "x"}], "A quorum of 2 is not possible with 1 items"),
    ({"width": 0}, [{"prompt": "x"}], "Field 'spec.width' is wrong"),
    ({"deadline_seconds": -1}, [{"prompt": "x"}], "Field 'spec.deadline_seconds' is wrong"),
    ({"agent": "nobody"}, [{"prompt": "x"}], "nobody"),
    ({"reduce": "nobody"}, [{"prompt": "x"}], "nobody"),
    ({"model": "nowhere/x"}, [{"prompt": "x"}], "nowhere"),
    ({"reduce": "default", "reduce_prompt": "x"}, [{"prompt": "x"}], "does not name {results}"),
    ({"agent": "coder"}, [{"prompt": "x"}], "is in no git repository"),
]


async def test_what_cannot_be_worked_is_refused_before_anything_is_written(
    runtime: Runtime, served: Served
) -> None:
    (runtime.workspace / "agents").mkdir(exist_ok=True)
    (runtime.workspace / "agents" / "coder.md").write_text("---\nfolder: worktree\n---\nCode.")
    async with httpx.AsyncClient(base_url=served.url) as http:
        for spec, items, sentence in IMPOSSIBLE:
            answer = await http.post("/v1/swarms", json={"id": "w", "spec": spec, "items": items})
            assert answer.status_code in (413, 422), answer.text
            assert sentence in answer.json()["detail"]
        for name in ("w:1", "w" * 181, "a/b"):
            answer = await http.post("/v1/swarms", json={"id": name, "items": [{"prompt": "x"}]})
            assert "The swarm id" in answer.json()["detail"]
    assert await runtime.swarms.every("default", 10, None) == []


async def test_what_is_no_swarm_of_ours_is_not_there(client: Client) -> None:
    await client.create_session("s")
    for name in ("s", "none"):
        for asked in (
            client.swarms.get(name),
            client.swarms.items(name),
            client.swarms.results(name),
            client.swarms.add(name, 1, []),
            client.swarms.pause(name),
            client.swarms.resume(name),
            client.swarms.cancel(name),
        ):
            with pytest.raises(UnknownSession, match="There is no swarm"):
                await asked


async def test_partial_results_are_read_in_the_order_of_their_ends_or_of_the_items(
    runtime: Runtime, client: Client, hand: Hand
) -> None:
    await client.swarms.create(SPEC, tasks("a", "b", "c", "d"), id="w")
    first, second, third = await hand.take(3)
    await runtime.work(third.session, '{"says": "c"}')
    await runtime.fail(first.session, "The model is away.")

    ended = await client.swarms.results("w")
    assert [(item.n, item.outcome, item.result) for item in ended.items] == [
        (3, "completed", {"says": "c"}),
        (1, "failed", None),
    ]
    assert ended.after == 2
    assert ended.items[1].reason == "The model is away."
    assert (ended.items[0].attempts, ended.items[0].steps, ended.items[0].cost_usd) == (1, 1, 0.5)
    in_order = await client.swarms.results("w", order="item")
    assert [item.n for item in in_order.items] == [1]
    assert [item.n for item in (await client.swarms.items("w", state="waiting")).items] == [4]

    await runtime.work(second.session, "b")
    await hand.work("d")
    rest = await client.swarms.results("w", ended.after, limit=1)
    assert [item.text for item in rest.items] == ["b"]
    in_order = await client.swarms.results("w", 1, order="item")
    assert [item.n for item in in_order.items] == [2, 3, 4]
    await hand.look()
    assert (await client.swarms.results("w", 4)).after is None
    assert [item.n async for item in client.swarms.each("w")] == [3, 1, 2, 4]


async def test_live_counters_are_told_as_they_change(
    runtime: Runtime, client: Client, hand: Hand
) -> None:
    await client.swarms.create(SPEC, tasks("a", "b", "c"), id="w")
    await runtime.swarms.begin(W)
    before = await client.swarms.get("w")
    waiting = asyncio.create_task(client.swarms.changed("w", before.seen))
    await hand.work("did a")
    after = await asyncio.wait_for(waiting, 10)
    assert after.seen != before.seen
    await hand.take()
    view = await client.swarms.get("w")
    assert (view.counts.done, view.counts.running, view.counts.waiting) == (1, 1, 1)
    assert (view.cost_usd, view.ended) == (0.5, 1)
    assert view.items_per_second is not None
    assert view.left_seconds == pytest.approx(2 / view.items_per_second, abs=0.1)
    # One that names what has changed since is answered at once.
    assert (await client.swarms.changed("w", before.seen)).seen == view.seen


async def test_results_stream_as_lines_until_the_swarm_is_done(
    client: Client, served: Served, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "RESULTS_PAGE", 2)
    await client.swarms.create(SPEC, tasks("a", "b", "c", "d", "e"), id="w")
    await hand.work("a", "b", "c")
    url, accept = f"{served.url}/v1/swarms/w/results", {"accept": "application/x-ndjson"}
    async with httpx.AsyncClient() as http:
        now = (await http.get(url, headers=accept)).text.splitlines()
        assert [json.loads(line)["text"] for line in now] == ["a", "b", "c"]
        query = {"follow": "true", "after": "2", "order": "item"}
        async with http.stream("GET", url, params=query, headers=accept) as stream:
            lines = stream.aiter_lines()
            assert json.loads(await anext(lines))["n"] == 3
            await hand.work("d", "e")
            await hand.look()
            assert [json.loads(line)["n"] async for line in lines] == [4, 5]


async def test_a_swarm_is_paused_gone_on_with_cancelled_and_tried_again(
    runtime: Runtime, client: Client, hand: Hand
) -> None:
    await client.swarms.create(SPEC, tasks("a", "b"), id="w")
    assert (await client.swarms.pause("w")).state == "paused"
    assert await hand.take() == []
    assert (await client.swarms.resume("w")).state == "running"
    await hand.fail("No.")
    assert (await client.swarms.cancel("w")).state == "stopping"
    with pytest.raises(UsageError, match="'w' is stopping and cannot go on"):
        await client.swarms.resume("w")
    await hand.look()
    done = await client.swarms.cancel("w")
    assert (done.state, done.reason, done.counts.skipped) == ("done", "cancelled", 1)
    with pytest.raises(UsageError, match="worked again by retry_failed"):
        await client.swarms.resume("w")
    again = await client.swarms.resume("w", retry_failed=True)
    assert (again.state, again.reason, again.counts.waiting) == ("running", None, 2)


async def test_who_waits_for_a_person_is_named(
    runtime: Runtime, client: Client, hand: Hand
) -> None:
    await client.swarms.create(SPEC, tasks("a", "b"), id="w")
    await runtime.swarms.begin(W)
    first, second = await hand.take(2)
    await asks(runtime, {"path": "a"}, session=first.session)
    await sent(runtime, "another")
    await asks(runtime, {"path": "a"}, session="another")
    assert (await client.swarms.get("w")).asking == ("w:1",)
    assert [one.session for one in await client.approvals("w")] == ["w:1"]
    assert await client.approvals("w:2") == []
    # How long people take, nobody knows.
    await runtime.work(second.session, "done")
    view = await client.swarms.get("w")
    assert view.items_per_second is not None
    assert view.left_seconds is None


async def test_nobody_speaks_with_a_swarm_but_with_its_items(client: Client, hand: Hand) -> None:
    await client.swarms.create(SwarmSpec(prompt="{task}", budget=Budget(usd=1)), tasks("a"), id="w")
    await hand.take()
    with pytest.raises(UsageError, match="'w' is a swarm, which nobody speaks with"):
        await client.send("w", "Hello.")
    assert (await client.send("w:1", "Mind the gap.")).status == "accepted"
    assert (await client.session("w:1")).parent == "w"
    assert [one.id for one in (await client.sessions(parent="w")).sessions] == ["w:1"]
    assert [one.id for one in (await client.sessions()).sessions] == []


async def test_items_of_an_agent_with_folders_of_its_own_have_one_each(
    runtime: Runtime, client: Client, hand: Hand
) -> None:
    await client.swarms.create(SPEC, tasks("a", "b"), id="w", folder="copy")
    await hand.take(2)
    folders = {(await client.session(f"w:{n}")).own_dir for n in (1, 2)}
    assert len(folders) == 2
    assert None not in folders
    assert (await client.session("w")).own_dir is None


async def test_a_swarm_is_kept_where_nobody_can_be_woken(runtime: Runtime, client: Client) -> None:
    runtime.waker.reachable = False
    await client.swarms.create(SPEC, tasks("a"), id="w")
    assert await runtime.swarms.asleep(-1, 10) == [SessionKey("default", "w")]
