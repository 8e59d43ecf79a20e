"""What is remembered: read each turn, kept by tools, and made smaller after a turn."""

import asyncio
import json
import logging
from typing import Any

import pytest
from harness import Bench, calls, eventually, says, scripted
from temporalio.worker import Replayer

from everturn.context.layers import REFERENCE
from everturn.jsonl import read_lines
from everturn.memory import MemoryPlace
from everturn.session import SessionKey
from everturn_activities.gateways.scripted import ScriptedGateway
from everturn_workers.isolation import sandbox
from everturn_workflows.consolidation import Consolidation

CONSOLIDATES = "Above are the facts that an agent keeps"


def settings(made: Bench, text: str) -> None:
    (made.workspace / "everturn.toml").write_text(text)


async def say(made: Bench, key: SessionKey, text: str, turn: int) -> str:
    await made.send(key, text)
    events = await made.until(key, "turn_finished", turn=turn)
    assert events[-1].body["outcome"] == "completed", events[-1].body
    return str(events[-1].body["text"])


def system_of(gateway: ScriptedGateway, number: int = -1) -> str:
    steps = [asked for asked in gateway.requests if CONSOLIDATES not in asked.model_dump_json()]
    return steps[number].system


async def test_R16_a_sessions_facts_are_read_before_each_turn_and_by_no_other_session(
    made: Bench,
) -> None:
    settings(made, '[agent]\nprofile = "krill"\n')
    gateway = scripted(
        by_last_user={
            "remember": [calls("memory_save", text="Likes green tea."), says("Noted.")],
            "": [says("Tea it is.")],
        }
    )
    key, other = await made.session(), await made.session("s2")
    async with made.worker(gateway):
        await say(made, key, "remember that I like green tea", 1)
        assert "Session Memory" not in system_of(gateway)
        await say(made, key, "what do I drink?", 2)
        assert f"## Session Memory\n\n{REFERENCE}- Likes green tea.\n\n---" in system_of(gateway)
        await say(made, other, "what do I drink?", 1)
        assert "Session Memory" not in system_of(gateway)
        assert "green" not in system_of(gateway)
    (fact,) = await made.runtime.memories.facts([MemoryPlace(*key[:1], "session", "s")])
    assert [(s.session, s.turn, s.step) for s in fact.sources] == [("s", 1, 1)]


async def test_the_facts_of_one_user_are_shown_to_no_other(made: Bench) -> None:
    settings(made, '[memory]\nscopes = ["user"]\nconsolidate_tokens = 100\n')
    many = [
        {"name": "memory_save", "arguments": {"text": f"Ana's fact {n}. " + "word " * 20}}
        for n in range(6)
    ]
    gateway = scripted(
        by_last_user={
            CONSOLIDATES: [says("I would rather not.")],
            "remember": [{"calls": many}, says("Noted.")],
            "look": [calls("memory_load"), says("Looked.")],
            "": [says("Hello.")],
        }
    )
    ana, anas_other = await made.session("s1", user="ana"), await made.session("s2", user="ana")
    ben, nobody = await made.session("s3", user="ben"), await made.session("s4")
    async with made.worker(gateway):
        await say(made, ana, "remember this", 1)
        await eventually(lambda: CONSOLIDATES in gateway.requests[-1].model_dump_json())
        await say(made, anas_other, "hello", 1)
        assert "Ana's fact 5." in system_of(gateway)
        for key in (ben, nobody):
            await say(made, key, "look", 1)
            assert "Ana" not in gateway.requests[-1].model_dump_json()
            assert "Nothing is remembered yet." in gateway.requests[-1].model_dump_json()
    places = [MemoryPlace(ana.tenant, "user", owner) for owner in ("ana", "ben", "default")]
    memories = made.runtime.memories
    assert [len(await memories.facts([place])) for place in places] == [6, 0, 0]


@pytest.mark.parametrize("remembers", [True, False])
async def test_E10_the_tools_of_memory_are_there_only_where_it_is_enabled(
    made: Bench, remembers: bool
) -> None:
    """E10, E8: knowledge_query is there in any case."""
    scopes = '["project"]' if remembers else "[]"
    settings(made, f'[agent]\nprofile = "eggent"\n[memory]\nscopes = {scopes}\n')
    gateway = scripted(says("hello"))
    key = await made.session()
    async with made.worker(gateway):
        await say(made, key, "hello", 1)
    names = {tool.name for tool in gateway.requests[0].tools}
    assert ({"memory_save", "memory_load", "memory_delete"} <= names) is remembers
    assert any(name.startswith("memory") for name in names) is remembers
    assert "knowledge_query" in names


async def test_E10_facts_are_saved_searched_and_deleted_by_tools(made: Bench) -> None:
    settings(made, '[agent]\nprofile = "eggent"\n')
    script = [
        calls("memory_save", text="The port is 9090."),
        calls("memory_save", text="Deploys happen on Mondays."),
        calls("memory_load", query="which port?"),
        calls("memory_delete", fact=1),
        calls("memory_delete", fact=7),
        calls("memory_save", text="x", scope="session"),
        calls("memory_load"),
        says("done"),
    ]
    gateway = scripted(*script)
    key = await made.session()
    async with made.worker(gateway):
        await say(made, key, "go", 1)
    results = [
        result.text
        for message in gateway.requests[-1].messages
        if message.role == "tool"
        for result in message.results
    ]
    assert results == [
        "Remembered as project fact 1.",
        "Remembered as project fact 2.",
        "project fact 1: The port is 9090.",
        "Forgot project fact 1.",
        "The memory of this project has no fact 7.",
        "There is no session memory here, only that of project.",
        "project fact 2: Deploys happen on Mondays.",
    ]


