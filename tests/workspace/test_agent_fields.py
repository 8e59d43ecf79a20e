"""Rows B2, B3, T12, T13, K30: what an agent's file can say, and the agents without one."""

from pathlib import Path

import pytest

from everturn.errors import WorkspaceError
from everturn.executors import ExecutorRules
from everturn_activities.workspace import executor_spec, load

PURE = '''
from everturn import tool

@tool(effect="pure")
def ask() -> str:
    """Ask."""
    return "."

@tool(effect="pure")
def response(text: str) -> str:
    """Answer."""
    return text
'''


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "everturn.toml").touch()
    return tmp_path


def define(workspace: Path, *lines: str) -> None:
    text = "\n".join(["---", *lines, "---", "Work."])
    (workspace / "agents/default.md").write_text(text)


def test_B3_the_presets_are_there_without_a_file_and_a_file_takes_their_place(workspace: Path):
    listed = load(workspace)
    found = {name: listed.spec(name).agent for name in listed.agents}

    assert set(found) == {"build", "plan", "explore", "default"}
    assert {name: (agent.access, agent.steps_max) for name, agent in found.items()} == {
        "build": ("full", 50),
        "plan": ("read-only", 20),
        "explore": ("search-only", 15),
        "default": ("full", 50),
    }

    (workspace / "agents/plan.md").write_text("---\nmodel: openai/a\n---\nPlan it.\n")
    agent = load(workspace).spec("plan").agent
    assert (agent.prompt, agent.model, agent.access) == ("Plan it.", "openai/a", "full")


def test_B2_an_agent_says_what_it_is_and_what_it_may(workspace: Path):
    define(
        workspace,
        *("description: Reviews.", "model: openai/a", "temperature: 0.5", "access: read-only"),
        *("visible: false", "max_turns: 7", "color: '#ff8800'", "title: The reviewer"),
    )

    agent = load(workspace).spec().agent

    assert (agent.description, agent.model, agent.temperature) == ("Reviews.", "openai/a", 0.5)
    assert (agent.access, agent.visible, agent.steps_max) == ("read-only", False, 7)
    assert (agent.color, agent.title, agent.prompt) == ("#ff8800", "The reviewer", "Work.")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("access: root", "line 2: access is 'root', and the input should be 'full', 'read-only' or"
                         " 'search-only'; mend it."),
        ("color: sky", "line 2: color is 'sky', and the string should match"),
        ("resources: [a.md]", "line 2: the resource 'a.md' begins with none of file:// and"
                              " skill://; mend it."),
        ("max_turns: 0", "line 2: steps_max is 0, and the input should be greater"),
        ("sampling: {top_q: 1}", "'top_q' is none of the keys of sampling, which are temperature,"
                                 " top_p, top_k, repeat_penalty, tokens_max."),
        ("sampling: {top_p: 0.5}\ntop_p: 0.4", "line 3 says 'top_p' twice; leave one of them out."),
        ("allowedTools: [read_fil]", "line 2 names tool 'read_fil', which does not exist (did you"
                                     " mean 'read_file'?); mend its list of allowed tools."),
        ("working_directory: gone", "gone is no folder; create it, or name another."),
    ],
)  # fmt: skip
def test_B2_a_wrong_field_is_refused_with_its_line_and_the_mend(
    workspace: Path, line: str, error: str
):
    define(workspace, line)
    with pytest.raises(WorkspaceError) as raised:
        load(workspace).spec()
    assert error in str(raised.value)


def test_T12_an_agent_is_a_folder_with_sampling_and_a_name_for_people(workspace: Path):
    folder = workspace / "agents/writer"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'name = "The Writer"\nmodel = "openai/a"\ntool_role = false\n\n[sampling]\n'
        "temperature = 0.2\ntop_p = 0.5\ntop_k = 20\nrepeat_penalty = 1.2\nmax_tokens = 99\n"
    )
    (folder / "agent.md").write_text("Write it.\n")

    agent = load(workspace).spec("writer").agent

    assert (agent.name, agent.title, agent.prompt) == ("writer", "The Writer", "Write it.")
    assert (agent.temperature, agent.top_p, agent.top_k) == (0.2, 0.5, 20)
    assert (agent.repeat_penalty, agent.tokens_max, agent.tool_role) == (1.2, 99, False)

    (folder / "config.toml").write_text("[sampling]\n\nmax_tokens = 0\n")
    with pytest.raises(WorkspaceError, match=r"config.toml line 3: tokens_max is 0"):
        load(workspace).spec("writer")


