"""The workspace: the folder with settings, agents and tools that turns run under."""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from everturn.agents import (
    KEY_VARIABLE,
    Agent,
    AgentSpec,
    NativeTool,
    Project,
    ToolSpec,
    answering,
)
from everturn.errors import UnknownAgent, WorkspaceError
from everturn.executors import ExecutorRules, narrower
from everturn.folders import FolderSettings
from everturn.hooks import Hooks, together
from everturn.hosts import Reach
from everturn.mcp import PREFIX, Lifecycle, Server, ServerConfig, demand_server_name
from everturn.mcp_tools import RESOURCE_TOOLS, names_server
from everturn.memory import FactScope
from everturn.messages import Frozen
from everturn.presets import DEFAULT_AGENT, PRESETS
from everturn.profile import Executors, Profile
from everturn.search import Search
from everturn.secrets import UPPER_NAME, SecretSource
from everturn.skills import SkillRoot
from everturn.tasks import Output
from everturn.tools import CRON, DELEGATE, RESPONSE, Tool, may_call
from everturn_activities.agent_files import Definition, agent_names, read_agent
from everturn_activities.builtin import ASKED_FOR, OF_MEMORY, SEARCH_WEB, builtins
from everturn_activities.definitions import meant, place_of, read_toml, validated
from everturn_activities.profiles import DEFAULT_PROFILE, alias_place, load_profile
from everturn_activities.tool_files import load_tools
from everturn_activities.tool_packages import packaged_tools, without
from everturn_activities.toolbox import broken_schema
from everturn_activities.trust import require_trusted, resolved
from everturn_activities.vault import Vault

SETTINGS_FILE = "everturn.toml"
SPECS_KEPT = 256
SKILL = "skill"
"""The tool that gives a skill's text, which each profile shows under a name of its own."""

_CONFIGURATION = (
    *(SETTINGS_FILE, "agents", "tools", "skills", "prompts", "profiles", "hooks", "context"),
)
_FOREIGN_CONFIGURATION = (".git/hooks", ".git/config", ".mcp.json")


class AgentSettings(Frozen):
    """`default` names the agent of sessions that name none, `profile` the profile of agents
    that name none."""

    default: str = DEFAULT_AGENT
    profile: str = DEFAULT_PROFILE


class ModelSettings(Frozen):
    """What agents use that do not say otherwise."""

    name: str | None = None
    base_url: str | None = None
    api_key_variable: str | None = Field(default=None, pattern=KEY_VARIABLE)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    repeat_penalty: float | None = Field(default=None, gt=0, le=10)
    tokens_max: int | None = Field(default=None, ge=1)


class ToolSettings(Frozen):
    """`exclude` names tools that no agent of this workspace gets; `enable` those that agents
    only get where they are named here."""

    exclude: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()


class NetworkSettings(Frozen):
    """`allowed_hosts` are those that agents reach which do not say otherwise."""

    allowed_hosts: tuple[str, ...] | None = None

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        Reach.of(given)
        return given


class MemorySettings(Frozen):
    """What is remembered, in place of what the profile says: without `scopes` nothing is."""

    scopes: tuple[FactScope, ...] | None = None
    consolidate_tokens: int | None = Field(default=None, ge=100)
    model: str | None = None


class KnowledgeSettings(Frozen):
    """`embedding_model` makes vectors of what is searched, so that meanings are found and not
    only words; it is served as a model of `[model]` is."""

    embedding_model: str | None = None
    base_url: str | None = None
    api_key_variable: str | None = Field(default=None, pattern=KEY_VARIABLE)


