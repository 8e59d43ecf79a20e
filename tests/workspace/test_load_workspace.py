"""A workspace is loaded from its folder, and what is wrong with it is told in one sentence."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.agents import DEFAULT_PROMPT
from everturn.errors import EverturnError, UnknownAgent, WorkspaceError
from everturn.skills import SkillRoot
from everturn_activities.workspace import load, protected_paths

Write = Callable[[str, str], Path]

TOOL = """
from everturn import tool

@tool(effect="pure", quick=True)
def {name}(a: int) -> int:
    \"\"\"Answer {answer}.\"\"\"
    return {answer}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    (path / "everturn.toml").touch()
    return path


@pytest.fixture
def write(root: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = root / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return path

    return write


def wrong(root: Path) -> str:
    """The error of loading the workspace and its default agent, without the folder's path."""
    with pytest.raises(EverturnError) as raised:
        load(root).spec()
    text = str(raised.value)
    assert "\n" not in text
    return text.replace(str(root), "ROOT")


def test_an_empty_settings_file_gives_the_default_agent_with_all_built_in_tools(root):
    spec = load(root).spec("default")

    assert spec.agent.name == "default"
    assert spec.agent.prompt == DEFAULT_PROMPT
    assert [tool.name for tool in spec.tools] == [
        "read_file",
        "list_files",
        "glob",
        "grep",
        "write_file",
        "edit_file",
        "run_command",
        "web_fetch",
        "read_more",
        "todo",
        "ask_user",
        "skill",
        "code",
        "knowledge_query",
        "delegate",
        "cron",
        "memory_save",
        "memory_load",
        "memory_delete",
    ]
    assert spec.workspace == spec.working_dir == str(root)


def test_an_agent_takes_from_its_file_then_from_the_settings(root, write):
    write(
        "everturn.toml",
        '[model]\nname = "openai/a"\nbase_url = "http://127.0.0.1:1/v1"\ntemperature = 0.5\n',
    )
    write(
        "agents/reviewer.md",
        "---\ndescription: 'Reviews: all'\ntemperature: 0\ntools: [read_file]\nsteps_max: 7\n"
        "---\n\nReview it.\n",
    )

    spec = load(root).spec("reviewer")

    assert spec.agent.model == "openai/a"
    assert spec.agent.base_url == "http://127.0.0.1:1/v1"
    assert spec.agent.temperature == 0
    assert (spec.agent.prompt, spec.agent.steps_max) == ("Review it.", 7)
    assert [tool.name for tool in spec.tools] == ["read_file"]
    assert load(root).spec("reviewer", "openai/b").agent.model == "openai/b"


def test_the_key_of_one_endpoint_is_not_inherited_by_another(root, write):
    write("everturn.toml", '[model]\nbase_url = "http://a/v1"\napi_key_variable = "A_KEY"\n')
    write("agents/same.md", "Work.\n")
    write("agents/other.md", "---\nbase_url: http://b/v1\n---\nWork.\n")
    write("agents/own.md", "---\nbase_url: http://b/v1\napi_key_variable: B_KEY\n---\nWork.\n")

    named = {name: load(root).spec(name).agent for name in ("same", "other", "own")}

    assert {name: agent.api_key_variable for name, agent in named.items()} == {
        "same": "A_KEY",
        "other": None,
        "own": "B_KEY",
    }


def test_the_key_of_one_provider_is_not_used_for_another(root, write):
    write("everturn.toml", '[model]\nname = "groq/a"\napi_key_variable = "GROQ"\n')
    write("agents/plain.md", "---\nfallback_models: [groq/b, openai/c]\n---\nWork.\n")
    write("agents/other.md", "---\nmodel: openai/c\n---\nWork.\n")

    plain = load(root).spec("plain").agent
    assert [one.api_key_variable for one in plain.candidates] == ["GROQ", "GROQ", None]
    assert load(root).spec("plain", "openai/c").agent.api_key_variable is None
    assert load(root).spec("other").agent.api_key_variable is None


@pytest.mark.parametrize(
    "text", ["openai/b, openai/c", "[openai/b, openai/c]", "[openai/b, {model: openai/c}]"]
)
def test_an_agent_names_who_answers_when_its_model_cannot(root, write, text):
    write(
        "agents/default.md", f"---\nbase_url: http://here/v1\nfallback_models: {text}\n---\nGo.\n"
    )

    own, named, last = load(root).spec().agent.candidates

    assert own.base_url == named.base_url == "http://here/v1"
    assert (named.model, last.model) == ("openai/b", "openai/c")
    assert last.base_url == (None if "model:" in text else "http://here/v1")


def test_an_agent_may_be_a_folder_of_settings_and_prompt(root, write):
    write("agents/writer/config.toml", 'model = "ollama/x"\ntool_role = false\n')
    write("agents/writer/agent.md", "Write it.\n")

    agent = load(root).spec("writer").agent

    assert (agent.name, agent.model, agent.tool_role) == ("writer", "ollama/x", False)
    assert agent.prompt == "Write it."


def test_the_settings_choose_which_agent_is_the_default(root, write):
    write("everturn.toml", '[agent]\ndefault = "reviewer"\n')
    write("agents/reviewer.md", "Review it.")

    assert load(root).spec().agent.name == "reviewer"
    assert load(root).spec("default").agent.name == "reviewer"


def test_tools_are_loaded_from_files_and_excluded_by_the_settings(root, write):
    write("everturn.toml", '[tools]\nexclude = ["run_command"]\n')
    write("tools/first.py", TOOL.format(name="first", answer=1))
    write("tools/second.py", TOOL.format(name="second", answer=2))

    workspace = load(root)

    names = [tool.name for tool in workspace.spec().tools]
    assert names[-2:] == ["first", "second"]
    assert "run_command" not in names
    spec = workspace.spec().tool("second")
    assert spec is not None
    assert (spec.source, spec.effect, spec.quick) == ("tools/second.py", "pure", True)
    second = workspace.tool("second")
    assert second is not None
    assert second.run(a=0) == 2
    assert workspace.tool("third") is None


def test_an_unchanged_workspace_is_not_loaded_again_and_a_changed_tool_is(root, write, tmp_path):
    # Running the file a second time would fail.
    count = f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n"
    write("tools/first.py", TOOL.format(name="first", answer=1) + count)

    first = load(root)
    again = load(root)
    # A change of one file does not run the others anew.
    write("agents/reviewer.md", "Review it.")
    other = load(root)

    assert again is first
    assert other is not first
    assert (tmp_path / "ran").is_dir()

    write("tools/first.py", TOOL.format(name="first", answer=2))
    changed = load(root).tool("first")

    assert changed is not None
    assert changed.run(a=0) == 2
    # Nothing is written beside the code, and nothing there would be read.
    assert os.listdir(root / "tools") == ["first.py"]


def test_types_that_a_tool_file_defines_are_found_by_its_own_annotations(root, write):
    write(
        "tools/orders.py",
        "from __future__ import annotations\n"
        "from pydantic import BaseModel\nfrom everturn import tool\n\n"
        "class Order(BaseModel):\n    id: int\n\n"
        "@tool\ndef ship(order: Order) -> int:\n    return order.id\n",
    )

    ship = load(root).tool("ship")

    assert ship is not None
    assert ship.convert is not None
    assert ship.run(**ship.convert({"order": {"id": 7}})) == 7


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x", "ROOT/everturn.toml is not valid TOML: Expected '=' after a key in a key/value"
              " pair, at end of document; mend it there."),
        ("a = 1\nb = = 2\n", "ROOT/everturn.toml is not valid TOML: Invalid value, at line 2,"
                             " column 5; mend it there."),
        ("\nworkin_dir = '.'", "ROOT/everturn.toml line 2: unknown key 'workin_dir' (did you mean"
                               " 'working_dir'?); the keys there are working_dir, agent, model,"
                               " tools, network, project, memory, knowledge,"
                               " hooks, folders, secrets, search, native_tools,"
                               " mcp."),
        ("[model]\ntemprature = 1", "ROOT/everturn.toml line 2: unknown key 'model.temprature'"
                                    " (did you mean 'temperature'?); the keys there are name,"
                                    " base_url, api_key_variable, temperature, top_p, top_k,"
                                    " repeat_penalty, tokens_max."),
        ("[model]\napi_key_variable = 'sk-x'", "ROOT/everturn.toml line 2: model.api_key_variable"
                                               " is not shown here, and the string should match"
                                               " pattern '^[A-Z][A-Z0-9_]*$'; mend it."),
        ("[modle]\nname = 'x'", "ROOT/everturn.toml line 1: unknown key 'modle' (did you mean"
                                " 'model'?); the keys there are working_dir, agent, model, tools,"
                                " network, project, memory, knowledge, hooks, folders, secrets,"
                                " search, native_tools, mcp."),
        ("[model]\ntokens_max = 0", "ROOT/everturn.toml line 2: model.tokens_max is 0, and the"
                                    " input should be greater than or equal to 1; mend it."),
        ("working_dir = 'gone'", "ROOT/everturn.toml sets working_dir to 'gone', and ROOT/gone is"
                                 " no folder; create it, or name another."),
        ("[tools]\nexclude = ['rd_file']", "ROOT/everturn.toml excludes tool 'rd_file', which does"
                                           " not exist (did you mean 'read_file'?); mend [tools]"
                                           " exclude."),
        ("[agent]\ndefault = 'defalt'", "There is no agent 'defalt' in ROOT (did you mean"
                                        " 'default'?); its agents are build, default, explore,"
                                        " plan."),
    ],
)  # fmt: skip
def test_wrong_settings_are_named_with_their_line_and_the_mend(root, write, text, error):
    write("everturn.toml", text)
    assert wrong(root) == error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("---\ntools: [rd_file]\n---\n", "names tool 'rd_file', which does not exist (did you mean"
                                         " 'read_file'?); mend its list of tools."),
        ("---\nmodel: a\ndescription: b: c\n---\n", " line 3 is not valid YAML: mapping values are"
            " not allowed in this context; mend it, and put values with a colon in quotes."),
        ("---\nmodel: a\n", "begins a front matter in line 1 that no line '---' ends; add one."),
        ("---\n- a\n---\n", "line 2 must be keys and values, such as 'name: value'."),
        ("---\nmodel: a\nsteps_max: many\n---\n", "line 3: steps_max is 'many', and the input"
            " should be a valid integer, unable to parse string as an integer; mend it."),
        ("---\nfallback_models: [5]\n---\n", "line 2: fallback_models is 5, and the input should"
            " be a valid dictionary or instance of Candidate; mend it."),
        ("---\nfallback_models: [{model: a, url: b}]\n---\n", "line 2: unknown key"
            " 'fallback_models.url'; the keys there are model, here, base_url, api_key_variable."),
        ("---\nname: other\n---\n", "line 2 calls its agent 'other', and by its file it is"
                                    " 'default'; make that its title, leave it out, or rename the"
                                    " file."),
    ],
)  # fmt: skip
def test_a_wrong_agent_is_named_with_its_line_and_the_mend(root, write, text, error):
    write("agents/default.md", text)

    message = wrong(root)

    assert message.startswith("ROOT/agents/default.md")
    assert message.endswith(error)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\nimport pandass\n", "line 2 cannot be loaded: ModuleNotFoundError: No module named"
                               " 'pandass'; install what it imports."),
        ("x = 1\ny =\n", "line 2 cannot be loaded: SyntaxError: invalid syntax; mend the file."),
        ("def f():\n    return 1 / 0\nf()\n", "line 2 cannot be loaded: ZeroDivisionError:"
                                              " division by zero; mend the file."),
        ("raise SystemExit(1)", "line 1 cannot be loaded: SystemExit: 1; mend the file."),
        ("raise KeyboardInterrupt", "line 1 cannot be loaded: KeyboardInterrupt; mend the file."),
        ("raise GeneratorExit", "line 1 cannot be loaded: GeneratorExit; mend the file."),
        (TOOL.format(name="read_file", answer=1), "defines a tool 'read_file', which is the name"
                                                  " of a built-in one; give it another name."),
        (TOOL.format(name="other", answer=1), "defines a tool 'other', and so does tools/a.py;"
                                              " rename one of them."),
    ],
)  # fmt: skip
def test_a_tool_file_that_cannot_be_loaded_is_named_with_its_line(root, write, text, error):
    write("tools/a.py", TOOL.format(name="other", answer=1))
    write("tools/b.py", text)

    message = wrong(root)

    assert message == f"ROOT/tools/b.py {error}"