def test_a_file_wins_over_the_settings_and_those_over_the_profile(workspace: Path):
    define(workspace, "profile: kontekst", "top_k: 7")
    (workspace / "everturn.toml").write_text("[model]\ntop_p = 0.5\ntop_k = 6\n")

    agent = load(workspace).spec().agent

    assert (agent.top_k, agent.top_p, agent.repeat_penalty) == (7, 0.5, 1.1)
    assert (agent.model, agent.base_url) == (
        "gpt-oss-20b-Q4_K_M.gguf",
        "http://127.0.0.1:8080/v1",
    )


def test_an_endpoint_that_a_profile_names_is_for_its_own_model_only(workspace: Path):
    define(workspace, "profile: kontekst", "model: openai/a")
    assert load(workspace).spec().agent.base_url is None

    define(workspace, "profile: kontekst")
    (workspace / "everturn.toml").write_text('[model]\nname = "openai/b"\n')
    assert load(workspace).spec().agent.base_url is None


@pytest.mark.parametrize(
    ("access", "tools"),
    [
        ("read-only", ["read_file", "list_files", "ask", "response"]),
        ("search-only", ["read_file", "list_files", "response"]),
    ],
)
def test_B4_an_agent_sees_only_the_tools_that_its_access_allows(
    workspace: Path, access: str, tools: list[str]
):
    (workspace / "tools").mkdir()
    (workspace / "tools/own.py").write_text(PURE)
    define(workspace, f"access: {access}")

    spec = load(workspace).spec()

    # Tools of other modules may be added; what changes the world never is. Work may be handed
    # on, for an executor has no more access than its parent.
    assert set(tools) <= {tool.name for tool in spec.tools}
    assert {tool.name for tool in spec.tools if tool.effect != "pure"} == {"delegate"}
    assert {"write_file", "edit_file", "run_command"} <= set(spec.withheld)
    assert ("ask" in spec.withheld) == (access == "search-only")


def test_K30_a_strict_profile_shows_only_the_tools_that_are_allowed(workspace: Path):
    (workspace / "profiles").mkdir()
    text = '[recipe]\nlayers = [{id = "a", source = "text"}]\n'
    define(workspace, "profile: mine", "tools: [read_file, edit_file]", "allowedTools: read_file")

    def shown(profile: str) -> list[str]:
        (workspace / "profiles/mine.toml").write_text(profile)
        return [tool.name for tool in load(workspace).spec().tools]

    assert shown(text) == ["read_file", "edit_file"]
    assert shown("strict_allowed = true\n" + text) == ["read_file"]


def test_B22_an_agent_may_work_in_a_folder_of_its_own(workspace: Path):
    (workspace / "inner").mkdir()
    define(workspace, "working_directory: inner")
    assert load(workspace).spec().working_dir == str(workspace / "inner")


def test_what_an_agents_file_says_of_executors_stands_over_its_profiles(workspace: Path):
    define(workspace, "executors: {concurrent_max: 9}")
    executors = load(workspace).spec().executors
    assert (executors.concurrent_max, executors.depth_max) == (9, 2)

    define(workspace, "executors: {depth_max: 0}")
    assert load(workspace).spec().tool("delegate") is None

    define(workspace, "executors: {managed: true, depth_max: 0}")
    with pytest.raises(WorkspaceError) as refused:
        load(workspace).spec()
    assert str(refused.value).endswith(
        "default.md line 2: a manager hands all work on, and depth_max is 0; set it to 1 or more."
    )


def test_an_executor_has_neither_the_tools_nor_the_access_that_its_rules_withhold(workspace: Path):
    define(workspace, "executors: {depth_max: 1}")
    spec = load(workspace).spec()
    rules = ExecutorRules(level=1, minus_tools=("todo", "web_fetch"), access="read-only")

    executor = executor_spec(spec, rules)

    gone = {tool.name for tool in spec.tools} - {tool.name for tool in executor.tools}
    assert {"todo", "web_fetch", "delegate", "write_file", "run_command"} <= gone
    # Whose task ends has nothing to schedule, whatever its rules say.
    assert "cron" in gone - {*executor.withheld}
    # What its access withholds is told when it is called; the others it has never heard of.
    assert "write_file" in executor.withheld
    assert "todo" not in executor.withheld
    assert executor.agent.access == "read-only"
    assert executor.level == 1
