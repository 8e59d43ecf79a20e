"""Hooks: commands of a person's that the runtime runs at a point of an agent's life."""

import hashlib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal, TypeVar

from pydantic import AliasChoices, ConfigDict, Field, field_validator

from everturn.messages import Frozen

HOOK_SECONDS = 30.0
BLOCKS = 2
"""The exit code by which a hook before a tool call keeps it from running."""

HookMoment = Literal["PreToolUse", "PostToolUse", "TurnEnd"]


class Hook(Frozen):
    """A program and its arguments, or a text for `sh`, run in the working folder, or in `cwd`
    below it, under the rules of `run_command`. After `timeout_seconds` it is ended."""

    command: tuple[str, ...] = Field(min_length=1)
    timeout_seconds: float = Field(default=HOOK_SECONDS, gt=0, le=600)
    cwd: str | None = None

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

    @field_validator("cwd")
    @classmethod
    def _below(cls, given: str | None) -> str | None:
        path = PurePosixPath(given or "")
        if path.is_absolute() or ".." in path.parts or "\0" in str(path):
            raise ValueError("the cwd of a hook is a folder below the working folder")
        return given

    @cached_property
    def digest(self) -> str:
        """By which a session remembers that it has run the hook."""
        said = (*self.command, *(() if self.cwd is None else ("", self.cwd)))
        return hashlib.sha256("\0".join(said).encode("utf-8", "replace")).hexdigest()

    @property
    def line(self) -> tuple[str, ...]:
        """What is run."""
        if self.cwd is None:
            return self.command
        # An exit code of its own: `cd` that fails must not read as a verdict.
        return ("sh", "-c", 'cd -- "$0" || exit 126; exec "$@"', self.cwd, *self.command)

    @property
    def shown(self) -> str:
        """The program alone: an argument may be a secret."""
        return self.command[0]


class ToolHook(Hook):
    """A hook beside tool calls: of tools whose name one of the patterns of `matcher` fits. What
    becomes of a call whose hook says neither yes nor no is `on_error`: it ended with a code
    other than 0 and 2, or not at all."""

    matcher: tuple[str, ...] = Field(default=("*",), min_length=1)
    on_error: Literal["pass", "block"] = "pass"

    @field_validator("matcher", mode="before")
    @classmethod
    def _patterns(cls, given: object) -> object:
        return [part.strip() for part in given.split("|")] if isinstance(given, str) else given

    def matches(self, names: Iterable[str]) -> bool:
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.matcher)


class Hooks(Frozen):
    """`agent_spawn`: run once a session, before the first step of the agent there; what they
    print is told to the model. `pre_tool_use`: before each call of a tool, and may keep it from
    running. `post_tool_use`: after it, and may leave a note that the model reads. `turn_end`:
    after a turn's outcome is recorded. `agentSpawn` and so on are their names in kiro's files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    agent_spawn: tuple[Hook, ...] = Field(
        default=(), validation_alias=AliasChoices("agent_spawn", "agentSpawn", "AgentSpawn")
    )
    pre_tool_use: tuple[ToolHook, ...] = Field(
        default=(), validation_alias=AliasChoices("pre_tool_use", "preToolUse", "PreToolUse")
    )
    post_tool_use: tuple[ToolHook, ...] = Field(
        default=(), validation_alias=AliasChoices("post_tool_use", "postToolUse", "PostToolUse")
    )
    turn_end: tuple[Hook, ...] = Field(
        default=(), validation_alias=AliasChoices("turn_end", "turnEnd", "TurnEnd")
    )

    @field_validator("post_tool_use")
    @classmethod
    def _too_late(cls, given: tuple[ToolHook, ...]) -> tuple[ToolHook, ...]:
        if any(hook.on_error == "block" for hook in given):
            raise ValueError("on_error can block before a call only, and these hooks run after it")
        return given

    @cached_property
    def all(self) -> tuple[Hook, ...]:
        return (*self.agent_spawn, *self.pre_tool_use, *self.post_tool_use, *self.turn_end)


_Hook = TypeVar("_Hook", bound=Hook)


def together(first: Hooks, second: Hooks) -> Hooks:
    """Those of `first`, then those of `second`, each once."""
    return Hooks(
        agent_spawn=once((*first.agent_spawn, *second.agent_spawn)),
        pre_tool_use=(*first.pre_tool_use, *second.pre_tool_use),
        post_tool_use=(*first.post_tool_use, *second.post_tool_use),
        turn_end=once((*first.turn_end, *second.turn_end)),
    )


def once(hooks: Sequence[_Hook]) -> tuple[_Hook, ...]:
    """Each command once, where it stands first."""
    found: dict[str, _Hook] = {}
    for hook in hooks:
        found.setdefault(hook.digest, hook)
    return tuple(found.values())


def of_tool(hooks: Sequence[ToolHook], names: Iterable[str]) -> tuple[ToolHook, ...]:
    """Those that run beside a call of a tool of these names, each once, in their order."""
    known = tuple(names)
    return once([hook for hook in hooks if hook.matches(known)]) if hooks else ()


def seconds_of(hooks: Iterable[Hook]) -> float:
    """How long they may take at most, one after the other."""
    return sum(hook.timeout_seconds for hook in hooks)
