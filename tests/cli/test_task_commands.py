"""Tasks on the command line."""

import asyncio
import json
from pathlib import Path

from by_hand import Runtime
from commands import Commands

from everturn.session import FinishTurn


async def end(runtime: Runtime, task: str, outcome: str = "completed") -> None:
    head = await runtime.begin(f"task:{task}")
    await runtime.store.finish_turn(
        FinishTurn(
            *("default", head.session, f"t/default/s/{head.session}", f"run-{runtime._runs}"),
            *(head.turn, head.epoch, 1, outcome),  # type: ignore[arg-type]
        )
    )


async def test_a_task_is_handed_in_shown_cancelled_and_begun_anew(
    runtime: Runtime, commands: Commands
) -> None:
    put = await commands("tasks", "submit", "Count.", "--id", "a", "--label", "fruit=apple")
    assert (put.code, put.out, put.err) == (0, "a\n", "Task a stands in line.\n")
    cancelled = await commands("tasks", "cancel", "a")
    assert (cancelled.out, cancelled.err) == ("a\n", "Task a was cancelled.\n")
    again = await commands("tasks", "retry", "a")
    assert (again.code, again.err) == (0, "Task a stands in line.\n")
    listed = await commands("tasks", "list", "--state", "queued", "--json")
    view = json.loads(listed.out)
    assert (view["id"], view["labels"], len(view["attempts"])) == ("a", {"fruit": "apple"}, 2)


async def test_a_wait_ends_with_the_task_and_its_code(runtime: Runtime, commands: Commands) -> None:
    await commands("tasks", "submit", "Count.", "--id", "a")
    await commands("tasks", "submit", "Count.", "--id", "b")
    await end(runtime, "a")
    assert (await commands("tasks", "show", "a", "--wait")).code == 0
    waiting = asyncio.create_task(commands("tasks", "show", "b", "--wait"))
    await end(runtime, "b", "max_steps")
    shown = await waiting
    assert shown.code == 1
    assert "Task b was given up. The attempt ended as max_steps." in shown.err
    dead = await commands("tasks", "dead", "--json")
    assert json.loads(dead.out)["id"] == "b"


async def test_a_file_of_tasks_is_handed_in_once_however_often_it_is_sent(
    runtime: Runtime, commands: Commands, tmp_path: Path
) -> None:
    lines = [{"id": "named", "input": {"n": 1}, "priority": 5}]
    lines += [{"input": f"Number {n}"} for n in range(102)]
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)))
    for _ in range(2):
        put = await commands("tasks", "submit", "--many", str(file), "--priority", "1", "--json")
        ids = [json.loads(line)["id"] for line in put.out.splitlines()]
        assert (put.code, len(set(ids)), ids[0]) == (0, 103, "named")
    assert put.err.splitlines()[-1] == "103 of 103 tasks are handed in."
    assert len(await runtime.tasks.tasks("default", None, 200, None)) == 103
    assert (await runtime.tasks.task("default", "named")).priority == 5
    assert (await runtime.tasks.task("default", ids[1])).priority == 1


async def test_what_cannot_be_is_one_sentence(commands: Commands, tmp_path: Path) -> None:
    wrong, broken, empty = (tmp_path / name for name in ("wrong", "broken", "empty"))
    wrong.write_text('{"input": "x", "id": "a"}\n{"input": "y", "id": "a"}')
    broken.write_text('{"input": "x"}\n{"imput": "x"}')
    empty.write_text("\n")
    for given, said in (
        (("x", "--many", "f"), "one of the two"),
        ((), "one of the two"),
        (("--many", "nowhere"), "'nowhere' cannot be read: No such file or directory."),
        (("--many", str(wrong)), f"Lines 1 and 2 of {wrong} have the same id 'a'"),
        (("--many", str(broken)), f"Line 2 of {broken} is wrong in 'input': field required."),
        (("--many", str(empty)), f"There is no task in {empty}"),
        (("--many", str(wrong), "--id", "a"), "--id names one task"),
        (("x", "--label", "fruit"), "The label 'fruit' is not possible"),
        (("x", "--webhook", "https://example.com"), "name the other too"),
        (("x", "--webhook", "ftp://x", "--webhook-secret", "A"), "is wrong in 'webhook.url'"),
        (("x", "--output", "nowhere"), "The schema 'nowhere' cannot be read"),
        (("x", "--output", str(empty)), "is not JSON"),
        (("x", "--deadline", "now"), "'now' is no time with a zone"),
        ((" ",), "The task is empty"),
    ):
        refused = await commands("tasks", "submit", *given)
        assert (refused.code, said in refused.err) == (2, True), (given, refused.err)
        assert refused.err.count("\n") == 1
    unknown = await commands("tasks", "show", "x")
    assert (unknown.code, unknown.err.split(";")[0]) == (2, "There is no task 'x'")
    state = await commands("tasks", "list", "--state", "ready")
    assert state.err.startswith("No task is ever 'ready'; choose of waiting, queued, running,")


async def test_deliveries_are_listed_and_sent_again(runtime: Runtime, commands: Commands) -> None:
    (runtime.workspace / "everturn.toml").write_text('[secrets]\nHOOK = {env = "HOOK"}\n')
    hook = ("--webhook", "https://example.com/", "--webhook-secret", "HOOK")
    await commands("tasks", "submit", "Count.", "--id", "a", *hook)
    await end(runtime, "a")
    listed = await commands("webhooks", "list", "--json")
    view = json.loads(listed.out)
    assert (view["task"], view["type"], view["state"]) == ("a", "task.done", "waits")
    sent = await commands("webhooks", "retry", view["id"])
    assert (sent.code, sent.err) == (0, f"Webhook {view['id']} is sent again.\n")
    nothing = await commands("webhooks", "list", "--state", "open")
    assert nothing.err == ("No webhook is ever 'open'; choose of waits, delivered, dead.\n")
