"""Tasks whose worker and server are killed again and again: one result each, each told."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "gateways"))

from model_servers import Request, answer_json, raw_server
from systems import Plan, StartSystem, final_text, prompt, until

from everturn.tasks import NewTask
from everturn_activities.gateways.scripted import place_of

NAMES = [f"task-{number}" for number in range(30)]
PLAN = Plan(steps=(("add",), ()))


@pytest.mark.long
async def test_killed_tasks_have_one_result_each_and_each_end_is_told(start_system: StartSystem):
    async def took(request: Request, writer: Any) -> None:
        await answer_json(writer, 200, {})

    async with raw_server(took) as receiver:
        hosts = receiver.url.removeprefix("http://")
        system = await start_system(dict.fromkeys(NAMES, PLAN), EVERTURN_WEBHOOK_HOSTS=hosts)
        (system.workspace / "everturn.toml").write_text('[secrets]\nHOOK = {file = "hook"}\n')
        (system.workspace / "hook").write_text("the secret of the hook")
        webhook = {"url": f"{receiver.url}/hook", "secret": "HOOK"}
        tasks = [
            NewTask.model_validate({"id": name, "input": prompt(name), "webhook": webhook})
            for name in NAMES
        ]

        def completed() -> Counter[str]:
            lines = system.model_calls()
            return Counter(line["key"] for line in lines if line["event"] == "completed")

        async def journaled() -> set[str]:
            """The calls whose replies are recorded: paid for, and never made again."""
            found = set()
            for name in NAMES:
                said = [{"role": "user", "content": prompt(name)}]
                for turn in await system.client.turns(f"task:{name}"):
                    for step in turn.steps:
                        if step.stop is not None:
                            before = [{"role": "assistant"}] * (step.step - 1)
                            found.add(place_of([*said, *before]).key)
            return found

        assert await system.client.submit_tasks(tasks) == tuple(NAMES)
        kept: dict[str, int] = {}
        for victim, calls in (("worker", 5), ("temporal", 15), ("worker", 30), ("temporal", 45)):
            await until(lambda calls=calls: sum(completed().values()) >= calls)
            await system.kill(victim)
            if victim == "worker":
                kept |= {key: completed()[key] for key in await journaled()}
            await system.restart(victim)
        # Sent again, as by somebody who does not know whether it was taken.
        await system.client.submit_tasks(tasks)

        for name in NAMES:
            view = await system.client.wait_for_task(name)
            assert (view.state, view.result, len(view.attempts)) == ("done", final_text(name), 1)
        assert min(kept.values()) >= 1
        assert {key: completed()[key] for key in kept} == kept
        ids = {view.id for view in (await system.client.webhooks(limit=200)).webhooks}
        await until(lambda: len({one.headers["webhook-id"] for one in receiver.requests}) == 30)

    told = {one.headers["webhook-id"]: one.body for one in receiver.requests}
    assert told.keys() == ids
    assert {body["data"]["task"]: body["data"]["result"] for body in told.values()} == {
        name: final_text(name) for name in NAMES
    }
