"""Tools that are sent only where there is something for them to work on."""

import json

import pytest
from harness import Bench, says
from plays import Play, play, tools_of

from everturn_activities.builtin import CODE, KNOWLEDGE
from everturn_activities.code.presence import ENTRIES_MAX, may_hold_code
from everturn_activities.store import Assignment
from everturn_activities.workspaces import Workspaces

WRITES = [
    {
        "calls": [
            {"name": "write_file", "arguments": {"path": "main.py", "content": "def f(): ...\n"}}
        ]
    },
    says("Written."),
]
HELLO = [says("Hello.")]


def offered(played: Play) -> list[set[str]]:
    """Which of the two each request had."""
    return [{CODE, KNOWLEDGE} & {*tools_of(request)} for request in played.requests]


async def test_a_session_keeps_the_tools_that_it_began_with_byte_for_byte(made: Bench) -> None:
    """B21: what stands first in a request is the same, or no provider keeps what follows."""
    files = {"notes.txt": "Buy tea."}
    first = await play(made, "Write.", replies=WRITES, files=files)
    # Another worker, and code in the folder by now.
    second = await play(made, "Hello.", replies=HELLO)
    # Any repetition of a call too: a slow machine makes some.
    assert not any(offered(first))
    assert json.dumps(second.requests[0]["tools"]) == json.dumps(first.requests[0]["tools"])
    another = await play(made, "Hello.", replies=HELLO, session="s2")
    assert offered(another) == [{CODE}]


async def test_knowledge_that_a_person_adds_can_be_searched_from_the_next_turn_on(
    made: Bench,
) -> None:
    files = {"notes.txt": "Buy tea."}
    before = await play(made, "Hello.", replies=HELLO, files=files)
    folder, workspace = made.workspace, str(made.workspace)
    await made.runtime.library.add(made.tenant, workspace, "notes", str(folder))
    after = await play(made, "Hello.", replies=HELLO)
    await made.runtime.library.remove(made.tenant, workspace, "notes")
    still = await play(made, "Hello.", replies=HELLO)
    assert [*offered(before), *offered(after), *offered(still)] == [set(), {KNOWLEDGE}, {KNOWLEDGE}]


async def test_an_agent_whose_file_names_a_tool_has_it_in_any_case(made: Bench) -> None:
    files = {
        "notes.txt": "Buy tea.",
        "agents/finder.md": "---\ntools: [read_file, code]\n---\nFind things.\n",
    }
    played = await play(made, ("finder", "Hello."), replies=HELLO, files=files)
    assert tools_of(played.requests[0]) == ["read_file", "code"]


async def test_bundled_skills_are_followed_by_default_where_a_person_asks_for_one(
    made: Bench,
) -> None:
    """B37: by default a model is not told of them with each request, nor sent their tool."""
    played = await play(made, "Hello.", replies=HELLO, files={"notes.txt": "Buy tea."})
    assert "code-review" not in played.system
    folder = str(made.workspace)
    asked = Assignment("default", None, folder, folder, pinned=None)
    workspaces = Workspaces(services=made.runtime.services)
    assert workspaces.spec(asked).tool("skill") is None
    (made.workspace / "skills").mkdir()
    assert workspaces.spec(asked).tool("skill") is None
    (made.workspace / "skills" / "greet.md").write_text("Greet.")
    assert workspaces.spec(asked).tool("skill") is not None
    # boxagnts tells its model of those five.
    told = await play(made, "Hello.", replies=HELLO, profile="boxagnts", session="s2")
    assert "code-review" in told.system


@pytest.mark.parametrize(
    ("files", "holds"),
    [
        ([], True),  # what is to be written there may be code
        (["everturn.toml", "tools/words.py"], True),
        (["everturn.toml", "tools/words.py", "notes.txt"], False),
        (["src/deep/er/main.RS", "notes.txt"], True),
        (["node_modules/x/index.js", ".venv/x.py", "notes.txt"], False),
    ],
)
def test_a_folder_may_hold_code_where_it_does_or_where_it_holds_nothing_yet(
    tmp_path, files, holds
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    aside = (tmp_path / "everturn.toml", tmp_path / "tools")
    assert may_hold_code(tmp_path, aside) is holds


def test_a_link_to_a_folder_of_code_makes_no_folder_of_code(tmp_path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "linked").symlink_to(tmp_path / "code")
    assert not may_hold_code(tmp_path / "notes")


def test_only_the_first_entries_of_a_huge_folder_are_looked_at(tmp_path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path)
    for number in range(ENTRIES_MAX):
        (tmp_path / f"{number}.txt").touch()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "main.py").touch()
    assert not may_hold_code(tmp_path)
