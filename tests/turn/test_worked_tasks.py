"""Tasks worked by real workers: tried again, held to a schema, told outside, in order."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "gateways"))

from harness import Bench, calls, eventually, says, scripted
from model_servers import Request, answer_json, raw_server

from everturn.approvals import ToolVerdict
from everturn.session import SessionKey
from everturn.tasks import NewTask, TaskView
from everturn.webhooks import signed_headers
from everturn_activities.store import Inbound, SessionSettings

SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgaG9va3M="


async def submit(made: Bench, name: str = "t", **given: Any) -> None:
    task = NewTask.model_validate({"input": "Count the apples.", **given})
    folder = str(made.workspace)
    settings = SessionSettings(folder, folder, webhook=task.webhook)
    came = await made.runtime.tasks.submit(made.tenant, [(name, task, settings)])
    await made.front.wake_all(each.wake for each in came)


async def ended(made: Bench, name: str = "t") -> TaskView:
    await made.until(SessionKey(made.tenant, f"task:{name}"), "task_ended")
    return await made.runtime.tasks.task(made.tenant, name)


async def test_a_task_is_worked_and_its_answer_kept(made: Bench):
    async with made.worker(scripted(says("Seven."))):
        await submit(made)
        view = await ended(made)
    assert (view.state, view.result) == ("done", "Seven.")


SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
}


async def test_an_answer_fits_the_tasks_schema_and_is_mended_by_the_model(made: Bench):
    gateway = scripted(says("Seven."), calls("response", total="seven"), calls("response", total=7))
    async with made.worker(gateway):
        await submit(made, input={"fruit": "apple"}, output=SCHEMA)
        view = await ended(made)
    assert view.result == {"total": 7}
    assert json.loads(gateway.requests[0].messages[-1].said) == {"fruit": "apple"}


async def test_a_schema_that_is_never_met_ends_the_task_after_so_many_mends(made: Bench):
    async with made.worker(scripted(*[says("Seven.")] * 9)):
        await submit(made, output=SCHEMA, mends_max=1)
        view = await ended(made)
    assert view.state == "dead"
    assert "did not fit the agent's output schema 2 times in a row" in (view.reason or "")


async def test_a_task_whose_provider_is_away_is_tried_again_until_it_is_back(made: Bench):
    (made.workspace / "agents").mkdir()
    agent = made.workspace / "agents" / "default.md"
    agent.write_text("---\nretries_max: 0\n---\nCount.")
    gateway = scripted(
        says("", status=503, times=9), by_last_user={"this is attempt 2": [says("Seven.")]}
    )
    async with made.worker(gateway):
        await submit(made, retry={"first_seconds": 0.1})
        view = await ended(made)
    assert (view.state, view.result) == ("done", "Seven.")
    assert [each.outcome for each in view.attempts] == ["model_failed", "completed"]


async def test_a_crash_between_commit_and_signal_is_made_up_for(made: Bench):
    task = NewTask(input="Count the apples.")
    settings = SessionSettings(str(made.workspace), str(made.workspace))
    await made.runtime.tasks.submit(made.tenant, [("t", task, settings)])
    async with made.worker(scripted(says("Seven."))):
        assert (await ended(made)).result == "Seven."


async def test_the_end_of_a_task_and_its_question_are_told_outside_signed(made: Bench):
    (made.workspace / "everturn.toml").write_text('[secrets]\nHOOK = {file = "hook"}\n')
    (made.workspace / "hook").write_text(SECRET)
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\ntools: [ask_user]\n---\nAsk.")

    async def took(request: Request, writer: Any) -> None:
        await answer_json(writer, 200, {})

    gateway = scripted(calls("ask_user", question="Which apples?"), says("Seven."))
    async with (
        raw_server(took) as receiver,
        made.worker(gateway, webhook_hosts=receiver.url.removeprefix("http://")),
    ):
        await submit(made, webhook={"url": f"{receiver.url}/hook", "secret": "HOOK"})
        key = SessionKey(made.tenant, "task:t")
        asked = (await made.until(key, "approval_asked"))[-1]
        assert (await made.runtime.tasks.task(made.tenant, "t")).waits_for_person
        verdict = ToolVerdict(approval=asked.body["approval"], verdict="answer", answer="The red.")
        await made.front.accept(key, Inbound("a1", "approval", approval=verdict))
        await ended(made)
        await eventually(lambda: len(receiver.requests) == 2)

    awaited, done = sorted(receiver.requests, key=lambda one: str(one.body["type"]))
    assert (awaited.body["type"], done.body["type"]) == ("person.awaited", "task.done")
    assert "Which apples?" in awaited.body["data"]["arguments"]
    assert done.body["data"]["result"] == "Seven."
    for request in receiver.requests:
        given, body = request.headers, json.dumps(request.body, ensure_ascii=False).encode()
        seconds = int(given["webhook-timestamp"])
        signed = signed_headers(SECRET, given["webhook-id"], seconds, body)
        assert given["webhook-signature"] == signed["webhook-signature"]
