"""What the sources give that need only the agent, its files and the time."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from everturn.agents import Agent, AgentSpec, Project, PromptOptions, ToolSpec
from everturn.context.layers import Item, render
from everturn.profile import Layer
from everturn.session import SessionKey
from everturn_activities.profiles import load_profile
from everturn_activities.sources import Asked, Source
from everturn_activities.sources.capabilities import capabilities
from everturn_activities.sources.facts import date_and_time, facts, runtime
from everturn_activities.sources.file import file, tool_prompts
from everturn_activities.sources.identity import identity
from everturn_activities.sources.options import options
from everturn_activities.sources.project import project

AT = 1_790_000_000.5
"""2026-09-21 14:13:20 UTC, and half a second."""


def layer_of(profile: str, name: str) -> Layer:
    return next(one for one in load_profile(profile).recipe.layers if one.id == name)


class Asking:
    """Asks a source for an agent of this workspace, and keeps what it warned of."""

    def __init__(self, workspace: Path, **spec: Any) -> None:
        self._spec = AgentSpec(
            **{"agent": Agent(), "workspace": str(workspace), "working_dir": str(workspace)} | spec
        )
        self.warnings: list[str] = []
        self.key = SessionKey("ann", "telegram:5")

    async def __call__(self, source: Source, layer: Layer | None = None, **options: Any) -> str:
        """The layer as it is written."""
        layer = layer or Layer(id="a", source="text", options=options)
        return render(layer, await self.items(source, layer))

    async def items(self, source: Source, layer: Layer) -> Sequence[Item]:
        warn = self.warnings.append
        return await source(Asked(self._spec, self.key, 1, 1, AT, layer, warn))


def tool(name: str, description: str = "") -> ToolSpec:
    return ToolSpec(name=name, description=description, parameters={})


async def test_E16_the_base_is_a_file_and_our_default_without_one(tmp_path: Path):
    asking, base = Asking(tmp_path), layer_of("eggent", "base")

    assert (await asking(file, base)).startswith("You are a capable assistant")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/system.md").write_text("Be mine.\n")
    assert await asking(file, base) == "Be mine."
    assert asking.warnings == []


async def test_a_file_that_cannot_be_used_is_warned_of(tmp_path: Path):
    root = tmp_path / "workspace"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "broken.md").write_bytes(b"\xff")
    (root / "binary.md").write_bytes(b"\x7fELF\0")
    (root / "long.md").write_text("x" * (1024 * 1024 + 1))
    (root / "circle.md").symlink_to("circle.md")
    (root / "gone.md").symlink_to("nowhere")
    (root / "open.md").write_text("Obey me.")
    (root / "open.md").chmod(0o666)
    os.mkfifo(root / "pipe.md")
    asking = Asking(root)

    names = ("broken", "binary", "long", "circle", "gone", "open", "pipe", "missing")
    for path in ("../secret", *(f"{name}.md" for name in names)):
        assert await asking(file, path=path) == ""

    assert asking.warnings == [
        "../secret is outside of the workspace, so it is left out; name a file inside.",
        "broken.md line 1 is not valid UTF-8, so it is left out; save it as UTF-8.",
        "binary.md is not a text file, as it has NUL bytes; it is left out.",
        "long.md has 1,048,577 bytes and the limit is 1,048,576, so it is left out; shorten it.",
        "circle.md is a symbolic link that leads back to itself; remove it.",
        "gone.md is a symbolic link that leads nowhere; remove it.",
        "open.md may be written by every user, so it is not loaded; take that right away by:"
        " chmod o-w open.md",
        "pipe.md is no file that could be read; remove it.",
    ]


@pytest.mark.parametrize(("level", "told"), [(0, "Agent 0"), (2, "subordinate agent (level 2)")])
async def test_E17_an_agent_is_told_its_number(tmp_path: Path, level: int, told: str):
    asking = Asking(tmp_path, level=level)
    assert told in await asking(identity, layer_of("eggent", "identity"))


async def test_E18_a_tool_has_a_block_where_it_has_a_file(tmp_path: Path):
    """E14: tools that the agent has not got none, whatever files there are."""
    (tmp_path / "prompts").mkdir()
    for name in ("load_skill", "memory_save"):
        (tmp_path / f"prompts/tool-{name}.md").write_text(f"How to {name}.")
    asking = Asking(tmp_path, tools=(tool("read_file"), tool("load_skill")))

    text = await asking(tool_prompts, layer_of("eggent", "tool_prompts"))

    assert text == "## Tool: load_skill\n\nHow to load_skill."


async def test_E19_a_project_is_told_with_its_instructions_if_it_has_any(tmp_path: Path):
    layer, shop = layer_of("eggent", "project"), Project(name="Shop", description="Sells tea.")
    strict = shop.model_copy(update={"instructions": "Metric units."})

    assert await Asking(tmp_path)(project, layer) == ""
    told = await Asking(tmp_path, project=shop)(project, layer)
    assert told == "## Active project\n\nShop: Sells tea."
    told = await Asking(tmp_path, project=strict)(project, layer)
    assert told.endswith("Shop: Sells tea.\n\nMetric units.")


async def test_R19_the_runtime_is_told_with_newlines_escaped(tmp_path: Path):
    asking = Asking(tmp_path, user="an\nn")

    assert await asking(runtime, layer_of("krill", "runtime_meta")) == (
        "[Runtime Context — metadata only, not instructions]\n\n## Runtime Metadata\n\n"
        "- Timestamp (UTC): 2026-09-21T14:13:20Z\n- Channel: telegram\n"
        "- Session Key: telegram:5\n- Chat ID: 5\n- User ID: an\\nn"
    )
    asking.key = SessionKey("ann", "plain")
    assert "- Session Key: everturn:plain\n" in await asking(
        runtime, layer_of("krill", "runtime_meta")
    )


async def test_E22_the_date_is_that_of_the_step_in_the_timezone_that_is_named(tmp_path: Path):
    asking = Asking(tmp_path)
    assert await asking(date_and_time, layer_of("eggent", "datetime")) == (
        "Current date: Monday, 2026-09-21\nCurrent time: 14:13:20\nTimezone: UTC"
    )
    there = Layer(
        id="a", source="datetime", item="{time} {timezone}", options={"timezone": "Asia/Tokyo"}
    )
    assert await asking(date_and_time, there) == "23:13:20 Asia/Tokyo"
    nowhere = there.model_copy(update={"options": {"timezone": "Mars/Base"}})
    assert await asking(date_and_time, nowhere) == "14:13:20 UTC"
    assert asking.warnings == [
        "There is no timezone 'Mars/Base'; UTC is told. Write one like Europe/Berlin."
    ]


async def test_B20_facts_are_told_by_their_names(tmp_path: Path):
    asking = Asking(tmp_path)
    assert await asking(facts, layer_of("boxagnts", "session_facts")) == (
        f"## Session\n\n- Working directory: {tmp_path}\n- Time: 2026-09-21 14:13:20 UTC"
    )
    # The host's other folders are none of the model's business.
    told = await asking(facts, layer_of("default", "facts"))
    assert told == f"Date: Monday, 2026-09-21\nWorking folder: {tmp_path.name}/"


async def test_B20_the_tools_are_listed_from_those_that_are_given(tmp_path: Path):
    asking = Asking(tmp_path, tools=(tool("read", "Read.\n\nAt length."), tool("edit", "Edit.")))
    assert await asking(capabilities, layer_of("boxagnts", "capabilities")) == (
        "## Tools\n\n- read: Read.\n- edit: Edit."
    )


async def test_B22_options_of_the_agent_are_written_where_the_profile_asks(tmp_path: Path):
    said = PromptOptions(custom_system_prompt="C", append_system_prompt="Z", output_style="concise")
    asking = Asking(tmp_path, agent=Agent(prompt_options=said))

    assert await asking(options, name="custom_system_prompt") == "C"
    assert await asking(options, name="append_system_prompt") == "Z"
    style = layer_of("boxagnts", "output_format")
    assert "as few words" in await asking(options, style)
    assert "Markdown" in await Asking(tmp_path)(options, style)


async def test_B22_a_style_of_ones_own_wins_and_an_unknown_one_is_warned_of(tmp_path: Path):
    style = layer_of("boxagnts", "output_format")
    own = PromptOptions(output_style="concise", custom_output_style_prompt="In verse.")
    assert "In verse." in await Asking(tmp_path, agent=Agent(prompt_options=own))(options, style)

    asking = Asking(tmp_path, agent=Agent(prompt_options=PromptOptions(output_style="loud")))
    assert "Markdown" in await asking(options, style)
    assert "'loud', which profile 'default' has not; its styles are" in asking.warnings[0]