def test_a_tool_file_that_is_no_utf8_is_named_with_its_line(root, write):
    write("tools/b.py", "").write_bytes(b"x = '\xff'\n")
    assert wrong(root).startswith("ROOT/tools/b.py line 1 cannot be loaded: SyntaxError")


def test_a_missing_workspace_tells_how_to_create_one(root, tmp_path):
    gone = tmp_path / "gone"
    assert wrong(gone) == "There is no workspace folder ROOT; create one by: everturn init ROOT"
    (root / "everturn.toml").unlink()
    assert wrong(root) == (
        "ROOT is no workspace, because it has no everturn.toml; create that by: everturn init ROOT"
    )


def test_a_file_that_is_no_utf8_is_named_with_its_line(root):
    (root / "everturn.toml").write_bytes(b"[model]\nname = '\xff'\n")
    assert wrong(root) == ("ROOT/everturn.toml line 2 is not valid UTF-8; save the file as UTF-8.")


def test_an_unknown_agent_is_named_with_its_neighbours(root, write):
    write("agents/reviewer.md", "Review it.")
    with pytest.raises(UnknownAgent, match=r"no agent 'reviwer' .*did you mean 'reviewer'"):
        load(root).spec("reviwer")
    with pytest.raises(UnknownAgent, match=r"no agent '\.\./reviewer'"):
        load(root).spec("../reviewer")