class McpSettings(Frozen):
    """The workspace's MCP servers by their names; `lifecycle` counts in place of the profile's."""

    lifecycle: Lifecycle | None = None
    servers: dict[str, ServerConfig] = Field(default_factory=dict)

    @field_validator("servers")
    @classmethod
    def _called(cls, given: dict[str, ServerConfig]) -> dict[str, ServerConfig]:
        for name in given:
            demand_server_name(name)
        return given

    @model_validator(mode="after")
    def _settled(self) -> "McpSettings":
        for name, config in self.servers.items():
            if config.stateful and self.lifecycle == "hot":
                raise ValueError(
                    f"server {name} is stateful, and lifecycle is hot; a server that remembers"
                    " what a session did cannot change within it"
                )
        return self


class WorkspaceSettings(Frozen):
    """The content of `everturn.toml`."""

    working_dir: str = "."
    agent: AgentSettings = AgentSettings()
    model: ModelSettings = ModelSettings()
    tools: ToolSettings = ToolSettings()
    network: NetworkSettings = NetworkSettings()
    project: Project = Project()
    memory: MemorySettings = MemorySettings()
    knowledge: KnowledgeSettings = KnowledgeSettings()
    hooks: Hooks = Hooks()
    folders: FolderSettings = FolderSettings()
    secrets: dict[Annotated[str, Field(pattern=UPPER_NAME)], SecretSource] = Field(
        default_factory=dict
    )
    search: Search | None = None
    native_tools: dict[str, tuple[NativeTool, ...]] = Field(default_factory=dict)
    mcp: McpSettings = McpSettings()


