"""Hooks as people write them."""

import pytest
from pydantic import ValidationError

from everturn.hooks import Hook, Hooks, together


def test_a_hook_is_a_program_with_arguments_or_a_text_for_sh():
    assert Hook(command=["git", "status"]).command == ("git", "status")
    assert Hook(command="git status | head").command == ("sh", "-c", "git status | head")


def test_kiros_name_for_the_hooks_of_a_spawn_is_understood():
    ours = Hooks(agent_spawn=[{"command": "git status"}])
    assert Hooks.model_validate({"agentSpawn": [{"command": "git status"}]}) == ours
    assert Hooks.model_validate_json(ours.model_dump_json()) == ours


@pytest.mark.parametrize("command", [[], [" "], ["a\0b"]])
def test_a_hook_without_a_program_is_refused(command):
    with pytest.raises(ValidationError):
        Hook(command=command)


def test_a_hook_that_two_places_name_is_run_once():
    one, two = Hook(command=["a"]), Hook(command=["b"])
    both = together(Hooks(agent_spawn=(one, two)), Hooks(agent_spawn=(two,)))
    assert both.agent_spawn == (one, two)
