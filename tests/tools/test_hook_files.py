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
        ("sh checks/gate.sh; (cd checks && ./gate.sh && cd .. && ./later.sh)", None,
         ["checks/gate.sh", "later.sh"]),
        (["/usr/bin/env", "-i", "A=1", "checks/gate.sh"], None, ["checks/gate.sh"]),
        (["timeout", "-k", "5", "10s", "checks/gate.sh", "rules.txt"], None, ["checks/gate.sh"]),
        (["bash", "-euo", "pipefail", "checks/gate.sh", "rules.txt"], None, ["checks/gate.sh"]),
        (["bash", "-ec", "exec checks/gate.sh"], None, ["checks/gate.sh"]),
        (["python3", "-c", "checks/gate.sh; open('/tmp/x')", "checks/gate.sh"], None, []),
        (["node", "-e", "rules.txt"], None, []),
        (["ruby", "-rc", "rules.txt"], None, ["rules.txt"]),
        (["bash", "-o", "pipefail", "-c", "checks/gate.sh", "rules.txt"], None,
         ["checks/gate.sh"]),
        (["sh", "-c", "--", "rules.txt"], None, []),
        (["7z", "rules.txt"], None, []),
        (["python3.11", "-X", "dev", "rules.txt", "checks/gate.sh"], None, ["rules.txt"]),
        (["python", "-m", "checks", "rules.txt"], None, ["checks/__main__.py"]),
        (["python3", "-m", "checks.rule"], None, ["checks/rule.py"]),
        (["python3", "-m", "pytest", "rules.txt"], None, []),
        ("set -e\nif ! checks/gate.sh; then exit 2; fi", None, ["checks/gate.sh"]),
        (". checks/gate.sh && true", None, ["checks/gate.sh"]),
        ("cat rules.txt; cd checks; sh gate.sh", None, ["checks/gate.sh"]),
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
    names = ("checks/gate.sh", "checks/rule.py", "checks/__main__.py")
    for name in (*names, "rules.txt", "../elsewhere.sh"):
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