def test_an_agent_that_is_defined_twice_is_refused(root, write):
    write("agents/twice.md", "One.")
    write("agents/twice/agent.md", "Two.")
    assert "Agent 'twice' is defined twice" in wrong(root)


@pytest.mark.parametrize("name", ["", "everturn.toml", "tools", "tools/a.py", "agents/default.md"])
def test_what_every_user_may_write_is_never_loaded(root, write, name):
    write("tools/a.py", "")
    write("agents/default.md", "Hello.")
    (root / name).chmod(0o777)

    message = wrong(root)

    assert message.startswith(f"{'/'.join(('ROOT', name)).rstrip('/')} may be written by every")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", "everturn.toml", "tools", "tools/a.py"])
def test_what_another_user_owns_is_never_loaded(root, write, name):
    write("tools/a.py", "raise SystemExit('ran')")
    os.chown(root / name, 12345, 12345)

    message = wrong(root)

    assert "belongs to user 12345, and this process runs as user 0" in message


def test_protected_paths_are_those_that_configure_the_runtime(root, tmp_path):
    project = tmp_path / "project"

    alone = protected_paths(root)
    both = protected_paths(root, project)

    assert {path.relative_to(root).as_posix() for path in alone} == {
        *("everturn.toml", "agents", "tools", "skills", "prompts", "profiles", "hooks"),
        *("context", ".git/hooks", ".git/config", ".mcp.json"),
    }
    # A project that is only worked on may have a folder `tools` of its own.
    assert set(both) - set(alone) == {
        project / ".git/hooks",
        project / ".git/config",
        project / ".mcp.json",
    }


