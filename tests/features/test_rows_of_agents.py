"""Rows B2, B4, B6, E5, K30, T8, T12, T13: who works a turn, and with what."""

import json
import subprocess
import sys

import pytest
from harness import Bench, calls, says, scripted
from plays import play, tools_of

from everturn.messages import AssistantMessage, Text, ToolMessage, user_text
from everturn_activities.store import SessionSettings

NOTES = {"notes.txt": "port = 8080\n"}
EDIT = {"path": "notes.txt", "old": "8080", "new": "9090"}


async def test_B4_a_tool_beyond_an_agents_access_is_not_shown_and_a_call_of_it_does_nothing(
    made: Bench,
):
    edits = [calls("edit_file", **EDIT), calls("run_command", command="rm notes.txt"), says("So.")]

    played = await play(made, ("plan", "Raise the port."), replies=edits, files=NOTES)

    assert {"read_file", "list_files"} <= set(tools_of(played.requests[0]))
    assert not {"write_file", "edit_file", "run_command"} & set(tools_of(played.requests[0]))
    results = [m for m in await made.transcript(played.key) if isinstance(m, ToolMessage)]
    assert [one.failed for message in results for one in message.results] == [True, True]
    sent = [m["content"] for m in played.requests[-1]["messages"] if m["role"] == "tool"]
    assert sent[0].startswith("Agent plan may not call edit_file: its access is read-only")
    assert (made.workspace / "notes.txt").read_text() == "port = 8080\n"


async def test_B6_agents_of_one_session_have_each_its_own_model_and_share_the_history(
    made: Bench,
):
    """B2: model, temperature and steps of an agent's file are those of its requests."""
    files = {
        "agents/plan.md": "---\nmodel: hosted_vllm/a\ntemperature: 0.1\naccess: read-only\n---\nP.",
        "agents/build.md": "---\nmodel: hosted_vllm/b\nmax_turns: 1\n---\nB.",
    }
    script = {"First": [says("Planned.")], "Then": [calls("add", a=1, b=2), says("never")]}

    played = await play(
        made, ("plan", "First."), ("build", "Then."), by_last_user=script, files=files
    )

    planned, built = played.requests
    assert (planned["model"], planned["temperature"]) == ("a", 0.1)
    assert (built["model"], built.get("temperature")) == ("b", None)
    said = [m["content"] for m in built["messages"] if m["role"] != "system"]
    assert said == ["First.", "Planned.", "Then."]
    assert played.events[-1].body["outcome"] == "max_steps"


async def test_E5_settings_that_changed_between_turns_hold_for_the_next(made: Bench):
    """The worker goes on meanwhile."""
    changed = {
        "everturn.toml": '[model]\nbase_url = "URL"\nname = "hosted_vllm/b"\n',
        "agents/default.md": "---\ntemperature: 0.5\n---\nWork.",
    }

    played = await play(made, "One.", changed, "Two.", replies=[says("1")], model="hosted_vllm/a")

    first, second = played.requests
    assert (first["model"], second["model"]) == ("a", "b")
    assert (first.get("temperature"), second["temperature"]) == (None, 0.5)


