"""The files in which a workspace defines its agents."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everturn.agents import Agent
from everturn.errors import WorkspaceError
from everturn.presets import PRESETS
from everturn_activities.code_files import names_of
from everturn_activities.definitions import place_of, read_front_matter, read_toml
from everturn_activities.trust import read_text, require_trusted

OTHER_NAMES = {
    "allowedTools": "allowed_tools",
    "mcpServers": "mcp_servers",
    "max_steps": "steps_max",
    "max_tokens": "tokens_max",
    "max_turns": "steps_max",
    "system_prompt": "prompt",
}
"""What other systems call keys of ours; their files may stay as they are."""

_LISTS = ("tools", "allowed_tools", "mcp_servers", "resources", "fallback_models")
_PROMPT = "prompt"
_SAMPLING = "sampling"
"""A table for keys that say how a model chooses its words; they may stand outside of it too."""

_SAMPLING_TABLE = re.compile(r"^[ \t]*\[[ \t]*sampling[ \t]*\][ \t]*$", re.MULTILINE)
_SAMPLED = ("temperature", "top_p", "top_k", "repeat_penalty", "tokens_max")


@dataclass(frozen=True)
class Definition:
    """What is said of an agent, the file that says it, and its text, which has the lines."""

    path: Path
    given: dict[str, Any]
    text: str = ""
    is_preset: bool = False


def agent_names(root: Path) -> tuple[str, ...]:
    """Agents are `agents/<name>.md`, `agents/<name>.py`, or `agents/<name>/` with `config.toml`
    and `agent.md`."""
    folder = root / "agents"
    defined: dict[str, Path] = {}
    for path in sorted([*folder.glob("*.md"), *folder.glob("*.py"), *folder.glob("*/agent.md")]):
        place = path.parent if path.name == "agent.md" and path.parent != folder else path
        name = place.name if place != path else path.stem
        if name in defined:
            raise WorkspaceError(
                f"Agent {name!r} is defined twice, by {defined[name]} and by {place};"
                " remove one of them."
            )
        defined[name] = place
    return tuple(sorted(defined))


def read_agent(root: Path, name: str) -> Definition:
    """The agent's own file, else the preset of that name."""
    path = root / "agents" / f"{name}.md"
    folder = root / "agents" / name
    code = root / "agents" / f"{name}.py"
    # A link that leads nowhere is told, and not taken for an agent without a file.
    if os.path.lexists(code):
        return _defined_in(code, name)
    if os.path.lexists(path):
        given, prompt, text = read_front_matter(path)
    elif os.path.lexists(folder / "agent.md"):
        path = folder / "config.toml"
        given, text = read_toml(path) if os.path.lexists(path) else ({}, "")
        prompt = read_text(folder / "agent.md").strip()
        if given.get("name", name) != name and "title" not in given:
            given["title"] = given.pop("name")
    else:
        return Definition(path, {**PRESETS.get(name, {}), "name": name}, is_preset=True)
    given, text = _renamed(given, text, path)
    if _PROMPT in given and prompt:
        raise WorkspaceError(
            f"{path} has a key 'prompt', and the text below is the prompt; leave the key out."
        )
    if prompt:
        given[_PROMPT] = prompt
    for key in _LISTS:
        if isinstance(given.get(key), str):
            given[key] = [part.strip() for part in given[key].split(",")]
    if given.setdefault("name", name) != name:
        raise WorkspaceError(
            f"{place_of(path, text, ['name'])} calls its agent {given['name']!r}, and by its file"
            f" it is {name!r}; make that its title, leave it out, or rename the file."
        )
    return Definition(path, given, text)


def _defined_in(path: Path, name: str) -> Definition:
    """What the one `Agent` of a Python file says; what it leaves out is inherited as anywhere."""
    require_trusted(path.parent)
    agents = {id(one): one for one in names_of(path).values() if isinstance(one, Agent)}
    if len(agents) != 1:
        raise WorkspaceError(
            f"{path} defines {len(agents) or 'no'} agents; it must define one, such as:"
            ' agent = Agent(prompt="...").'
        )
    (agent,) = agents.values()
    given = {key: getattr(agent, key) for key in agent.model_fields_set}
    if given.setdefault("name", name) != name:
        raise WorkspaceError(
            f"{path} calls its agent {agent.name!r}, and by its file it is {name!r}; make that"
            " its title, leave it out, or rename the file."
        )
    return Definition(path, given)


def _renamed(given: dict[str, Any], text: str, path: Path) -> tuple[dict[str, Any], str]:
    """`given` under our own names, and its text under them too: there keys are looked up."""
    sampling = given.get(_SAMPLING)
    if isinstance(sampling, dict):
        for key in sampling:
            if OTHER_NAMES.get(key, key) not in _SAMPLED:
                raise WorkspaceError(
                    f"{place_of(path, text, [_SAMPLING, key])}: {key!r} is none of the keys of"
                    f" sampling, which are {', '.join(_SAMPLED)}."
                )
        given = {key: value for key, value in given.items() if key != _SAMPLING}
        given = _joined(given, sampling, text, path)
        text = _SAMPLING_TABLE.sub("", text)
    for other, ours in OTHER_NAMES.items():
        if other in given:
            rest = {key: value for key, value in given.items() if key != other}
            given = _joined(rest, {ours: given[other]}, text, path)
            text = re.sub(rf"(?m)^([ \t]*){other}\b", rf"\1{ours}", text)
    return given, text


def _joined(given: dict[str, Any], more: dict[str, Any], text: str, path: Path) -> dict[str, Any]:
    for key in more:
        if key in given:
            raise WorkspaceError(
                f"{place_of(path, text, [key])} says {key!r} twice; leave one of them out."
            )
    return {**given, **more}
