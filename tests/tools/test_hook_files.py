"""No agent can change what a hook runs."""

from pathlib import Path

import pytest

from everturn.agents import Agent, AgentSpec
from everturn.hooks import Hook, Hooks, ToolHook
from everturn.session import SessionKey
from everturn_activities.hook_files import hook_files
from everturn_activities.workspaces import Workspaces


@pytest.mark.parametrize(
    ("command", "cwd", "protected"),
    [
        (["sh", "-e", "checks/gate.sh", "rules.txt"], None, ["checks/gate.sh"]),
        ("cat rules.txt > out; MODE=x checks/gate.sh rules.txt | env A=1 python3 later.py", None,
         ["checks/gate.sh"]),
        ("(cd checks && ./gate.sh); sh checks/gate.sh", None, ["gate.sh", "checks/gate.sh"]),
        (["./gate.sh"], "checks", ["checks/gate.sh"]),
        (["/work/checks/gate.sh"], None, ["checks/gate.sh"]),
        ("./later.sh", None, ["later.sh"]),
        ("./linked.sh; git status; ../elsewhere.sh; checks; rules.txt", None, ["rules.txt"]),
        ("checks/gate.sh; echo 'it", None, ["checks/gate.sh"]),
    ],
)  # fmt: skip
def test_the_files_that_a_command_names_are_protected(
    tmp_path: Path, command: object, cwd: str | None, protected: list[str]
) -> None:
    root = tmp_path / "folder"
    (root / "checks").mkdir(parents=True)
    for name in ("checks/gate.sh", "rules.txt", "../elsewhere.sh"):
        (root / name).touch()
    (root / "linked.sh").symlink_to("checks/gate.sh")
    hook = Hook.model_validate({"command": command, "cwd": cwd})
    assert hook_files(Hooks(turn_end=(hook,)), root) == tuple(root / name for name in protected)


def test_no_tool_may_write_what_a_hook_of_the_agent_runs(tmp_path: Path) -> None:
    (tmp_path / "gate.sh").touch()
    hooks = Hooks(pre_tool_use=(ToolHook(command=("sh", "gate.sh")),))
    where = str(tmp_path)
    spec = AgentSpec(agent=Agent(hooks=hooks), workspace=where, working_dir=where)
    context = Workspaces().context(spec, SessionKey("t", "s"), 1, 1, 0, 1)
    assert tmp_path / "gate.sh" in context.protected