@dataclass(frozen=True)
class Workspace:
    """A workspace as it was when it was loaded.

    `agents` names those that have a file, and the presets. `specs` has the tools as models
    are told of them, excluded ones left out; `notes` say which of installed packages are not among
    them, and why.
    """

    path: Path
    settings: WorkspaceSettings
    working_dir: Path
    agents: tuple[str, ...]
    tools: dict[str, Tool] = field(repr=False)
    specs: dict[str, ToolSpec] = field(repr=False)
    notes: tuple[str, ...] = ()
    _made: dict[tuple[str, str | None, Path], AgentSpec] = field(default_factory=dict, repr=False)

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
        return self.own_spec(agent_name or DEFAULT_AGENT, model_override, working_dir)

    def own_spec(
        self, name: str, model_override: str | None = None, working_dir: Path | None = None
    ) -> AgentSpec:
        """The same, of the agent that is called so, whichever is the default."""
        folder = resolved(working_dir or self.working_dir)
        asked = (name, model_override, folder)
        made = self._made.get(asked)
        if made is None:
            if len(self._made) >= SPECS_KEPT:
                self._made.clear()
            # No file that a spec is made of has changed since the workspace was loaded.
            made = self._made[asked] = self._spec(*asked)
        return made

    def _spec(self, agent_name: str, model: str | None, folder: Path) -> AgentSpec:
        agent, profile = self._agent(agent_name)
        if model:
            key = agent.key_variable_of(model)
            agent = agent.model_copy(update={"model": model, "api_key_variable": key})
        named = [
            tool
            for tool in self.shown(profile)
            if _wanted(tool, agent, profile) and _is_offered(tool, agent, profile)
        ]
        usable = [
            tool
            for tool in named
            if may_call(agent.access, tool.runs or tool.name, tool.effect, tool.searches)
        ]
        withheld = tuple(tool.name for tool in named if tool not in usable)
        if agent.output is not None:
            usable = [tool for tool in usable if tool.name != RESPONSE]
            usable.append(answering(agent.output))
        lifecycle = self.settings.mcp.lifecycle or profile.mcp.lifecycle
        servers = () if lifecycle == "none" else self._servers(agent, profile)
        for server in servers:
            if lifecycle == "hot" and server.config.stateful:
                raise WorkspaceError(
                    f"Server {server.name} of {SETTINGS_FILE} is stateful, and the lifecycle of"
                    f" servers in profile {profile.name} is hot: one that remembers what a session"
                    ' did cannot change within it. Write lifecycle = "frozen" into [mcp], or let'
                    f" agent {agent.name} not name it in mcp_servers."
                )
        return AgentSpec(
            agent=agent,
            profile=profile,
            tools=tuple(usable),
            withheld=withheld,
            servers=servers,
            lifecycle=lifecycle,
            project=self.settings.project,
            checkpoints=self.settings.folders.checkpoints,
            workspace=str(self.path),
            working_dir=str(_working_dir(agent, folder)),
        )

    def _servers(self, agent: Agent, profile: Profile) -> tuple[Server, ...]:
        """The servers that the agent uses, in the order of their names."""
        lists = (agent.tools, agent.allowed_tools if profile.strict_allowed else None)
        return tuple(
            Server(name=name, config=config)
            for name, config in sorted(self.settings.mcp.servers.items())
            if agent.mcp_servers is None or name in agent.mcp_servers
            if all(names_server(listed, name) for listed in lists)
        )

    def agent(self, name: str) -> Agent:
        """The agent of that name, with what the settings and its profile say for all agents."""
        return self._agent(name)[0]

    def _agent(self, name: str) -> tuple[Agent, Profile]:
        if name not in self.agents:
            raise UnknownAgent(
                f"There is no agent {name!r} in {self.path}{meant(name, self.agents)};"
                f" its agents are {', '.join(self.agents)}."
            )
        defined = read_agent(self.path, name)
        profile = remembering(self._profile(defined), self.settings.memory)
        values = inherited(defined.given, self.settings.model, profile)
        agent = validated(Agent, values, defined.path, defined.text)
        if agent.executors is not None:
            # What its file does not say of them is the profile's.
            given = agent.executors.model_dump(exclude_unset=True)
            merged = profile.executors.model_dump() | given
            executors = validated(Executors, merged, defined.path, defined.text)
            if executors.managed and not executors.depth_max:
                place = place_of(defined.path, defined.text, ["executors"])
                raise WorkspaceError(
                    f"{place}: a manager hands all work on, and depth_max is 0; set it to 1 or"
                    " more."
                )
            agent = agent.model_copy(update={"executors": executors})
        if agent.allowed_hosts is None:
            hosts = self.settings.network.allowed_hosts
            agent = agent.model_copy(update={"allowed_hosts": hosts})
        if "native_tools" not in defined.given:
            agent = agent.model_copy(update={"native_tools": self.settings.native_tools})
        if self.settings.hooks != Hooks():
            hooks = together(self.settings.hooks, agent.hooks)
            agent = agent.model_copy(update={"hooks": hooks})
        if agent.output is not None and (broken := broken_schema(agent.output)) is not None:
            place = place_of(defined.path, defined.text, ["output"])
            raise WorkspaceError(f"{place}: output is no JSON schema: {broken}; mend it.")
        for secret in agent.command_secrets:
            if secret not in self.settings.secrets:
                place = place_of(defined.path, defined.text, ["command_secrets"])
                raise WorkspaceError(
                    f"{place} names secret {secret!r}{meant(secret, self.settings.secrets)}, which"
                    f" [secrets] of {SETTINGS_FILE} does not have; add it there."
                )
        known = {tool.name for tool in self.shown(profile)} | set(self.specs)
        for key in ("tools", "allowed_tools"):
            for tool in getattr(agent, key) or ():
                if tool in known or self._may_be_served(tool):
                    continue
                left_out = tool in self.tools or profile.aliases.get(tool) in self.tools
                reason = "is left out by [tools] exclude" if left_out else "does not exist"
                if tool in ASKED_FOR:
                    reason = "is not enabled by [tools] enable"
                if tool == SEARCH_WEB and self.settings.search is None:
                    reason = "is not enabled: [search] of the settings says who searches"
                said = key if key in defined.given else f"tools of profile {profile.name}"
                raise WorkspaceError(
                    f"{place_of(defined.path, defined.text, [key])} names tool {tool!r}, which"
                    f" {reason}{meant(tool, known)}; mend its list of {said.replace('_', ' ')}."
                )
        for server in agent.mcp_servers or ():
            if server not in self.settings.mcp.servers:
                place = place_of(defined.path, defined.text, ["mcp_servers"])
                raise WorkspaceError(
                    f"{place} names MCP server {server!r}, which [mcp.servers] of {SETTINGS_FILE}"
                    f" has not{meant(server, self.settings.mcp.servers)}; mend it."
                )
        return agent, profile

    def _may_be_served(self, tool: str) -> bool:
        """Whether a server may offer such a tool: which ones it does is not known yet."""
        return (tool.startswith(PREFIX) or tool in RESOURCE_TOOLS) and any(
            names_server((tool,), server) for server in self.settings.mcp.servers
        )

    def _profile(self, defined: Definition) -> Profile:
        """The profile that an agent's file names, else that of the settings."""
        name = defined.given.get("profile")
        if name is None:
            return load_profile(self.settings.agent.profile, self.path)
        try:
            return load_profile(str(name), self.path)
        except WorkspaceError as error:
            if not str(error).startswith("There is no profile"):
                raise
            place = place_of(defined.path, defined.text, ["profile"])
            raise WorkspaceError(f"{place}: {str(error)[:1].lower()}{str(error)[1:]}") from None

    def shown(self, profile: Profile) -> list[ToolSpec]:
        """The tools under the names by which the profile shows them."""
        skill = profile.skills.tool
        aliases: dict[str, list[str]] = {SKILL: [] if skill is None else [skill]}
        for alias, name in profile.aliases.items():
            if name not in self.tools:
                raise WorkspaceError(
                    f"{alias_place(profile.name, alias, self.path)} names tool {name!r}, which does"
                    f" not exist{meant(name, self.tools)}; mend it."
                )
            aliases.setdefault(name, []).append(alias)
        shown: dict[str, ToolSpec] = {}
        for name, spec in self.specs.items():
            for alias in aliases.get(name, [name]):
                if alias in shown:
                    raise WorkspaceError(
                        f"{alias_place(profile.name, alias, self.path)} shows tool {name!r} as"
                        f" {alias!r}, which is the name of another; choose another alias."
                    )
                shown[alias] = (
                    spec if alias == name else spec.model_copy(update={"name": alias, "runs": name})
                )
        return list(shown.values())


