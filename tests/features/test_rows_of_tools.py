"""Rows of tools: what they may do, what is seen of them, and what is left of them."""

import pytest
from harness import Bench, calls, says, scripted

from everturn.messages import ToolMessage
from everturn_activities.sandbox import probe

needs_sandbox = pytest.mark.skipif(not probe().available, reason=str(probe().reason))


@needs_sandbox
async def test_K28_what_a_command_says_is_told_before_it_has_ended(made: Bench):
    key = await made.session()
    command = "echo half; until [ -e on ]; do sleep 0.05; done; echo whole"
    async with made.worker(scripted(calls("run_command", command=command), says("done"))):
        await made.send(key, "run it")
        told = (await made.until(key, "tool_output"))[-1]
        (made.workspace / "on").touch()
        events = await made.until(key, "turn_finished")

    [finished] = [event for event in events if event.type == "tool_finished"]
    said = {"index": 0, "name": "run_command", "text": "half\n"}
    assert told.body == {**said, "call_id": finished.body["call_id"]}
    assert (told.attempt, finished.attempt) == (1, 1)
    assert finished.body["text"] == "exit code: 0\nhalf\nwhole\n"


@needs_sandbox
async def test_K28_what_a_cancelled_command_has_said_is_kept(made: Bench):
    key = await made.session()
    command = "echo half; sleep 60"
    async with made.worker(scripted(calls("run_command", command=command), says("never"))):
        await made.send(key, "run it")
        await made.until(key, "tool_output")
        await made.cancel(key)
        await made.until(key, "turn_finished")

    [results] = [m for m in await made.transcript(key) if isinstance(m, ToolMessage)]
    assert results.results[0].text == (
        "The call was cancelled with its turn. Its output until then:\nhalf\n"
    )


TALKATIVE = '''
import threading
from everturn import ToolContext, tool


@tool(effect="once")
def talkative(context: ToolContext) -> str:
    """Say something from a thread, and wait until it was heard."""
    context.progress("from a thread")
    while not (context.working_dir / "on").exists():
        threading.Event().wait(0.02)
    return "done"
'''


async def test_K28_a_tool_of_the_workspace_is_heard_while_it_runs(made: Bench):
    (made.workspace / "tools/talkative.py").write_text(TALKATIVE)
    key = await made.session()
    async with made.worker(scripted(calls("talkative"), says("done"))):
        await made.send(key, "talk")
        told = (await made.until(key, "tool_output"))[-1]
        (made.workspace / "on").touch()
        await made.until(key, "turn_finished")

    assert told.body["text"] == "from a thread"
