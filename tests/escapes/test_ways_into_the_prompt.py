"""Attempts to bring into a prompt what does not belong there: each is refused or made visible."""

from pathlib import Path

import pytest
from local_servers import SECRET

from everturn import tool
from everturn.skills import SkillRoot
from everturn_activities.skills.catalogue import Catalogues
from everturn_activities.skills.places import Places
from everturn_activities.toolbox import unknown_tool

SKILL = f"---\nname: evil\ndescription: {SECRET}\n---\n{SECRET}\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere/evil").mkdir(parents=True)
    (tmp_path / "elsewhere/evil/SKILL.md").write_text(SKILL)
    (tmp_path / "elsewhere/evil.md").write_text(SKILL)
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("skills/evil/SKILL.md", "elsewhere/evil/SKILL.md"),
        ("skills/evil.md", "elsewhere/evil.md"),
        ("skills/evil", "elsewhere/evil"),
        ("skills", "elsewhere"),
        ("skills/a/b", "elsewhere"),
    ],
)
@pytest.mark.parametrize("way", ["absolute", "relative", "chain"])
@pytest.mark.parametrize("root", ["skills", "skills/*/SKILL.md", "skills/*/*/*/SKILL.md"])
async def test_no_skill_of_a_workspace_is_a_link_to_elsewhere(workspace, link, target, way, root):
    at, to = workspace / link, workspace.parent / target
    at.parent.mkdir(parents=True, exist_ok=True)
    if way == "chain":
        (workspace / "between").symlink_to(to)
        to = workspace / "between"
    up = "../" * (len(Path(link).parent.parts) + 1)
    at.symlink_to(f"{up}{target}" if way == "relative" else to)
    places = Places(str(workspace), str(workspace), str(workspace.parent / "home"))

    catalogue = await Catalogues().of((SkillRoot(path=root),), places)

    assert catalogue.skills == ()
    assert SECRET not in "".join(catalogue.problems)
    assert all("leads out of the workspace" in problem for problem in catalogue.problems)


async def test_a_link_within_the_workspace_is_a_skill(workspace):
    (workspace / "texts").mkdir()
    (workspace / "texts/good.md").write_text(SKILL.replace("evil", "good"))
    (workspace / "skills").mkdir()
    (workspace / "skills/good.md").symlink_to("../texts/good.md")
    places = Places(str(workspace), str(workspace), str(workspace.parent / "home"))

    catalogue = await Catalogues().of((SkillRoot(path="skills"),), places)

    assert [skill.name for skill in catalogue.skills] == ["good"]


@pytest.mark.parametrize(
    "name", ["a\x1b[2J", "a\nb", "a b", "read\u202e_file", "", "a" * 65, "../a", "a\0", "\u200ba"]
)
def test_no_tool_has_a_name_with_signs_in_it(name):
    def act() -> str:
        """Act."""
        return ""

    act.__name__ = name
    with pytest.raises(TypeError, match="must be 1 to 64 letters"):
        tool(act)


def test_a_name_that_a_model_made_up_is_quoted_to_a_bound():
    assert len(unknown_tool("x" * 10_000_000)) < 500