def _wanted(tool: ToolSpec, agent: Agent, profile: Profile) -> bool:
    """Whether the agent's file names the tool, by the name it is shown under or its own."""
    lists = [agent.tools, agent.allowed_tools if profile.strict_allowed else None]
    return all(named is None or {tool.name, tool.runs} & {*named} for named in lists)


def _is_offered(tool: ToolSpec, agent: Agent, profile: Profile) -> bool:
    """Whether there is anything for the tool to work on."""
    if (tool.runs or tool.name) == DELEGATE:
        return (agent.executors or profile.executors).depth_max > 0
    return bool(profile.memory.scopes) or (tool.runs or tool.name) not in OF_MEMORY


def manager_spec(spec: AgentSpec) -> AgentSpec:
    """What the turns of a manager run under, whose agent has `spec`: it executes nothing."""
    kept = {DELEGATE, RESPONSE, *spec.executors.manager_tools}
    usable = [tool for tool in spec.tools if not kept.isdisjoint({tool.name, tool.runs})]
    refused = [tool.name for tool in spec.tools if tool not in usable]
    only = spec.executors.manager_tools
    return spec.but(
        tools=tuple(usable),
        withheld=(*spec.withheld, *refused),
        servers=tuple(server for server in spec.servers if names_server(only, server.name)),
        served_only=only,
    )


