"""What a model is told of skills, and how it and people get at their texts."""

import sys
from pathlib import Path

import pytest
from shelves import Folders, described

sys.path.insert(0, str(Path(__file__).parent.parent / "documents"))
from asking import Asker

from everturn.agents import Agent, AgentSpec
from everturn.context.layers import render
from everturn.errors import ToolFailed, UsageError
from everturn.profile import Layer, Profile, Recipe
from everturn.skills import SkillRoot, SkillRules
from everturn_activities.skills.shelf import Shelf, Skills
from everturn_activities.sources.skills import SkillSources

RULES = SkillRules(roots=(SkillRoot(path="skills"),), tool="load_skill")


def shelf(folders: Folders, rules: SkillRules = RULES, *resources: str) -> Shelf:
    spec = AgentSpec(
        agent=Agent(resources=resources),
        profile=Profile(
            name="p", recipe=Recipe(layers=(Layer(id="text", source="text"),)), skills=rules
        ),
        workspace=str(folders.workspace),
        working_dir=str(folders.workspace),
    )
    return Skills(folders.home).shelf(spec)


async def nobody(key: object, turn: int) -> list[object]:
    return []


async def test_skills_that_an_agent_names_are_the_workspaces_or_a_persons_own(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person may keep links among their own; what comes with a workspace leads out of none."""
    monkeypatch.setenv("HOME", str(folders.home))
    kept = folders.write("kept.md", described("Mine."), folders.home)
    for folder in (folders.home / "mine", folders.home / "more", folders.workspace / "theirs"):
        folder.mkdir()
        (folder / f"{folder.name}.md").symlink_to(kept)
    resources = ("skill://~/mine", f"skill://{folders.home}/more", "skill://theirs")

    catalogue = await shelf(folders, SkillRules(roots=()), *resources).catalogue()

    assert [(skill.name, skill.trust) for skill in catalogue.skills] == [
        ("mine", "user"),
        ("more", "user"),
    ]
    assert "theirs.md is a link that leads out of the workspace" in catalogue.problems[0]


@pytest.fixture
def sources(folders: Folders) -> SkillSources:
    return SkillSources(Skills(folders.home), nobody)


async def test_K14_K15_each_skill_is_a_hint_line_below_one_header(folders, sources):
    ask = Asker(folders.workspace, resources=("skill://.kiro/skills/*/SKILL.md",))
    for number in range(100):
        text = described(f"Does {number}.") + "body " * 1000
        folders.write(f".kiro/skills/s{number:03}/SKILL.md", text)
    layer = Layer(
        id="hints",
        source="skills",
        header="You SHOULD decide from the description when to read the file.",
        item="{name}: {description} (file: {path})",
    )

    text = render(layer, await ask(sources.menu))

    lines = text.splitlines()
    assert lines[0].startswith("You SHOULD decide")
    assert lines[1] == "s000: Does 0. (file: .kiro/skills/s000/SKILL.md)"
    assert len(lines) == 101
    assert "body" not in text


async def test_R8_the_summary_marks_what_is_always_on(folders, sources):
    folders.write("skills/cron/SKILL.md", described("Plans.", always="true"))
    ask = Asker(folders.workspace, skills=RULES)
    layer = Layer(id="menu", source="skills", item="- **{name}**: {description}{mark}")
    assert render(layer, await ask(sources.menu)) == "- **cron**: Plans. [always-on]"


async def test_a_turn_sees_a_new_skill_and_its_layers_go_by_one_look(folders, sources):
    folders.write("skills/pdf/SKILL.md", described("Reads PDF."))
    ask = Asker(folders.workspace, skills=RULES)
    first = await ask(sources.menu)
    folders.write("skills/xls/SKILL.md", described("Reads tables.", always="true"))

    assert await ask(sources.always) == []
    assert await ask(sources.menu) == first
    ask.turn = 2
    assert [item["name"] for item in await ask(sources.menu)] == ["pdf", "xls"]


async def test_R11_only_always_on_skills_are_there_in_full(folders, sources):
    folders.write("skills/memory/SKILL.md", described("Remembers.", always="true"))
    folders.write("skills/pdf/SKILL.md", described("Reads PDF."))
    ask = Asker(folders.workspace, skills=RULES)
    (item,) = await ask(sources.always)
    assert (item["name"], item["text"]) == ("memory", "The body.")


async def test_K18_an_agent_that_could_not_read_skills_is_told_of_none_or_a_person_is_warned(
    folders, sources
):
    folders.write("skills/pdf/SKILL.md", described("Reads PDF."))
    ask = Asker(folders.workspace, skills=RULES, tools=("write_file",))
    assert await ask(sources.menu) == ()
    assert ask.warnings == []
    ask.skills = RULES.model_copy(update={"unreadable": "warn"})
    assert len(await ask(sources.menu)) == 1
    assert ask.warnings == [
        "The agent default is told of skills and has no tool that gives it their texts; add the"
        " tool load_skill to its tools, or take the skills out of its profile."
    ]


async def test_T31_each_side_is_blocked_on_its_own(folders):
    folders.write("skills/people.md", described("P.", disable_model_invocation="true"))
    folders.write("skills/models.md", described("M.", user_invocable="false"))
    own = shelf(folders)

    assert await own.listing() == "- models: M."
    with pytest.raises(ToolFailed, match="only a person can ask for it"):
        await own.text("people", "")
    assert (await own.invocation("/people")).text == "The body."
    assert await own.text("models", "") == "The body."
    with pytest.raises(UsageError, match="not for people to invoke"):
        await own.invocation("/models now")


async def test_B34_B35_the_tool_lists_skills_and_gives_their_texts_with_arguments(folders):
    folders.write("skills/review/SKILL.md", "---\nname: review\n---\nReview: $ARGUMENTS")
    own = shelf(folders)
    assert await own.listing() == "- review: "
    assert await own.text("review", "main.py") == "Review: main.py"
    assert await own.text("review", "") == "Review: "


async def test_an_unknown_skill_is_answered_with_those_there_are(folders):
    folders.write("skills/review/SKILL.md", described("R."))
    with pytest.raises(ToolFailed) as raised:
        await shelf(folders).text("reviw", "")
    assert str(raised.value) == (
        "There is no skill 'reviw' (did you mean 'review'?); the skills are review."
    )


async def test_a_persons_invocation_is_rendered_once_and_other_text_is_left_alone(folders):
    folders.write("skills/review/SKILL.md", "Review $0 for $1.")
    own = shelf(folders)
    made = await own.invocation('/review "a b.py" bugs')
    assert (made.name, made.arguments) == ("review", '"a b.py" bugs')
    assert made.text == "Review a b.py for bugs."
    assert made.path == "skills/review/SKILL.md"
    for text in ("/etc/hosts is long", "/unknown thing", "a /review", "/ review"):
        assert await own.invocation(text) is None


async def test_K17_hinted_paths_lead_to_the_skills_folder_and_nowhere_else(folders):
    folders.write("skills/pdf/SKILL.md", described("PDF."))
    folders.write("skills/flat.md", described("Flat."))
    folders.write("skills/hidden/SKILL.md", described("H.", disable_model_invocation="true"))
    own = shelf(folders)
    pdf = str(folders.workspace / "skills" / "pdf")
    assert await own.folder("skills/pdf/SKILL.md") == (pdf, "SKILL.md")
    assert await own.folder("skills/pdf/scripts/run.py") == (pdf, "scripts/run.py")
    assert await own.folder("skills/flat.md") == (str(folders.workspace / "skills"), "flat.md")
    for path in ("skills/other.md", "skills/pdf", "skills/hidden/SKILL.md", "everturn.toml"):
        assert await own.folder(path) is None
