"""Agents that a workspace defines in Python."""

from pathlib import Path

import pytest

from everturn.errors import WorkspaceError
from everturn_activities.workspace import load

CASHIER = """
from pydantic import BaseModel

from everturn import Agent

class Total(BaseModel):
    total: float

cashier = Agent(prompt="You add up.", output=Total, steps_max=7)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "everturn.toml").write_text('[model]\nname = "openai/ours"\n')
    return tmp_path


def wrong(root: Path, name: str) -> str:
    with pytest.raises(WorkspaceError) as raised:
        load(root).spec(name)
    return str(raised.value).replace(str(root), "ROOT")


def test_an_agent_in_python_inherits_what_it_leaves_out(root: Path):
    (root / "agents" / "cashier.py").write_text(CASHIER)

    spec = load(root).spec("cashier")

    assert (spec.agent.name, spec.agent.steps_max) == ("cashier", 7)
    assert spec.agent.model == "openai/ours"
    assert spec.tool("response").parameters["required"] == ["total"]
    assert "cashier" in load(root).agents


def test_a_changed_file_gives_the_changed_agent(root: Path):
    file = root / "agents" / "cashier.py"
    file.write_text(CASHIER)
    before = load(root).spec("cashier")

    file.write_text(CASHIER.replace("steps_max=7", "steps_max=8"))

    assert before.agent.steps_max == 7
    assert load(root).spec("cashier").agent.steps_max == 8


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "ROOT/agents/a.py defines no agents; it must define one"),
        (
            "from everturn import Agent\na = Agent()\nb = Agent(steps_max=2)",
            "ROOT/agents/a.py defines 2 agents",
        ),
        ("from everturn import Agent\na = Agent(steps_max=0)", "ROOT/agents/a.py line 2 cannot be"),
        ("from everturn import Agent\na = Agent(name='b')", "calls its agent 'b', and by its file"),
        ("import of", "ROOT/agents/a.py line 1 cannot be loaded"),
    ],
)
def test_a_file_that_defines_no_one_agent_is_refused_with_its_place(
    root: Path, text: str, told: str
):
    (root / "agents" / "a.py").write_text(text)

    assert told in wrong(root, "a")


def test_a_file_beside_another_of_its_name_is_refused(root: Path):
    (root / "agents" / "a.py").write_text(CASHIER)
    (root / "agents" / "a.md").write_text("Hello.")

    assert "Agent 'a' is defined twice" in wrong(root, "a")


def test_a_folder_that_every_user_may_write_gives_no_agent(root: Path):
    (root / "agents" / "cashier.py").write_text(CASHIER)
    (root / "agents").chmod(0o777)

    assert "ROOT/agents may be written by every user" in wrong(root, "cashier")