def executor_spec(spec: AgentSpec, rules: ExecutorRules) -> AgentSpec:
    """What the turns of an executor run under, whose agent has `spec`."""
    policy = spec.executors
    access = narrower(spec.agent.access, rules.access)
    hidden = {CRON, *rules.minus_tools}
    if rules.level >= policy.depth_max:
        hidden.add(DELEGATE)
    shown = [tool for tool in spec.tools if hidden.isdisjoint({tool.name, tool.runs})]
    usable = [
        tool
        for tool in shown
        if may_call(access, tool.runs or tool.name, tool.effect, tool.searches)
        or tool.source == "answer"
    ]
    refused = [tool.name for tool in shown if tool not in usable]
    steps_max = min(spec.agent.steps_max, rules.steps_max or spec.agent.steps_max)
    profile = spec.profile
    if policy.recipe is not None:
        profile = profile.model_copy(update={"recipe": policy.recipe})
    return spec.but(
        agent=spec.agent.model_copy(update={"access": access, "steps_max": steps_max}),
        profile=profile,
        tools=tuple(usable),
        withheld=(*spec.withheld, *refused),
        hidden=tuple(sorted(hidden)),
        level=rules.level,
    )


def answering_spec(spec: AgentSpec, output: Output) -> AgentSpec:
    """`spec` for a session whose answers must fit `output`."""
    changed: dict[str, Any] = {"output": output.schema_}
    if output.mends_max is not None:
        changed["recoveries_max"] = output.mends_max
    tools = [tool for tool in spec.tools if tool.name != RESPONSE]
    return spec.but(
        agent=spec.agent.model_copy(update=changed),
        tools=(*tools, answering(output.schema_)),
    )


def secret_of(vault: Vault) -> Callable[[str, str], str]:
    """Reads a secret of a workspace by its name; raises UsageError where it cannot be had."""

    def read(workspace: str, name: str) -> str:
        loaded = load(Path(workspace))
        return vault.value(loaded.path, loaded.settings.secrets, name)

    return read


def remembering(profile: Profile, settings: MemorySettings) -> Profile:
    """The profile with what the settings say of memory."""
    given = settings.model_dump(exclude_none=True)
    if not given:
        return profile
    return profile.model_copy(update={"memory": profile.memory.model_copy(update=given)})


def _working_dir(agent: Agent, folder: Path) -> Path:
    if agent.working_directory is None:
        return folder
    own = resolved(folder / Path(agent.working_directory).expanduser())
    # A folder that is not on this machine cannot be judged here.
    if folder.is_dir() and not own.is_dir():
        raise WorkspaceError(
            f"Agent {agent.name!r} sets working_directory to {agent.working_directory!r}, and"
            f" {own} is no folder; create it, or name another."
        )
    return own


def inherited(given: dict[str, Any], model: ModelSettings, profile: Profile) -> dict[str, Any]:
    """An agent's own values, over those of the settings, over those of its profile.

    Who names an endpoint names its key too, and an endpoint goes with the model that it was
    named for: so neither is taken over where a nearer place says otherwise.
    """
    settings = {"model": model.name, **model.model_dump(exclude={"name"})}
    settings = {key: value for key, value in settings.items() if value is not None}
    values = dict(profile.agent)
    if "model" in settings or "model" in given:
        values.pop("base_url", None)
        values.pop("api_key_variable", None)
    if "base_url" in settings:
        values.pop("api_key_variable", None)
    values |= settings
    if "base_url" in given or ("base_url" not in values and "model" in given):
        values.pop("api_key_variable", None)
    return values | given


def left_out_of_copies(workspace: str) -> tuple[str, ...]:
    """What the workspace's settings leave out of a session's copy of its folder."""
    return load(Path(workspace)).settings.folders.ignore


def load(path: Path) -> Workspace:
    """The workspace in the folder `path`, from memory where no file of it has changed.

    Raises WorkspaceError: one sentence with the file, the line where one is known, and the
    mend.
    """
    root = resolved(path.expanduser())
    with _loading:
        fingerprint = _fingerprint(root)
        known = _loaded.get(root)
        if known is None or known[0] != fingerprint:
            known = _loaded[root] = (fingerprint, _load(root))
        return known[1]


