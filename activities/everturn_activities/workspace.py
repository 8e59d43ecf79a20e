"""The workspace: the folder with settings, agents and tools that turns run under."""

import functools
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from everturn.agents import DEFAULT_PROMPT, KEY_VARIABLE, Agent, AgentSpec, ToolSpec, answering
from everturn.errors import UnknownAgent, WorkspaceError
from everturn.messages import Frozen
from everturn.tools import RESPONSE, Tool
from everturn_activities.builtin import builtins
from everturn_activities.definitions import meant, read_front_matter, read_toml, validated
from everturn_activities.tool_files import load_tools
from everturn_activities.toolbox import broken_schema
from everturn_activities.trust import read_text, require_trusted

SETTINGS_FILE = "everturn.toml"
DEFAULT_AGENT = "default"

_CONFIGURATION = (
    *(SETTINGS_FILE, "agents", "tools", "skills", "prompts", "profiles", "hooks", "context"),
)
_FOREIGN_CONFIGURATION = (".git/hooks", ".git/config", ".mcp.json")


class AgentSettings(Frozen):
    """`default` names the agent of sessions that name none."""

    default: str = DEFAULT_AGENT


class ModelSettings(Frozen):
    """What agents use that do not say otherwise."""

    name: str | None = None
    base_url: str | None = None
    api_key_variable: str | None = Field(default=None, pattern=KEY_VARIABLE)
    temperature: float | None = Field(default=None, ge=0, le=2)
    tokens_max: int | None = Field(default=None, ge=1)


class ToolSettings(Frozen):
    """`exclude` names tools that no agent of this workspace gets."""

    exclude: tuple[str, ...] = ()


class WorkspaceSettings(Frozen):
    """The content of `everturn.toml`."""

    working_dir: str = "."
    agent: AgentSettings = AgentSettings()
    model: ModelSettings = ModelSettings()
    tools: ToolSettings = ToolSettings()


@dataclass(frozen=True)
class Workspace:
    """A workspace as it was when it was loaded.

    `agents` names those that have a file; `default` exists without one too. `specs` has
    the tools as models are told of them, excluded ones left out.
    """

    path: Path
    settings: WorkspaceSettings
    working_dir: Path
    agents: tuple[str, ...]
    tools: dict[str, Tool] = field(repr=False)
    specs: dict[str, ToolSpec] = field(repr=False)

    def tool(self, name: str) -> Tool | None:
        return self.tools.get(name)

    def spec(
        self,
        agent_name: str | None = None,
        model_override: str | None = None,
        working_dir: Path | None = None,
    ) -> AgentSpec:
        """What a turn of the agent runs under; `default` and None mean the default agent.

        Raises UnknownAgent, or WorkspaceError where the agent's file is wrong.
        """
        if agent_name in (None, DEFAULT_AGENT):
            agent_name = self.settings.agent.default
        agent = self.agent(agent_name or DEFAULT_AGENT)
        if model_override:
            key = agent.key_variable_of(model_override)
            agent = agent.model_copy(update={"model": model_override, "api_key_variable": key})
        tools = tuple(
            spec for name, spec in self.specs.items() if agent.tools is None or name in agent.tools
        )
        if agent.output is not None:
            tools = (*(spec for spec in tools if spec.name != RESPONSE), answering(agent.output))
        return AgentSpec(
            agent=agent,
            tools=tools,
            workspace=str(self.path),
            working_dir=str((working_dir or self.working_dir).resolve()),
        )

    def agent(self, name: str) -> Agent:
        """The agent of that name, with what the settings say for all agents."""
        if name not in self.agents and name != DEFAULT_AGENT:
            known = sorted({DEFAULT_AGENT, *self.agents})
            raise UnknownAgent(
                f"There is no agent {name!r} in {self.path}{meant(name, known)};"
                f" its agents are {', '.join(known)}."
            )
        path, given, text = _agent_file(self.path, name)
        if given.setdefault("name", name) != name:
            raise WorkspaceError(
                f"{path} calls its agent {given['name']!r}, and by its file it is {name!r};"
                " leave the name out, or rename the file."
            )
        for key in ("tools", "fallback_models"):
            if isinstance(given.get(key), str):
                given[key] = [part.strip() for part in given[key].split(",")]
        model = self.settings.model
        inherited = {"model": model.name, **model.model_dump(exclude={"name"})}
        if "base_url" in given or (model.base_url is None and "model" in given):
            # Whoever names an endpoint of its own names its key too.
            del inherited["api_key_variable"]
        values = {key: value for key, value in inherited.items() if value is not None} | given
        agent = validated(Agent, values, path, text)
        if agent.output is not None and (broken := broken_schema(agent.output)) is not None:
            raise WorkspaceError(f"{path}: output is no JSON schema: {broken}; mend it.")
        for tool in agent.tools or ():
            if tool in self.specs:
                continue
            reason = "is left out by [tools] exclude" if tool in self.tools else "does not exist"
            raise WorkspaceError(
                f"{path} names tool {tool!r}, which {reason}{meant(tool, self.specs)};"
                " mend its list of tools."
            )
        return agent


