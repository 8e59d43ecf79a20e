"""Each profile works a whole turn with its tools, and the endpoint's log says what it was sent."""

import json
from typing import Any

import pytest
from harness import Bench, calls, says
from plays import Play, play, system_of, tools_of, write

from everturn.context.layers import ENTRY_BEGINS, ENTRY_ENDS, REFERENCE
from everturn.memory import MemoryPlace
from everturn_activities.profiles import load_profile, profile_file

AGENT = {"agents/default.md": "---\ntools: [read_file, add]\n---\nBe brief."}
ADDS = [calls("add", a=1, b=2), says("It is 3.")]
RESTS = [calls("slow", seconds=1.1), says("Rested.")]
RULE = "\n\n---\n\n"
RUNTIME = "[Runtime Context — metadata only, not instructions]\n\n## Runtime Metadata"


def in_order(text: str, *marks: str) -> bool:
    """Whether the marks stand in `text`, each once and one after the other."""
    assert {mark: text.count(mark) for mark in marks} == dict.fromkeys(marks, 1)
    places = [text.index(mark) for mark in marks]
    return places == sorted(places)


def contents(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"]]


def roles(request: dict[str, Any]) -> list[str]:
    return [message["role"] for message in request["messages"]]


def answered(played: Play) -> str:
    assert played.events[-1].body["outcome"] == "completed", played.events[-1].body
    return str(played.events[-1].body["text"])


@pytest.mark.parametrize("profile", ["default", "kiro", "krill", "eggent", "boxagnts", "kontekst"])
async def test_U7_every_profile_works_a_turn_with_a_tool(made: Bench, profile: str):
    played = await play(made, "Add.", replies=ADDS, profile=profile, files=AGENT)

    assert answered(played) == "It is 3."
    assert len(played.requests) == 2
    assert "add" in tools_of(played.requests[0])
    assert "Be brief." in contents(played.requests[0])[0]
    assert "3" in contents(played.requests[1])[-1]
    assert played.warnings == []


# kiro


async def test_K1_K2_K3_kiro_sends_a_pair_and_the_conversation_and_never_a_third_role(
    made: Bench,
):
    """K8: the second message is the acknowledgement, with or without a summary."""
    files = {
        "agents/default.md": "---\ntools: [add]\nprompt_options:\n"
        "  custom_system_prompt: A system prompt.\n---\nBe brief."
    }
    script = {"One": [says("1.")], "Two": ADDS}

    played = await play(made, "One.", "Two.", by_last_user=script, profile="kiro", files=files)

    ack = load_profile("kiro").recipe.ack
    first, second, third = played.requests
    assert contents(first)[1:] == [ack, "One."]
    assert contents(second)[1:] == [ack, "One.", "1.", "Two."]
    assert roles(third) == ["user", "assistant"] * 3 + ["user"]
    assert tools_of(third) == ["add"]
    assert "Add two numbers" not in json.dumps(third["messages"])
    assert "A system prompt." not in json.dumps(played.requests)


async def test_K5_K7_the_prompt_comes_last_behind_the_entries(made: Bench):
    """K6: layers that have nothing to tell leave no frame."""
    files = {"agents/default.md": "---\nresources: ['file://a.md']\n---\nP", "a.md": "A"}

    played = await play(made, "Go.", replies=[says("Gone.")], profile="kiro", files=files)

    text = contents(played.requests[0])[0]
    assert text.endswith(f"{ENTRY_ENDS}Follow this instruction: P")
    assert text.count(ENTRY_BEGINS) == text.count(ENTRY_ENDS) == 1
    alone = await play(
        made,
        "Go.",
        replies=[says("Gone.")],
        profile="kiro",
        files={"agents/default.md": "P"},
        session="alone",
    )
    assert contents(alone.requests[0])[0] == "Follow this instruction: P"


async def test_K9_a_resource_that_is_edited_between_steps_is_told_anew(made: Bench):
    files = {
        "agents/default.md": "---\nresources: ['file://a.md']\n---\nP",
        "a.md": "before",
    }
    edits = [calls("fs_write", path="a.md", content="after"), says("Edited.")]

    played = await play(made, "Edit.", replies=edits, profile="kiro", files=files)

    first, second = (contents(request)[0] for request in played.requests)
    assert "before" in first
    assert "after" in second
    assert "before" not in second
    stored = await made.transcript(played.key)
    assert not any("CONTEXT ENTRY" in message.model_dump_json() for message in stored)


async def test_K13_a_resource_is_there_to_its_last_byte(made: Bench):
    body = "".join(f"{number:>9}\n" for number in range(3000))
    files = {"agents/default.md": "---\nresources: ['file://rules/*.md']\n---\nP"}
    files["rules/a.md"] = body

    played = await play(made, "Go.", replies=[says("Gone.")], profile="kiro", files=files)

    assert body.rstrip() in contents(played.requests[0])[0]


async def test_K14_K15_skills_are_hinted_in_lines_under_one_header(made: Bench):
    """K17: the body is what `fs_read` returns for the hinted path."""
    where = ".kiro/skills/skill-{0}/SKILL.md"
    text = "---\nname: skill-{0}\ndescription: Does {0}.\n---\nBODY {0} " + "x" * 5000
    files = {where.format(n): text.format(n) for n in range(100)}
    reads = [calls("fs_read", path=where.format(7)), says("Read.")]

    played = await play(made, "Read.", replies=reads, profile="kiro", files=files)

    context = contents(played.requests[0])[0]
    assert context.count("You SHOULD decide from the description") == 1
    hints = [f"skill-{n}: Does {n}. (file: {where.format(n)})" for n in range(100)]
    assert all(context.count(hint) == 1 for hint in hints)
    assert context.index("You SHOULD decide") < min(context.index(hint) for hint in hints)
    assert "BODY" not in context
    # This profile sends results as JSON in a message as by the user.
    assert json.dumps(text.format(7)) in contents(played.requests[1])[-1]


async def test_K4_K11_one_message_fuses_seven_layers_in_their_order(made: Bench):
    """K10: the summary is in the first layer, and the messages that it replaces are absent."""
    files = {
        ".kiro/task.md": "T1",
        "agents/default.md": "---\nresources: ['file://rules.md']\ncompaction: {keep_last: 2}\n"
        "---\nP",
        "rules.md": "The rules.",
        "shelf/indexed.md": "Indexed content.",
        ".kiro/skills/pdf/SKILL.md": "---\nname: pdf\ndescription: Reads.\n---\nBODY",
        "everturn.toml": '[[hooks.agent_spawn]]\ncommand = ["echo", "Spawned."]\n',
    }
    script = {"Summarise the conversation": [says("THE GIST")], "": [says("Yes.")]}
    write(made, files)
    library = made.runtime.services.library
    await library.add(made.tenant, str(made.workspace), "docs", str(made.workspace / "shelf"))
    talk = {"by_last_user": script, "profile": "kiro", "files": files}

    before = await play(made, "First.", "Second.", **talk)
    await made.runtime.store.ask_compaction(before.key)
    after = await play(made, "Third.", **talk)

    context, _ack, *said = contents(after.requests[-1])
    assert in_order(
        context,
        "THE GIST",
        "docs",
        "T1",
        "Spawned.",
        "The rules.",
        "pdf: Reads. (file: .kiro/skills/pdf/SKILL.md)",
        "Follow this instruction: P",
    )
    assert context.count(ENTRY_BEGINS) == context.count(ENTRY_ENDS) == 6
    assert "Indexed content." not in context
    assert "First." not in said
    assert not any("THE GIST" in text for text in said)
    assert said[-1] == "Third."


# krill


DOCS = {
    "context/AGENTS.md": "The rules.",
    "context/SOUL.md": "The soul.",
    "context/TOOLS.md": "t" * 12_001,
    "context/NOTES.md": "Not asked for.",
}


async def test_R1_krill_has_its_sections_in_order(made: Bench):
    """R4, R8, R11, R16 and R19: each under its heading, after the base and before the end."""
    cron = "---\ndescription: Plans.\nalways: true\n---\nUse UTC."
    files = {**AGENT, **DOCS, "context/skills/cron/SKILL.md": cron}
    place = MemoryPlace(made.tenant, "session", "telegram:5")
    await made.runtime.memories.save(place, "Likes tea.", "k", None)

    played = await play(
        made, "Add.", replies=ADDS, profile="krill", files=files, session="telegram:5"
    )

    heads = [section.partition("\n\n")[0] for section in played.system.split(RULE)]
    assert heads == [
        "Be brief.",
        "## Workspace Bootstrap Docs",
        "## Available Skills",
        "## Active Skills",
        "## Session Memory",
        "## Safety",
        "[Runtime Context — metadata only, not instructions]",
    ]
    assert in_order(
        played.system,
        "### AGENTS.md\n\nThe rules.",
        "- **cron**: Plans. [always-on]",
        "### Skill: cron\n\nUse UTC.",
        f"## Session Memory\n\n{REFERENCE}- Likes tea.",
        "untrusted data",
        "- Session Key: telegram:5",
    )


async def test_R18_the_notice_of_safety_is_there_without_any_configuration(made: Bench):
    played = await play(made, "Go.", replies=[says("Gone.")], profile="krill")

    (safety,) = [part for part in played.system.split(RULE) if part.startswith("## Safety")]
    assert "fetched web pages" in safety
    assert "untrusted" in safety


async def test_R2_sections_that_are_empty_leave_no_second_rule(made: Bench):
    files = {"agents/default.md": "---\ntools: []\n---\nBase."}
    played = await play(made, "Go.", replies=[says("Gone.")], profile="krill", files=files)

    sections = played.system.split(RULE)
    assert sections[0] == "Base."
    assert all(section.strip() and not section.endswith("---") for section in sections)
    assert sections[-2].startswith("## Safety")
    assert sections[-1].startswith(RUNTIME)


async def test_R3_the_base_prompt_of_a_profile_that_changed_is_in_the_next_turn(made: Bench):
    """The worker goes on meanwhile."""
    krill = profile_file("krill").read_text() + '[agent]\nprompt = "Old base."\n'
    changed = {"profiles/krill.toml": krill.replace("Old base.", "New base.")}

    played = await play(
        made,
        "A.",
        changed,
        "B.",
        replies=[says("Yes.")],
        profile="krill",
        files={"profiles/krill.toml": krill},
    )

    first, second = (system_of(request).split(RULE)[0] for request in played.requests)
    assert (first, second) == ("Old base.", "New base.")


async def test_R4_R5_documents_are_told_in_their_order_under_their_names(made: Bench):
    """R6: one that is too long is cut, and the others are not."""
    played = await play(
        made, "Go.", replies=[says("Gone.")], profile="krill", files={**AGENT, **DOCS}
    )

    docs = next(s for s in played.system.split(RULE) if s.startswith("## Workspace Bootstrap"))
    assert in_order(docs, "### AGENTS.md\n\nThe rules.", "### SOUL.md\n\nThe soul.", "### TOOLS.md")
    assert "### USER.md" not in docs
    assert "Not asked for." not in docs
    body = docs.partition("### TOOLS.md\n\n")[2]
    assert len(body) == 12_000
    assert body.endswith("t\n\n[truncated]")


async def test_R7_the_list_of_names_decides_which_documents_are_told_and_in_which_order(
    made: Bench,
):
    listed = 'source = "documents"\noptions = { names = ["SOUL.md", "AGENTS.md", "NOTES.md"] }'
    krill = profile_file("krill").read_text().replace('source = "documents"', listed)
    files = {**AGENT, **DOCS, "profiles/krill.toml": krill}

    played = await play(made, "Go.", replies=[says("Gone.")], profile="krill", files=files)

    assert in_order(played.system, "### SOUL.md", "### AGENTS.md", "### NOTES.md\n\nNot asked for.")
    assert "### TOOLS.md" not in played.system


async def test_R19_the_runtime_closes_the_prompt_and_stands_for_the_turn(made: Bench):
    """The second step begins a second later."""
    files = {"agents/default.md": "---\ntools: [slow]\n---\nBe brief."}
    played = await play(
        made, "Rest.", replies=RESTS, profile="krill", files=files, session="telegram:5"
    )

    first, second = (system_of(request).split(RULE)[-1] for request in played.requests)
    assert first == second
    lines = first.removeprefix(f"{RUNTIME}\n\n").splitlines()
    assert lines[0].startswith("- Timestamp (UTC): 20")
    assert lines[0].endswith("Z")
    assert lines[1:] == [
        "- Channel: telegram",
        "- Session Key: telegram:5",
        "- Chat ID: 5",
        "- User ID: default",
    ]


async def test_R20_no_schema_is_in_the_prompt(made: Bench):
    played = await play(made, "Add.", replies=ADDS, profile="krill")

    [request, _] = played.requests
    assert len(request["tools"]) >= 5
    for tool in request["tools"]:
        assert tool["function"]["description"] not in played.system
    assert '"properties"' not in played.system


# eggent


EGGENT = {
    "prompts/tool-read_file.md": "Read what you quote.",
    "prompts/tool-memory_save.md": "Save it.",
    ".meta/skills/pdf/SKILL.md": "---\nname: pdf\ndescription: Reads a<b.\n---\nBODY",
    "everturn.toml": '[project]\nname = "Shop"\ndescription = "Sells tea."\n',
    "agents/default.md": "---\ntools: [read_file, add]\n---\n",
}


async def test_E15_eggent_has_its_parts_in_order(made: Bench):
    """E16, E17, E19, E20, E22: base, identity, project, skills in XML, and the date at last."""
    played = await play(made, "Add.", replies=ADDS, profile="eggent", files=EGGENT)

    assert in_order(
        played.system,
        "You are a capable assistant",
        "You are Agent 0",
        "## Tool: read_file\n\nRead what you quote.",
        "Shop: Sells tea.",
        "`load_skill`",
        "<available_skills>",
        "<skill><name>pdf</name><description>Reads a&lt;b.</description></skill>",
        "</available_skills>",
        "Current date: ",
    )
    assert "BODY" not in played.system
    *_, date, time, zone = played.system.splitlines()
    assert (date[:14], time[:14], zone) == ("Current date: ", "Current time: ", "Timezone: UTC")


@pytest.mark.parametrize("scopes", ['["project"]', "[]"])
async def test_E14_E18_a_tool_that_the_agent_has_not_has_no_block(made: Bench, scopes: str):
    """With memory turned off there is no tool that saves, and none is told of."""
    settings = f"{EGGENT['everturn.toml']}[memory]\nscopes = {scopes}\n"
    files = {**EGGENT, "everturn.toml": settings, "agents/default.md": "Be brief."}

    played = await play(made, "Add.", replies=ADDS, profile="eggent", files=files)

    remembers = scopes != "[]"
    assert ("memory_save" in tools_of(played.requests[0])) is remembers
    assert ("## Tool: memory_save\n\nSave it." in played.system) is remembers
    assert played.system.count("## Tool: ") == 1 + remembers


async def test_E16_a_file_takes_the_place_of_the_base(made: Bench):
    files = {**EGGENT, "prompts/system.md": "Our own base."}
    played = await play(made, "Add.", replies=ADDS, profile="eggent", files=files)

    assert played.system.startswith("Our own base.\n\nYou are Agent 0")


async def test_E19_instructions_of_a_project_are_told_if_it_has_any(made: Bench):
    settings = EGGENT["everturn.toml"] + 'instructions = "Metric units."\n'
    files = {**EGGENT, "everturn.toml": settings}
    played = await play(made, "Add.", replies=ADDS, profile="eggent", files=files)

    assert "Shop: Sells tea.\n\nMetric units.\n\n" in played.system


async def test_E22_the_date_is_the_same_in_all_requests_of_a_turn(made: Bench):
    """Workflows here are replayed at each task, and the text stays though a second passes."""
    files = {**EGGENT, "agents/default.md": "---\ntools: [slow]\n---\n"}
    played = await play(made, "Rest.", replies=RESTS, profile="eggent", files=files)

    first, second = map(system_of, played.requests)
    assert "Current time: " in first
    assert first == second


# boxagnts


BOX = {
    "agents/default.md": "---\ntools: [read, edit, add]\nprompt_options:\n"
    "  append_system_prompt: Z at last.\n  custom_system_prompt: C of mine.\n---\nBe brief.",
    "AGENTS.md": "Use tabs.",
}


async def test_B5_B20_boxagnts_has_its_parts_in_order(made: Bench):
    """B22: what is appended comes after the standard sections."""
    played = await play(made, "Add.", replies=ADDS, profile="boxagnts", files=BOX)

    assert played.system.startswith("Be brief.\n\nC of mine.")
    assert in_order(
        played.system,
        "Be brief.",
        "C of mine.",
        "## Tools",
        "- read: Read a text file",
        "- add: Add two numbers.",
        "## Output format",
        "## Security boundaries",
        "Use tabs.",
        "--- Above cached, below not cached ---",
        f"- Working directory: {made.workspace}",
        "- Time: 20",
        "Z at last.",
    )


async def test_B21_above_the_boundary_the_steps_are_the_same(made: Bench):
    played = await play(
        made, "Rest.", replies=RESTS, profile="boxagnts", files={"agents/default.md": "Be brief."}
    )

    first, second = map(system_of, played.requests)
    line = "--- Above cached, below not cached ---"
    assert first.partition(line)[0] == second.partition(line)[0] != ""
    assert first.partition(line)[2] != second.partition(line)[2]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("output_style: concise", "as few words as the matter allows"),
        ("custom_output_style_prompt: In verse.", "## Output format\n\nIn verse."),
    ],
)
async def test_B22_an_output_style_takes_the_place_of_the_format(
    made: Bench, options: str, told: str
):
    files = {"agents/default.md": f"---\nprompt_options: {{{options}}}\n---\nBe brief."}
    played = await play(made, "Go.", replies=[says("Gone.")], profile="boxagnts", files=files)

    assert told in played.system
    assert "Answer in Markdown" not in played.system