_loading = threading.Lock()
_loaded: dict[Path, tuple[object, Workspace]] = {}


def protected_from_tools(spec: AgentSpec) -> tuple[Path, ...]:
    """What no tool of a turn under `spec` may change."""
    roots = spec.profile.skills.roots
    return protected_paths(Path(spec.workspace), Path(spec.working_dir), roots)


@functools.lru_cache(maxsize=256)
def protected_paths(
    workspace: Path, working_dir: Path | None = None, roots: tuple[SkillRoot, ...] = ()
) -> tuple[Path, ...]:
    """Paths that tools may not change, also where nothing is there yet.

    They configure this runtime, or programs that a person runs in these folders. `roots` are
    where the agent's skills lie.
    """
    workspace = workspace.resolve()
    folders = dict.fromkeys((workspace, working_dir.resolve() if working_dir else workspace))
    return (
        *(workspace / name for name in _CONFIGURATION),
        *(folder / name for folder in folders for name in _FOREIGN_CONFIGURATION),
        *(workspace / folder for root in roots if (folder := root.folder) is not None),
    )


def _fingerprint(root: Path) -> object:
    """Changes when any file does that a workspace is made of."""
    files = [root, root / SETTINGS_FILE, root / "agents", root / "tools", root / "profiles"]
    files += [*(root / "agents").glob("*"), *(root / "agents").glob("*/*")]
    files += [*(root / "tools").glob("*.py"), *(root / "profiles").glob("*.toml")]
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
    working_dir = resolved(root / Path(settings.working_dir).expanduser())
    if not working_dir.is_dir():
        raise WorkspaceError(
            f"{file} sets working_dir to {settings.working_dir!r}, and {working_dir} is no"
            " folder; create it, or name another."
        )
    own = load_tools(root, reserved=frozenset(builtins()))
    built_in = {name: (tool, "builtin") for name, tool in builtins().items()}
    taken = dict.fromkeys(built_in, "the built-in ones")
    packaged = without(packaged_tools(), taken | {name: file for name, (_, file) in own.items()})
    sources = built_in | packaged.tools | own
    for name in settings.tools.exclude:
        if name not in sources:
            raise WorkspaceError(
                f"{file} excludes tool {name!r}, which does not exist{meant(name, sources)};"
                " mend [tools] exclude."
            )
    for name in settings.tools.enable:
        if name not in ASKED_FOR:
            raise WorkspaceError(
                f"{file} enables tool {name!r}{meant(name, ASKED_FOR)}; what is to be enabled is"
                f" {', '.join(sorted(ASKED_FOR))}: mend [tools] enable."
            )
    left_out = {*settings.tools.exclude, *ASKED_FOR.difference(settings.tools.enable)}
    if settings.search is None:
        left_out.add(SEARCH_WEB)
    elif (key := settings.search.key) is not None and key not in settings.secrets:
        raise WorkspaceError(
            f"{file} names secret {key!r} as the key of [search], which [secrets] does not have"
            f"{meant(key, settings.secrets)}; add it there."
        )
    return Workspace(
        path=root,
        settings=settings,
        working_dir=working_dir,
        agents=tuple(sorted({*PRESETS, *agent_names(root)})),
        tools={name: tool for name, (tool, _) in sources.items()},
        specs={
            name: tool_spec(tool, source)
            for name, (tool, source) in sources.items()
            if name not in left_out
        },
        notes=packaged.notes,
    )


def tool_spec(tool: Tool, source: str = "builtin") -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        effect=tool.effect,
        quick=tool.quick,
        searches=tool.searches,
        untrusted=tool.untrusted,
        timeout_seconds=tool.timeout_seconds,
        source=source,
        requires_approval=tool.requires_approval,
        asks_only=dict(tool.asks_only),
    )


def _toml(path: Path) -> tuple[dict[str, Any], Path, str]:
    values, text = read_toml(path)
    return values, path, text