def load(path: Path) -> Workspace:
    """The workspace in the folder `path`, from memory where no file of it has changed.

    Raises WorkspaceError: one sentence with the file, the line where one is known, and the
    mend.
    """
    root = path.expanduser().resolve()
    with _loading:
        fingerprint = _fingerprint(root)
        known = _loaded.get(root)
        if known is None or known[0] != fingerprint:
            known = _loaded[root] = (fingerprint, _load(root))
        return known[1]


_loading = threading.Lock()
_loaded: dict[Path, tuple[object, Workspace]] = {}


@functools.lru_cache(maxsize=256)
def protected_paths(workspace: Path, working_dir: Path | None = None) -> tuple[Path, ...]:
    """Paths that tools may not change, also where nothing is there yet.

    They configure this runtime, or programs that a person runs in these folders.
    """
    workspace = workspace.resolve()
    folders = dict.fromkeys((workspace, working_dir.resolve() if working_dir else workspace))
    return (
        *(workspace / name for name in _CONFIGURATION),
        *(folder / name for folder in folders for name in _FOREIGN_CONFIGURATION),
    )


def _fingerprint(root: Path) -> object:
    """Changes when any file does that a workspace is made of."""
    files = [root, root / SETTINGS_FILE, root / "agents", root / "tools"]
    files += [*(root / "agents").glob("*"), *(root / "agents").glob("*/*")]
    files += (root / "tools").glob("*.py")
    marks: dict[Path, object] = {}
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        # A folder's time changes with every file that an agent creates in it.
        content = () if file == root else (status.st_mtime_ns, status.st_size, status.st_ino)
        marks[file] = (*content, status.st_mode, status.st_uid)
    return marks


def _load(root: Path) -> Workspace:
    file = root / SETTINGS_FILE
    if not root.is_dir():
        raise WorkspaceError(
            f"There is no workspace folder {root}; create one by: everturn init {root}"
        )
    if not file.exists():
        raise WorkspaceError(
            f"{root} is no workspace, because it has no {SETTINGS_FILE};"
            f" create that by: everturn init {root}"
        )
    require_trusted(root)
    settings = validated(WorkspaceSettings, *_toml(file))
    working_dir = (root / Path(settings.working_dir).expanduser()).resolve()
    if not working_dir.is_dir():
        raise WorkspaceError(
            f"{file} sets working_dir to {settings.working_dir!r}, and {working_dir} is no"
            " folder; create it, or name another."
        )
    own = load_tools(root, reserved=frozenset(builtins()))
    sources = {name: (tool, "builtin") for name, tool in builtins().items()} | own
    for name in settings.tools.exclude:
        if name not in sources:
            raise WorkspaceError(
                f"{file} excludes tool {name!r}, which does not exist{meant(name, sources)};"
                " mend [tools] exclude."
            )
    return Workspace(
        path=root,
        settings=settings,
        working_dir=working_dir,
        agents=_agent_names(root),
        tools={name: tool for name, (tool, _) in sources.items()},
        specs={
            name: tool_spec(tool, source)
            for name, (tool, source) in sources.items()
            if name not in settings.tools.exclude
        },
    )


def tool_spec(tool: Tool, source: str = "builtin") -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        effect=tool.effect,
        quick=tool.quick,
        timeout_seconds=tool.timeout_seconds,
        source=source,
    )


def _toml(path: Path) -> tuple[dict[str, Any], Path, str]:
    values, text = read_toml(path)
    return values, path, text


def _agent_names(root: Path) -> tuple[str, ...]:
    """Agents are `agents/<name>.md`, or `agents/<name>/` with `config.toml` and `agent.md`."""
    folder = root / "agents"
    files = {path.stem for path in folder.glob("*.md")}
    folders = {path.parent.name for path in folder.glob("*/agent.md")}
    for name in sorted(files & folders):
        raise WorkspaceError(
            f"Agent {name!r} is defined twice, by {folder / name}.md and by {folder / name};"
            " remove one of them."
        )
    return tuple(sorted(files | folders))


def _agent_file(root: Path, name: str) -> tuple[Path, dict[str, Any], str]:
    """Where an agent is defined, what is given there, and the text that says so."""
    path = root / "agents" / f"{name}.md"
    folder = root / "agents" / name
    if path.exists():
        given, prompt, text = read_front_matter(path)
    elif (folder / "agent.md").exists():
        path = folder / "config.toml"
        given, text = read_toml(path) if path.exists() else ({}, "")
        prompt = read_text(folder / "agent.md").strip()
    else:
        return path, {}, ""
    if "prompt" in given and prompt:
        raise WorkspaceError(
            f"{path} has a key 'prompt', and the text below is the prompt; leave the key out."
        )
    given.setdefault("prompt", prompt or DEFAULT_PROMPT)
    return path, given, text