def grown(*consolidated: dict[str, Any]) -> ScriptedGateway:
    return scripted(
        by_last_user={
            CONSOLIDATES: consolidated,
            "remember": [
                {
                    "calls": [
                        {"name": "memory_save", "arguments": {"text": f"Fact {n}: " + "word " * 20}}
                        for n in range(1, 7)
                    ]
                },
                says("Noted."),
            ],
            "": [says("Hello.")],
        }
    )


async def consolidated(made: Bench, key: SessionKey) -> list[str]:
    """The session's facts once nothing is due any more."""
    memories = made.runtime.memories
    async with asyncio.timeout(30):
        while (found := await memories.due_for(1)) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert found is None
    return [fact.text for fact in await memories.facts([MemoryPlace(key.tenant, "session", "s")])]


async def test_R17_one_call_after_the_turn_puts_a_smaller_set_in_place_of_a_memory(
    made: Bench,
) -> None:
    settings(
        made,
        '[agent]\nprofile = "krill"\n[memory]\nconsolidate_tokens = 100\n'
        'model = "openai/gpt-5-nano"\n',
    )
    smaller = [{"text": "All six facts in one.", "from": [1, 2, 3, 4, 5, 6]}]
    gateway = grown(says(json.dumps(smaller), hold="the consolidation"))
    key = await made.session()
    async with made.worker(gateway):
        # The turn ends while the consolidation is still being answered.
        await say(made, key, "remember all this", 1)
        await gateway.reached("the consolidation")
        await say(made, key, "hello", 2)
        assert "Fact 6" in system_of(gateway)
        gateway.release("the consolidation")
        assert await consolidated(made, key) == ["All six facts in one."]
        await say(made, key, "hello", 3)
    assert f"## Session Memory\n\n{REFERENCE}- All six facts in one.\n\n---" in system_of(gateway)
    asked = [each for each in gateway.requests if CONSOLIDATES in each.model_dump_json()]
    assert [each.model for each in asked] == ["openai/gpt-5-nano"]
    (fact,) = await made.runtime.memories.facts([MemoryPlace(key.tenant, "session", "s")])
    assert {source.turn for source in fact.sources} == {1}
    (row,) = await made.runtime.store.usage(key.tenant, "session", 0)
    assert row.side_calls == 1


async def test_no_fact_enters_a_history_or_a_log_and_a_consolidation_replays(
    made: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    settings(made, '[agent]\nprofile = "krill"\n[memory]\nconsolidate_tokens = 100\n')
    smaller = [{"text": "CANARY of six facts.", "from": [1, 2, 3, 4, 5, 6]}]
    gateway = grown(says(json.dumps(smaller)))
    key = await made.session()
    with caplog.at_level(logging.DEBUG):
        async with made.worker(gateway):
            await say(made, key, "remember all this", 1)
            assert await consolidated(made, key) == ["CANARY of six facts."]
            handle = made.client.get_workflow_handle(f"t/{key.tenant}/m/1")
            assert await handle.result() == 1
    of_turn = made.client.get_workflow_handle(key.workflow_id)
    histories = [await handle.fetch_history(), await of_turn.fetch_history()]
    told = b"".join(event.SerializeToString() for each in histories for event in each.events)
    assert b"CANARY" not in told
    assert b"Fact 1" not in told
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("everturn")]
    assert not any("CANARY" in line or "Fact 1" in line for line in ours)
    replayer = Replayer(
        workflows=[Consolidation],
        workflow_runner=sandbox,
        data_converter=made.client.data_converter,
    )
    await replayer.replay_workflow(histories[0])


async def test_R17_an_answer_that_cannot_be_used_leaves_all_facts(made: Bench) -> None:
    settings(made, '[agent]\nprofile = "krill"\n[memory]\nconsolidate_tokens = 100\n')
    gateway = grown(says("I would rather not."))
    key = await made.session()
    async with made.worker(gateway):
        await say(made, key, "remember all this", 1)
        await eventually(lambda: len(gateway.requests) == 3)
        assert len(await consolidated(made, key)) == 6
        await say(made, key, "hello", 2)
    assert len(gateway.requests) == 4


async def test_T23_an_imported_conversation_is_sent_as_the_sessions_own(made: Bench) -> None:
    lines = (
        '{"role": "user", "content": "Deploy on Mondays.", "tokens": 4}\n'
        '{"role": "assistant", "content": "Noted.", "tokens": 2}\n'
    )
    messages, _ = read_lines(lines)
    gateway = scripted(says("Monday."))
    key = await made.session()
    assert await made.runtime.store.import_messages(key, messages) == 2
    async with made.worker(gateway):
        await say(made, key, "When do we deploy?", 1)
    (asked,) = gateway.requests
    assert [message.role for message in asked.messages] == ["user", "assistant", "user"]
    assert asked.messages[:2] == tuple(messages)
    assert await made.transcript(key) == [*asked.messages, *(await made.transcript(key))[3:]]