def test_a_workspace_error_is_a_usage_error_of_ours():
    assert issubclass(WorkspaceError, EverturnError)


def test_tools_may_not_change_the_skills_that_an_agents_profile_takes_from_the_workspace(root):
    roots = (SkillRoot(path=".kiro/skills/*/SKILL.md"), SkillRoot(path="~/.kiro/skills"))
    more = set(protected_paths(root, None, roots)) - set(protected_paths(root))
    assert more == {root / ".kiro" / "skills"}


def test_links_in_a_circle_are_named(root, write):
    (root / "circle").symlink_to("circle")
    write("everturn.toml", "working_dir = 'circle'")
    mend = "circle is a symbolic link that leads back to itself; remove it, or name another."
    assert wrong(root) == f"ROOT/{mend}"
    write("everturn.toml", "")
    write("agents/default.md", "---\nworking_directory: circle\n---\n")
    assert wrong(root) == f"ROOT/{mend}"
    with pytest.raises(WorkspaceError, match="leads back to itself"):
        load(root / "circle")


def test_a_pipe_in_the_place_of_an_agent_is_never_waited_for(root, write):
    write("agents/other.md", "Work.").unlink()
    os.mkfifo(root / "agents" / "default.md")
    assert wrong(root) == "ROOT/agents/default.md is no file that could be read; remove it."


@pytest.mark.parametrize("name", ["plan.md", "plan.py", "plan/agent.md", "plan/config.toml"])
def test_an_agent_whose_file_is_a_link_to_nowhere_is_no_agent_without_a_file(root, write, name):
    write("agents/plan/agent.md", "Plan.").unlink() if "/" in name else write("agents/x.md", "X.")
    if name.endswith("toml"):
        write("agents/plan/agent.md", "Plan.")
    (root / "agents" / name).symlink_to("gone")
    with pytest.raises(WorkspaceError, match=rf"agents/{name} cannot be read: No such file"):
        load(root).spec("plan")


def test_a_server_that_remembers_a_session_cannot_change_within_it(root, write):
    server = '[mcp.servers.a]\ncommand = "cat"\nstateful = true\n'
    write("everturn.toml", server)
    assert load(root).settings.mcp.servers["a"].stateful
    write("everturn.toml", f'[mcp]\nlifecycle = "hot"\n{server}')
    with pytest.raises(WorkspaceError, match="server a is stateful, and lifecycle is hot"):
        load(root)


def test_a_profile_whose_servers_come_and_go_has_none_that_is_stateful(root, write):
    server = '[mcp.servers.a]\ncommand = "cat"\nstateful = true\n'
    write("everturn.toml", f'[agent]\nprofile = "quick"\n{server}')
    recipe = '[[recipe.layers]]\nid = "prompt"\nsource = "agent_prompt"\n'
    write("profiles/quick.toml", f'[mcp]\nlifecycle = "hot"\n{recipe}')
    write("agents/without.md", "---\nmcp_servers: []\n---\nWork.\n")
    workspace = load(root)
    with pytest.raises(WorkspaceError) as refused:
        workspace.spec("default", None, root)
    assert str(refused.value) == (
        "Server a of everturn.toml is stateful, and the lifecycle of servers in profile quick is"
        " hot: one that remembers what a session did cannot change within it. Write lifecycle ="
        ' "frozen" into [mcp], or let agent default not name it in mcp_servers.'
    )
    assert workspace.spec("without", None, root).servers == ()
