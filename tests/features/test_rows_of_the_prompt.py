"""What a request is composed of: a system prompt, or a pair of messages in its place."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import Bench, calls, says, scripted
from plays import play, write

from everturn.agents import Agent, AgentSpec
from everturn.context.compose import Context, compose
from everturn.context.conversation import Conversation
from everturn.context.layers import ENTRY_BEGINS, Item, render
from everturn.messages import Text, UserMessage, user_text
from everturn.profile import Layer, Profile, Recipe, Summaries
from everturn.session import SessionKey
from everturn_activities.gateways.scripted import ScriptedGateway
from everturn_activities.profiles import load_profile
from everturn_activities.sources import Asked
from everturn_activities.sources.plain import PLAIN

ACK = "Understood. I will use all of it."


def layer(name: str, text: str = "", **more: Any) -> Layer:
    return Layer(id=name, source="text", text=text, **more)


PROMPT = Layer(
    id="agent_prompt", source="agent_prompt", frame="prefix", title="Follow this instruction: "
)
PAIR = Profile(
    name="pair",
    recipe=Recipe(
        mode="pair",
        ack=ACK,
        separator="",
        layers=(layer("task", "T", frame="entry"), PROMPT),
    ),
)
SYSTEM = Profile(
    name="system",
    recipe=Recipe(
        layers=(
            Layer(id="agent_role", source="agent_prompt"),
            layer("capabilities", "You can add."),
            Layer(id="line", source="boundary", text="--- below ---"),
            Layer(id="facts", source="clock", scope="step"),
        )
    ),
)


class Clock:
    """A source that tells another time at each step."""

    def __init__(self) -> None:
        self.minute = 0

    async def __call__(self, asked: Asked) -> Sequence[Item]:
        self.minute += 1
        return ({"text": f"It is 12:{self.minute:02}."},)


async def asked(
    made: Bench,
    profile: Profile,
    *turns: str,
    prompt: str = "Be brief.",
    steps: int = 0,
    **settings: Any,
) -> tuple[SessionKey, list[Context]]:
    """What a model was asked in `turns`, each of `steps` calls and an answer."""
    (made.workspace / "agents").mkdir(exist_ok=True)
    (made.workspace / "agents" / "default.md").write_text(f"---\ntools: [add]\n---\n{prompt}\n")
    gateway = scripted(*[calls("add", a=1, b=2)] * steps, says("Done."))
    key = await made.session()
    sources = {**PLAIN, "clock": Clock()}
    async with made.worker(gateway, profile=profile, sources=sources, **settings):
        for number, text in enumerate(turns, start=1):
            await made.send(key, text)
            await made.until(key, "turn_finished", turn=number)
        await made.closed(key)
    return key, gateway.requests


def roles(request: Context) -> list[str]:
    return [message.role for message in request.messages]


def text_of(message: object) -> str:
    assert isinstance(message, UserMessage)
    return "".join(part.text for part in message.parts if isinstance(part, Text))


async def test_K1_a_request_is_the_pair_the_conversation_and_the_tools_apart(made: Bench) -> None:
    """Also K8 (a fixed ack follows) and E23 (the history, then what the user says)."""
    _, requests = await asked(made, PAIR, "one", "two")
    pair, ack, first, answer, second = requests[1].messages
    assert text_of(pair) == (
        ENTRY_BEGINS + "T\n--- CONTEXT ENTRY END ---\n\nFollow this instruction: Be brief."
    )
    assert ack.role == "assistant"
    assert ack.text == ACK
    assert (text_of(first), answer.role, text_of(second)) == ("one", "assistant", "two")
    assert [tool.name for tool in requests[1].tools] == ["add"]


async def test_K2_K3_in_a_pair_there_is_no_system_prompt_and_the_roles_alternate(
    made: Bench,
) -> None:
    _, requests = await asked(made, PAIR, "one", "two", "three")
    assert all(request.system == "" for request in requests)
    assert roles(requests[2]) == ["user", "assistant"] * 3 + ["user"]


async def test_K8_the_ack_is_a_constant_of_the_recipe(made: Bench) -> None:
    _, (request,) = await asked(made, PAIR, "one")
    assert request.messages[1].model_dump()["parts"] == ({"type": "text", "text": ACK},)


async def test_K9_the_pair_is_rebuilt_for_each_request_and_never_stored(made: Bench) -> None:
    live = PAIR.model_copy(
        update={
            "recipe": PAIR.recipe.model_copy(
                update={"layers": (Layer(id="now", source="clock", scope="step"), PROMPT)}
            )
        }
    )
    key, requests = await asked(made, live, "one", steps=1)
    assert [text_of(request.messages[0])[:12] for request in requests] == [
        "It is 12:01.",
        "It is 12:02.",
    ]
    assert [roles(request).count("user") for request in requests] == [2, 2]
    assert not any("12:0" in message.model_dump_json() for message in await made.transcript(key))


async def test_K10_in_a_pair_the_summary_is_the_first_layer_and_what_it_is_of_is_absent(
    made: Bench,
) -> None:
    layers = (Layer(id="summary", source="summary", frame="entry"), *PAIR.recipe.layers)
    recipe = PAIR.recipe.model_copy(update={"layers": layers})
    profile = PAIR.model_copy(
        update={"recipe": recipe, "compaction": Summaries(sink="layer"), "name": "sink"}
    )
    (made.workspace / "agents").mkdir()
    (made.workspace / "agents" / "default.md").write_text("---\ntools: [add]\n---\nBe brief.\n")
    gateway = scripted(
        by_last_user={"CRITICAL: answer": [says("THE GIST")], "": [says("A long answer. " * 20)]}
    )
    key = await made.session()
    async with made.worker(gateway, profile=profile):
        for turn in range(1, 8):
            if turn == 7:
                await made.runtime.store.ask_compaction(key)
            await made.send(key, f"question {turn}")
            await made.until(key, "turn_finished", turn=turn)
    before, last = gateway.requests[-3], gateway.requests[-1]
    assert text_of(before.messages[0]).count(ENTRY_BEGINS) == 1
    assert text_of(last.messages[0]).startswith(
        f"{ENTRY_BEGINS}THE GIST\n--- CONTEXT ENTRY END ---\n\n{ENTRY_BEGINS}T\n"
    )
    assert roles(last)[:3] == ["user", "assistant", "assistant"]
    assert "question 1" not in last.model_dump_json()
    assert "was summarised to make room" not in last.model_dump_json()
    assert text_of(last.messages[-1]) == "question 7"


def test_K4_kiros_seven_layers_stand_in_their_order_in_one_message() -> None:
    profile = load_profile("kiro")
    spec = AgentSpec(agent=Agent(), profile=profile, workspace="/", working_dir="/")
    order = [one.id for one in profile.recipe.layers]
    fields = ("text", "name", "description", "path")
    texts = {
        one.id: render(one, [dict.fromkeys(fields, f"<{one.id}>")])
        for one in profile.recipe.layers
        if one.source != "summary"
    }
    request = compose(spec, texts, Conversation((user_text("go"),), "<summary>"))
    context, ack, said = request.messages
    places = [text_of(context).index(f"<{name}>") for name in order]
    assert order == [
        *("summary", "knowledge", "task", "spawn_hooks", "files", "skill_hints", "agent_prompt")
    ]
    assert places == sorted(places)
    assert (ack.role, said) == ("assistant", user_text("go"))


@pytest.mark.parametrize("profile", [SYSTEM, PAIR])
async def test_R25_a_turn_logs_the_sizes_of_its_context_and_not_its_text(
    made: Bench, caplog: pytest.LogCaptureFixture, profile: Profile
) -> None:
    caplog.set_level("INFO", "everturn_activities.model")
    _, requests = await asked(made, profile, "A secret question.", prompt="A prompt.", steps=1)
    (line,) = [one.getMessage() for one in caplog.records if "context_messages" in one.message]
    first = requests[0]
    size, count = len(first.system or text_of(first.messages[0])), len(first.messages)
    assert line == f"turn 1 of session s: instructions_chars={size} context_messages={count}"
    assert "secret" not in caplog.text
    assert "A prompt." not in caplog.text


async def test_E25_each_request_is_logged_whole_before_it_is_made_and_without_secrets(
    made: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", 'sk-"quoted"-0123')
    made.runtime.vault.variable("SOME_API_KEY")
    path = tmp_path / "requests.jsonl"
    said = 'My key is sk-"quoted"-0123.'
    _, requests = await asked(made, PAIR, said, steps=1, request_log=path)
    logged = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["session"], one["turn"], one["step"]) for one in logged] == [
        ("s", 1, 1),
        ("s", 1, 2),
    ]
    assert text_of(requests[0].messages[-1]) == said
    assert logged[0]["messages"][-1]["parts"][0]["text"] == "My key is [secret SOME_API_KEY]."
    assert (logged[0]["model"], logged[0]["system"]) == (requests[0].model, "")
    assert logged[0]["tools"][0]["name"] == "add"
    assert logged[0]["parameters"]["temperature"] is None
    assert path.stat().st_mode & 0o077 == 0


async def test_K21_context_ack_tools_and_history_are_told_apart_and_a_large_one_is_warned_of(
    made: Bench,
) -> None:
    key, _ = await asked(made, PAIR, "one", "two", prompt="word " * 10_001)
    events = await made.events(key)
    started = [event for event in events if event.type == "step_started"]
    tokens = started[1].body["tokens"]
    assert tokens["system"] > 10_000
    assert 5 < tokens["ack"] < 20
    assert tokens["tools"] > 20
    assert tokens["history"] > 5
    warned = [event.body["text"] for event in events if event.type == "status"]
    assert f"The prompt takes {tokens['system'] + tokens['ack']:,} tokens" in warned[0]


async def test_K31_what_is_sent_holds_messages_tools_and_sampling_and_no_handle_of_the_session(
    made: Bench,
) -> None:
    """As the endpoint got it: all that was said, in each request anew."""
    files = {"agents/default.md": "---\ntools: [add]\ntemperature: 0.2\n---\nBe brief."}
    replies = [calls("add", a=1, b=2), says("3")]
    name = "a-session-of-mine"

    played = await play(
        made, "one", "two", replies=replies, files=files, profile="kiro", session=name
    )

    assert len(played.requests) == 4
    for request in played.requests:
        assert set(request) == {
            *("model", "messages", "tools", "temperature", "stream", "stream_options"),
        }
        sent = json.dumps(request)
        assert name not in sent
        assert made.tenant not in sent
        assert str(made.workspace) not in sent
    assert [m["role"] for m in played.requests[-1]["messages"]] == ["user", "assistant"] * 4 + [
        "user"
    ]


async def test_R20_tools_are_defined_beside_the_prompt_and_not_in_it(made: Bench) -> None:
    _, (request,) = await asked(made, SYSTEM, "one")
    assert [tool.description for tool in request.tools] == ["Add two numbers."]
    assert "Add two numbers." not in request.system
    assert "properties" not in request.system


async def test_B20_the_prompt_stands_in_its_order_from_the_agents_role_to_the_facts(
    made: Bench,
) -> None:
    _, (request,) = await asked(made, SYSTEM, "one")
    assert request.system == "Be brief.\n\nYou can add.\n\n--- below ---\n\nIt is 12:01."


async def test_B21_above_the_boundary_two_steps_are_byte_identical(made: Bench) -> None:
    _, requests = await asked(made, SYSTEM, "one", steps=1)
    first, second = (request.system for request in requests)
    assert first != second
    above = {request.system[: request.cached] for request in requests}
    assert above == {"Be brief.\n\nYou can add.\n\n--- below ---"}


async def test_T18_each_call_sends_the_system_prompt_the_history_and_this_turn(
    made: Bench,
) -> None:
    _, requests = await asked(made, SYSTEM, "one", "two", steps=1)
    last = requests[-1]
    assert last.system.startswith("Be brief.")
    assert roles(last) == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant", "tool"),
    ]


async def test_U6_a_step_that_is_made_again_sends_the_same_bytes(made: Bench) -> None:
    """Its first attempt breaks off, and its second is another activity, with another time."""
    gateway = ScriptedGateway(
        scripted({"text": "Half a reply of many words.", "cut_after": 2})._script
    )
    key = await made.session()
    sources = {**PLAIN, "clock": Clock()}
    async with made.worker(gateway, profile=SYSTEM, sources=sources):
        await made.send(key, "one")
        await made.until(key, "turn_finished")
    first, second = gateway.requests
    assert first == second
    assert "12:01" in second.system


async def test_U6_another_worker_sends_the_bytes_that_the_lost_one_had_sent(
    made: Bench,
) -> None:
    """Seconds later, when R19, E22, B20 and K9 would tell another time and another file."""
    layers = "".join(
        f'[[recipe.layers]]\nid = "{source}"\nsource = "{source}"\nscope = "{scope}"\n{more}'
        for source, scope, more in (
            ("runtime", "turn", 'item = "{value}"\n'),
            ("datetime", "turn", 'item = "{time}"\n'),
            ("facts", "step", 'item = "{value}"\n'),
            ("files", "step", ""),
        )
    )
    write(
        made,
        {
            "profiles/timely.toml": layers,
            "everturn.toml": '[agent]\nprofile = "timely"\n',
            "agents/default.md": "---\nresources: ['file://a.md']\ntools: [add]\n---\nBe brief.",
            "a.md": "Before.",
        },
    )
    key = await made.session()
    lost = scripted(says("never", hold="lost"))
    async with made.worker(lost):
        await made.send(key, "go")
        await lost.reached("lost")
    write(made, {"a.md": "After."})
    await asyncio.sleep(1.1)
    other = scripted(calls("add", a=1, b=2), says("done"))
    async with made.worker(other):
        events = await made.until(key, "turn_finished")

    assert events[-1].body["outcome"] == "completed"
    (first,), (second, third) = lost.requests, other.requests
    assert second.model_dump_json() == first.model_dump_json()
    assert second.system.endswith("Before.")
    assert third.system.endswith("After.")