async def test_B22_a_working_directory_is_told_and_worked_in(made: Bench):
    files = {
        "agents/default.md": "---\nworking_directory: inner\n---\nBe brief.",
        "inner/here.txt": "found",
    }
    replies = [calls("read", path="here.txt"), says("Read.")]
    played = await play(made, "Go.", replies=replies, profile="boxagnts", files=files)

    assert f"- Working directory: {made.workspace}/inner" in played.system
    assert "found" in contents(played.requests[1])[-1]


# a sixth


SIXTH = """\
description = "Frames of one, rules of another, the budget of a third."

[recipe]
separator = "\\n\\n---\\n\\n"

[[recipe.layers]]
id = "base"
source = "agent_prompt"

[[recipe.layers]]
id = "note"
source = "text"
text = "A note."
frame = "entry"

[[recipe.layers]]
id = "nothing"
source = "managed"
frame = "entry"

[agent]
window_tokens = 1000
tokens_max = 200
history = "tail_tokens"
compaction = { enabled = false }
tools = ["add"]
"""


async def test_U7_a_sixth_profile_of_frames_rules_and_a_budget_is_only_a_file(made: Bench):
    """K5, R2, T15: all of them in one profile that nobody has written code for."""
    files = {"profiles/sixth.toml": SIXTH, "agents/default.md": "Base."}
    script = {"last": ADDS, "": [says("word " * 60)]}
    turns = [f"Turn {number}. " + "spam " * 40 for number in range(8)]

    played = await play(
        made, *turns, "The last.", by_last_user=script, profile="sixth", files=files
    )

    assert played.system == f"Base.{RULE}{ENTRY_BEGINS}A note.\n{ENTRY_ENDS}"
    assert answered(played) == "It is 3."
    started = [event.body["tokens"] for event in played.events if event.type == "step_started"]
    last = started[-2]
    assert last["history"] <= 1000 - last["system"] - last["tools"] - 200
    assert len(played.requests[-2]["messages"]) < 2 + 2 * len(turns)
    assert contents(played.requests[-2])[-1] == "The last."