async def test_T13_the_default_agents_model_and_sampling_are_in_the_request(made: Bench):
    played = await play(made, "Hello.", replies=[says("Hi.")], profile="kontekst", model=None)

    [request] = played.requests
    sent = {key: value for key, value in request.items() if key not in ("messages", "tools")}
    assert sent == {
        "model": "gpt-oss-20b-Q4_K_M.gguf",
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "repeat_penalty": 1.1,
        "max_tokens": 4096,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_T13_a_server_of_vllm_is_sent_its_own_name_for_a_setting(made: Bench):
    agent = "---\nmodel: hosted_vllm/a\ntop_k: 4\nrepeat_penalty: 1.2\n---\nWork."
    played = await play(made, "Go.", replies=[says("1")], files={"agents/default.md": agent})

    [request] = played.requests
    assert (request["top_k"], request["repetition_penalty"]) == (4, 1.2)
    assert played.warnings == []


async def test_T12_a_folder_of_settings_and_prompt_is_an_agent(made: Bench):
    files = {
        "agents/writer/config.toml": 'name = "The Writer"\nmodel = "hosted_vllm/w"\n[sampling]\n'
        "top_p = 0.5\n",
        "agents/writer/agent.md": "Write in verse.",
    }

    played = await play(made, ("writer", "Go."), replies=[says("Rhyme.")], files=files)

    assert played.system.startswith("Write in verse.")
    assert (played.requests[0]["model"], played.requests[0]["top_p"]) == ("w", 0.5)


async def test_K30_another_agent_brings_its_own_prompt_and_tools(made: Bench):
    files = {
        "agents/one.md": "---\ntools: [read_file, add]\n---\nBe one.",
        "agents/two.md": "---\nprofile: kiro\ntools: [fs_read, echo]\n---\nBe two.",
    }

    played = await play(made, ("one", "A."), ("two", "B."), replies=[says("Yes.")], files=files)

    first, second = played.requests
    assert tools_of(first) == ["read_file", "add"]
    assert tools_of(second) == ["fs_read", "echo"]
    assert "Be one." in json.dumps(first)
    assert "Be one." not in json.dumps(second)
    assert "Be two." in json.dumps(second)


def test_T8_the_core_types_are_imported_without_the_rest_of_the_project():
    code = (
        "import sys; import everturn.messages, everturn.agents, everturn.tools, everturn.session,"
        " everturn.skills, everturn.profile, everturn.context.window;"
        "print(*[m for m in sys.modules if m.startswith('everturn_')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


async def test_T22_a_session_keeps_its_agent_for_messages_that_name_none(made: Bench):
    """T21, E30: a session that is opened exists, empty; its title is that of its first message."""
    key, store = made.key("kept"), made.runtime.store
    folder = str(made.workspace)
    await store.create_session(key, SessionSettings(folder, folder, agent="explore"))
    assert (await store.session(key)).title == ""
    assert await made.transcript(key) == []

    gateway = scripted(says("Found."))
    async with made.worker(gateway):
        for turn, text in enumerate(("Where is it?", "And that?"), start=1):
            await made.send(key, text)
            await made.until(key, "turn_finished", turn=turn)

    assert "You find things." in gateway.requests[0].system
    assert "You find things." in gateway.requests[1].system
    assert (await store.session(key)).title == "Where is it?"


async def test_E26_an_agent_of_eggent_has_fifteen_steps(made: Bench):
    endless = [calls("add", a=1, b=n) for n in range(20)]

    played = await play(made, "Go on.", replies=endless, profile="eggent")

    assert len(played.requests) == 15
    assert played.events[-1].body["outcome"] == "max_steps"


@pytest.mark.parametrize("stored", [2, 40])
async def test_E7_E23_all_that_was_said_in_a_chat_is_sent_in_order_and_then_the_new_message(
    made: Bench, stored: int
):
    said = [f"Message {number}." for number in range(stored)]
    kinds = [user_text, lambda text: AssistantMessage(parts=(Text(text=text),))]
    key = await made.session()
    messages = [kinds[number % 2](text) for number, text in enumerate(said)]
    await made.runtime.store.import_messages(key, messages)

    played = await play(made, "The new one.", replies=[says("Yes.")], profile="eggent")

    told = [m["content"] for m in played.requests[0]["messages"] if m["role"] != "system"]
    assert told == [*said, "The new one."]


async def test_E29_of_a_turn_of_four_tool_calls_the_next_loads_two_messages(made: Bench):
    script = {"Second": [says("Yes.")], "": [*[calls("add", a=1, b=2)] * 4, says("All is 3.")]}

    played = await play(made, "First.", "Second.", by_last_user=script, profile="eggent")

    *_, last = played.requests
    told = [m["content"] for m in last["messages"] if m["role"] != "system"]
    assert told == ["First.", "All is 3.", "Second."]
    assert len(await made.transcript(played.key)) == 2 + 2 * 4 + 2


async def test_T19_the_history_is_the_same_in_all_of_twenty_steps(made: Bench):
    """T16: it is the newest that fits, and stays though the turn's own messages take more."""
    key = await made.session()
    stored = [user_text(f"Message {number}. {'word ' * 100}") for number in range(60)]
    await made.runtime.store.import_messages(key, stored)
    adds = [calls("add", a=1, b=number) for number in range(19)]

    played = await play(
        made,
        "Go.",
        replies=[*adds, says("Done.")],
        profile="kontekst",
        files={"agents/default.md": "---\ntools: [add]\n---\nBe brief."},
    )

    assert len(played.requests) == 20
    first = played.requests[0]["messages"]
    assert 2 < len(first) < 60
    assert first[-2]["content"].startswith("Message 59.")
    for request in played.requests:
        assert request["messages"][: len(first)] == first
