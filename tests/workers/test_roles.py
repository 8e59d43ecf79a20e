"""What a worker's roles may be, what a process of some of them loads, and what bounds its slots."""

import subprocess
import sys
from pathlib import Path

import pytest

from everturn.errors import UsageError
from everturn_workers.roles import ROLES, read_roles
from everturn_workers.settings import read_settings
from everturn_workers.supervisor import Up

LOADED = """
import sys
import everturn_workers.serving
print([name for name in ("everturn_workflows.turn", "litellm", "redis") if name in sys.modules])
"""


def test_a_worker_has_all_roles_unless_it_is_told_otherwise(tmp_path: Path):
    assert read_settings(home=tmp_path).works == set(ROLES)
    assert read_settings(home=tmp_path, roles=" tools, models,").works == {"tools", "models"}


@pytest.mark.parametrize(("text", "named"), [("tools,turn", "turn"), (" , ", "nothing")])
def test_a_role_that_is_none_is_named(tmp_path: Path, text: str, named: str):
    with pytest.raises(UsageError, match=rf"turns, models, tools.* {named} is none of them.*mend"):
        read_settings(home=tmp_path, roles=text)
    with pytest.raises(UsageError):
        read_roles(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [("turns_max", 1), ("models_max", 0), ("tools_max", 0), ("inline_max", 10_001)],
)
def test_slots_are_bounded_in_a_sentence(tmp_path: Path, name: str, value: int):
    with pytest.raises(UsageError, match=rf"'{name}' is wrong.*--{name.replace('_', '-')}"):
        read_settings(home=tmp_path, **{name: value})


async def test_up_runs_no_worker_that_leaves_work_undone(tmp_path: Path):
    with pytest.raises(UsageError, match="EVERTURN_ROLES says tools; unset it"):
        await Up(read_settings(home=tmp_path, roles="tools"), print).start()


def test_a_process_loads_nothing_of_roles_that_it_may_not_have():
    command = [sys.executable, "-c", LOADED]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
