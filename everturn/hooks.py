"""Hooks: commands of a person's that the runtime runs at a point of an agent's life."""

import hashlib
from collections.abc import Sequence
from functools import cached_property

from pydantic import AliasChoices, ConfigDict, Field, field_validator

from everturn.messages import Frozen

HOOK_SECONDS = 30.0


class Hook(Frozen):
    """A program and its arguments, or a text for `sh`, run in the working folder under the
    rules of `run_command`. After `timeout_seconds` it is ended."""

    command: tuple[str, ...] = Field(min_length=1)
    timeout_seconds: float = Field(default=HOOK_SECONDS, gt=0, le=600)

    @field_validator("command", mode="before")
    @classmethod
    def _text(cls, given: object) -> object:
        return ("sh", "-c", given) if isinstance(given, str) else given

    @field_validator("command")
    @classmethod
    def _runnable(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not given[0].strip() or any("\0" in part for part in given):
            raise ValueError("the command of a hook begins with a program, and has no NUL bytes")
        return given

    @cached_property
    def digest(self) -> str:
        """By which a session remembers that it has run the hook."""
        return hashlib.sha256("\0".join(self.command).encode("utf-8", "replace")).hexdigest()

    @property
    def shown(self) -> str:
        """The program alone: an argument may be a secret."""
        return self.command[0]


class Hooks(Frozen):
    """`agent_spawn`: run once a session, before the first step of the agent there; what they
    print is told to the model. `agentSpawn` is its name in kiro's files."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    agent_spawn: tuple[Hook, ...] = Field(
        default=(), validation_alias=AliasChoices("agent_spawn", "agentSpawn")
    )


def together(first: Hooks, second: Hooks) -> Hooks:
    """Those of `first`, then those of `second`, each once."""
    return Hooks(agent_spawn=_once((*first.agent_spawn, *second.agent_spawn)))


def _once(hooks: Sequence[Hook]) -> tuple[Hook, ...]:
    return tuple({hook.digest: hook for hook in hooks}.values())
