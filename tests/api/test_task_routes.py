"""Tasks over HTTP: handed in once, waited for, refused with a reason."""

import asyncio
from typing import Any

import httpx
import pytest
from by_hand import Runtime, Served

from everturn.client import Client
from everturn.errors import IdempotencyConflict, UnknownTask, UsageError
from everturn.session import FinishTurn
from everturn.tasks import NewTask
from everturn.webhooks import Webhook


async def end(runtime: Runtime, task: str, outcome: str = "completed") -> None:
    head = await runtime.begin(f"task:{task}")
    await runtime.store.finish_turn(
        FinishTurn(
            *("default", head.session, f"t/default/s/{head.session}", f"run-{runtime._runs}"),
            *(head.turn, head.epoch, 1, outcome),  # type: ignore[arg-type]
        )
    )


async def test_a_task_is_handed_in_looked_at_and_waited_for(runtime: Runtime, client: Client):
    view = await client.submit_task(input="Count.", id="a", labels={"fruit": "apple"}, priority=1)
    assert (view.state, view.session, view.labels) == ("queued", "task:a", {"fruit": "apple"})
    assert [wake.key.session for wake in runtime.waker.woken] == ["task:a"]

    waiting = asyncio.create_task(client.wait_for_task("a"))
    await end(runtime, "a")
    assert (await waiting).state == "done"
    assert (await client.task("a")).state == "done"
    page = await client.tasks("done")
    assert [one.id for one in page.tasks] == ["a"]


async def test_a_wait_that_ends_first_answers_with_where_the_task_stands(client: Client):
    await client.submit_task(input="Count.", id="a")
    assert (await client.task("a", wait=1)).state == "queued"


async def post(served: Served, body: dict[str, Any], **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=served.url) as http:
        return await http.post("/v1/tasks", json=body, headers=headers)


async def test_the_header_is_the_id_too(served: Served, client: Client):
    key = {"Idempotency-Key": "abc"}
    for _ in range(2):
        answer = await post(served, {"input": "Count."}, **key)
        assert (answer.status_code, answer.json()["id"]) == (202, "abc")
    other = await post(served, {"input": "Else."}, **key)
    assert other.status_code == 409
    both = await post(served, {"input": "Count.", "id": "x"}, **key)
    assert both.status_code == 422
    assert "send one of the two" in both.json()["detail"]
    unnamed = [await post(served, {"input": "Count."}) for _ in range(2)]
    assert len({answer.json()["id"] for answer in unnamed}) == 2


async def test_many_are_handed_in_together_and_again(runtime: Runtime, client: Client):
    tasks = [NewTask(id=f"n{index}", input="Count.") for index in range(3)]
    assert await client.submit_tasks(tasks) == ("n0", "n1", "n2")
    assert await client.submit_tasks(tasks) == ("n0", "n1", "n2")
    assert len(runtime.waker.woken) == 3
    with pytest.raises(UsageError, match=r"Field 'tasks.1.id' is missing"):
        await client.submit_tasks([tasks[0], NewTask(input="Count.")])
    with pytest.raises(IdempotencyConflict):
        await client.submit_tasks([NewTask(id="n9", input="Nine."), NewTask(id="n0", input="Oh.")])
    with pytest.raises(UnknownTask, match="There is no task 'n9'"):
        await client.task("n9")


async def test_a_dead_task_is_begun_anew_and_a_queued_one_cancelled(
    runtime: Runtime, client: Client
):
    await client.submit_task(input="Count.", id="a")
    await end(runtime, "a", "max_steps")
    dead = await client.task("a")
    assert dead.state == "dead"
    assert (await client.retry_task("a")).state == "queued"
    assert (await client.cancel_task("a")).state == "cancelled"
    with pytest.raises(UsageError, match="has passed; name a later one"):
        await client.retry_task("a", "2020-01-01T00:00:00Z")
    assert (await client.retry_task("a", "2999-01-01T00:00:00Z")).deadline == 32472144000.0


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": " "}, "The task's input is empty"),
    ({"input": "x", "priority": 6}, "Field 'priority' is wrong"),
    ({"input": "x", "agent": "nobody"}, "There is no agent 'nobody'"),
    ({"input": "x", "deadline": "tomorrow"}, "'tomorrow' is no time with a zone"),
    ({"input": "x", "deadline": 5}, "1970-01-01 00:00:05 UTC, has passed"),
    ({"input": "x", "deadline": 5, "not_before": 6}, "it could never begin"),
    ({"input": "x", "output": {"type": "string"}}, "must be one of type object"),
    ({"input": "x", "output": {"type": "object", "required": 1}}, "is no JSON schema"),
    ({"input": "x", "mends_max": 1}, "'mends_max' is for answers"),
    ({"input": "x", "id": "a" * 200}, "has 200 characters and the limit is 195"),
    ({"input": "x", "id": "a b"}, "The task id 'a b' is not possible"),
    ({"input": "x", "retry": {"attempts_max": 51}}, "less than or equal to 50"),
    ({"input": "x", "labels": {str(n): "" for n in range(21)}}, "20 are the limit"),
    *[
        ({"input": "x", "webhook": {"url": url, "secret": "HOOK"}}, said)
        for url, said in (
            ("http://127.0.0.1:80/", "it leads to an address that is not public"),
            ("http://example.com:8080/", "port 8080 is not one of the web's"),
            ("https://example.com/", "The workspace names no secret 'HOOK'"),
        )
    ],
]


async def test_what_cannot_be_is_refused_in_one_sentence(served: Served):
    for given, said in REFUSED:
        answer = await post(served, given)
        assert answer.status_code == 422, given
        assert said in answer.json()["detail"]


async def test_deliveries_are_listed_and_sent_again(runtime: Runtime, client: Client):
    (runtime.workspace / "everturn.toml").write_text('[secrets]\nHOOK = {env = "HOOK"}\n')
    webhook = Webhook(url="https://example.com/hook", secret="HOOK")
    await client.create_session("s", webhook=webhook)
    with pytest.raises(UsageError, match="names no secret 'OTHER'"):
        await client.create_session("x", webhook=webhook.model_copy(update={"secret": "OTHER"}))
    await client.submit_task(input="Count.", id="a", webhook=webhook)
    await end(runtime, "a")
    (listed,) = (await client.webhooks()).webhooks
    assert (listed.task, listed.type, listed.state) == ("a", "task.done", "waits")
    assert (await client.task("a")).webhooks == (listed,)
    assert (await client.retry_webhook(listed.id)).id == listed.id
    assert (await client.webhooks("dead")).webhooks == ()
