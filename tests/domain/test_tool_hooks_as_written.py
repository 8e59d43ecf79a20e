"""Hooks beside tool calls as people write them."""

import pytest
from pydantic import ValidationError

from everturn.agents import Agent, AgentSpec, ToolSpec
from everturn.hooks import Hook, Hooks, ToolHook, of_tool, seconds_of, together

WRITES = ToolHook(command=("a",), matcher="write_*|edit_file")  # type: ignore[arg-type]


def test_a_matcher_is_patterns_of_names():
    assert WRITES.matcher == ("write_*", "edit_file")
    assert [WRITES.matches([name]) for name in ("write_file", "edit_file", "read_file")] == [
        True,
        True,
        False,
    ]
    assert ToolHook(command=("a",)).matches(["any"])
    assert WRITES.matches(["fs_write", "write_file"])


def test_a_tool_that_is_shown_by_another_name_is_met_by_its_own_too():
    shown = ToolSpec(name="fs_write", runs="write_file", description="", parameters={})
    hooks = Hooks(pre_tool_use=(WRITES,), post_tool_use=(WRITES,))
    spec = AgentSpec(agent=Agent(hooks=hooks), workspace="/", working_dir="/")
    assert (spec.hooks_before(shown), spec.hooks_after(shown)) == ((WRITES,), (WRITES,))


def test_of_two_hooks_that_run_the_same_in_one_folder_one_runs():
    again = ToolHook(command=("a",), matcher=("*",))
    elsewhere = ToolHook(command=("a",), cwd="src", timeout_seconds=5)
    assert of_tool([WRITES, again, elsewhere], ["edit_file"]) == (WRITES, elsewhere)
    assert seconds_of([WRITES, elsewhere]) == 35
    both = together(Hooks(pre_tool_use=(WRITES,)), Hooks(pre_tool_use=(again,)))
    # Which of them runs depends on the tool.
    assert both.pre_tool_use == (WRITES, again)
    ends = together(
        Hooks(post_tool_use=(again,), turn_end=(Hook(command=("b",)),)),
        Hooks(turn_end=(Hook(command=("b",)),)),
    )
    assert (ends.post_tool_use, ends.turn_end) == ((again,), (Hook(command=("b",)),))


def test_the_names_of_kiros_files_and_of_the_moments_themselves_are_understood():
    ours = Hooks(pre_tool_use=(WRITES,), post_tool_use=(WRITES,), turn_end=(Hook(command=("b",)),))
    given = {"matcher": "write_*|edit_file", "command": ["a"]}
    for names in (("preToolUse", "postToolUse"), ("PreToolUse", "PostToolUse")):
        found = Hooks.model_validate({name: [given] for name in names})
        assert (found.pre_tool_use, found.post_tool_use) == (ours.pre_tool_use, ours.post_tool_use)
    assert Hooks.model_validate_json(ours.model_dump_json()).all == ours.all


@pytest.mark.parametrize("cwd", ["/etc", "../up", "a/../../b", "a\0b"])
def test_a_hook_runs_nowhere_but_below_the_working_folder(cwd: str):
    with pytest.raises(ValidationError, match="a folder below the working folder"):
        Hook(command=("a",), cwd=cwd)


def test_a_hook_that_runs_after_a_call_blocks_nothing():
    with pytest.raises(ValidationError, match="block before a call only"):
        Hooks(post_tool_use=(ToolHook(command=("a",), on_error="block"),))
