"""Agents: who works a turn, with which model, tools and limits."""

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from everturn.approvals import Approvals, covers
from everturn.budgets import Budget
from everturn.folders import FolderKind
from everturn.hooks import Hooks, ToolHook, of_tool
from everturn.hosts import Reach
from everturn.mcp import PREFIX, Lifecycle, Server
from everturn.memory import USER
from everturn.messages import Frozen
from everturn.profile import DEFAULT, Executors, History, Profile
from everturn.tools import ASK_USER, RESPONSE, TOOL_TIMEOUT_SECONDS, Access, Effect

KEY_VARIABLE = r"^[A-Z][A-Z0-9_]*$"
"""Upper case only: a key that was put in place of its variable's name is refused."""

COLOR = r"^(black|red|green|yellow|blue|magenta|cyan|white|#[0-9a-fA-F]{6})$"
RESOURCES = ("file://", "skill://")

STEPS_MAX = 50
STALL_SECONDS = 45.0
RETRIES_MAX = 9
RETRY_SECONDS = 0.5

DEFAULT_PROMPT = (
    "You are a careful assistant that works on the files of its working folder with the tools"
    " that it is given. Use a tool when it settles a question better than a guess, say plainly"
    " what you could not do, and end with a short answer."
)


NativeTool = str | dict[str, Any]
"""A tool that a provider runs itself: its name, or all that the provider is told of it."""


class Candidate(Frozen):
    """A model that can answer for an agent, and the endpoint that serves it; None is the
    provider's own. `api_key_variable` names the variable whose key that is sent. `here`: both
    are those of the agent itself."""

    model: str
    here: bool = False
    base_url: str | None = None
    api_key_variable: str | None = Field(default=None, pattern=KEY_VARIABLE)


class Compaction(Frozen):
    """When a conversation is summarised, and by which model.

    `warn`, `at` and `critical` are shares of the window; at `at` a summary replaces all but
    the last `keep_last` messages. `model` is the agent's own where None. After
    `failures_max` failures in a row a turn goes on without.
    """

    enabled: bool = True
    warn: float = Field(default=0.80, gt=0, le=1)
    at: float = Field(default=0.90, gt=0, le=1)
    critical: float = Field(default=0.95, gt=0, le=1)
    keep_last: int = Field(default=10, ge=1)
    model: str | None = None
    failures_max: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _rising(self) -> "Compaction":
        if not self.warn <= self.at <= self.critical:
            raise ValueError(
                f"warn, at and critical are {self.warn:g}, {self.at:g} and {self.critical:g};"
                " each must be at least the one before"
            )
        return self


class PromptOptions(Frozen):
    """What is said to a model beside an agent's prompt.

    `custom_system_prompt` comes before a profile's own text and `append_system_prompt` after
    all of it. `output_style` names one of the styles that the profile has, and
    `custom_output_style_prompt` describes one that it has not.
    """

    custom_system_prompt: str = ""
    append_system_prompt: str = ""
    output_style: str = ""
    custom_output_style_prompt: str = ""


class Agent(Frozen):
    """A definition in the workspace.

    `title` is what people see instead of the name, in `color`; one that is not `visible` is
    left out where agents are offered to choose from. `access` limits the tools to those that
    only read, or only search and read. `profile` says how its context is composed.

    `api_key_variable` names the environment variable whose key `base_url`, or the model's
    provider, is sent. `tools` names the tools that the model sees, None means all;
    `allowed_tools` are those that nobody is asked about: where they are named, a person decides
    about every call of another. `approvals` says more of that. `native_tools` are those that a
    provider runs itself, by the provider's name or a model's, which goes before it.
    `resources` are files that the model is told of: `file://` whole, `skill://` by their
    descriptions. `working_directory` is where its tools work, if not in the session's folder:
    relative to that. `folder` says whether a session that begins with it has a folder of its own.
    `mcp_servers` names the workspace's MCP servers that it uses, None means all.
    `allowed_hosts` are those that its tools may reach, and its commands; without it pages of
    every public host may be read, and commands have no network. `command_secrets` names the
    workspace's secrets that its commands find as variables.
    Without `stream` a provider is asked for its reply in one piece.
    `stall_seconds` is the silence after which a model stream counts as dead (without `stream`:
    the whole time that a reply may take), and
    `stall_retries` how often it is begun again. What else time can repair is tried
    `retries_max` more times, the first after `retry_seconds`, each later one after twice the
    pause. Then the first of `fallback_models` that can hold the request takes over for the
    step: a name is served by the agent's own endpoint, a table names another.
    `recoveries_max` is how often in a row a cut reply is continued. `tool_role` says how
    results go to the model: as messages of role `tool`, or as one user message. `budget` is
    what a session with this agent may spend.

    `output` is the JSON schema, of an object, that the agent's answer must fit; in Python a
    pydantic model is one. The model gives it by calling the tool `response`; what does not fit
    goes back to it to be mended.

    `window_tokens` is the model's window where the table of prices does not know it.
    `tool_result_budget` is how many characters of tool results are sent; the oldest are left
    out. `history` says what of earlier turns is sent, where not as the profile says; a plain
    word is its `load`. `executors` says to whom it hands work, where not as the profile says.
    """

    name: str = "default"
    title: str = ""
    description: str = ""
    visible: bool = True
    color: str | None = Field(default=None, pattern=COLOR)
    access: Access = "full"
    profile: str | None = None
    prompt: str = DEFAULT_PROMPT
    model: str = "openai/gpt-5-mini"
    base_url: str | None = None
    api_key_variable: str | None = Field(default=None, pattern=KEY_VARIABLE)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    repeat_penalty: float | None = Field(default=None, gt=0, le=10)
    tokens_max: int | None = Field(default=None, ge=1)
    tools: tuple[str, ...] | None = None
    native_tools: dict[str, tuple[NativeTool, ...]] = Field(default_factory=dict)
    allowed_tools: tuple[str, ...] | None = None
    approvals: Approvals = Approvals()
    mcp_servers: tuple[str, ...] | None = None
    resources: tuple[str, ...] = ()
    prompt_options: PromptOptions = PromptOptions()
    working_directory: str | None = None
    folder: FolderKind | None = None
    allowed_hosts: tuple[str, ...] | None = None
    command_secrets: tuple[str, ...] = ()
    stream: bool = True
    steps_max: int = Field(default=STEPS_MAX, ge=1, le=10_000)
    stall_seconds: float = Field(default=STALL_SECONDS, gt=0)
    stall_retries: int = Field(default=2, ge=0, le=100)
    retries_max: int = Field(default=RETRIES_MAX, ge=0, le=1000)
    retry_seconds: float = Field(default=RETRY_SECONDS, gt=0)
    recoveries_max: int = Field(default=3, ge=0, le=100)
    fallback_models: tuple[Candidate, ...] = ()
    tool_role: bool = True
    window_tokens: int | None = Field(default=None, ge=256)
    compaction: Compaction = Compaction()
    tool_result_budget: int | None = Field(default=None, ge=1)
    history: History | None = None
    executors: Executors | None = None
    budget: Budget | None = None
    hooks: Hooks = Hooks()
    output: dict[str, Any] | None = None

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        Reach.of(given)
        return given

    @field_validator("output", mode="before")
    @classmethod
    def _schema(cls, given: object) -> object:
        if isinstance(given, type) and issubclass(given, BaseModel):
            given = given.model_json_schema()
        if isinstance(given, dict) and given.get("type") != "object":
            raise ValueError("the schema must be one of type object")
        return given

    @field_validator("resources")
    @classmethod
    def _addressed(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            if not one.startswith(RESOURCES):
                raise ValueError(
                    f"the resource {one!r} begins with none of {' and '.join(RESOURCES)}"
                )
        return given

    @field_validator("history", mode="before")
    @classmethod
    def _loaded(cls, given: object) -> object:
        return {"load": given} if isinstance(given, str) else given

    @field_validator("fallback_models", mode="before")
    @classmethod
    def _named(cls, given: object) -> object:
        """A plain name is served where the agent's own model is."""
        if not isinstance(given, list | tuple):
            return given
        return [{"model": one, "here": True} if isinstance(one, str) else one for one in given]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The agent's model and its fallbacks, in order, each once."""
        found: dict[str, Candidate] = {}
        for one in (Candidate(model=self.model, here=True), *self.fallback_models):
            found.setdefault(one.model, self._placed(one))
        return tuple(found.values())

    def _placed(self, one: Candidate) -> Candidate:
        if not one.here:
            return one
        return Candidate.model_construct(
            model=one.model,
            base_url=self.base_url,
            api_key_variable=self.key_variable_of(one.model),
        )

    def key_variable_of(self, model: str) -> str | None:
        """Which key goes with `model` in place of our own: none of another provider's."""
        alike = model.partition("/")[0] == self.model.partition("/")[0]
        return self.api_key_variable if alike or self.base_url is not None else None


class ToolSpec(Frozen):
    """A tool as a model is told of it, and as the runtime must treat it.

    `source` is `builtin`, `answer`, the workspace file that the function stands in, or `mcp:` and
    the server that runs it, which knows it as `remote`; `runs` is the tool's own name where it is
    shown under another. `searches`: it reads or looks for things
    and does nothing else. A person decides about calls that `requires_approval`, or of those only
    about them whose arguments `asks_only` covers.
    """

    name: str
    description: str
    parameters: dict[str, object]
    effect: Effect = "once"
    quick: bool = False
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS
    source: str = "builtin"
    runs: str | None = None
    remote: str = ""
    searches: bool = False
    requires_approval: bool = False
    asks_only: dict[str, str] = Field(default_factory=dict)
    untrusted: bool = False

    @property
    def is_question(self) -> bool:
        """Whether a call of it is a question to a person."""
        return self.source == "builtin" and (self.runs or self.name) == ASK_USER


def answering(schema: dict[str, Any]) -> ToolSpec:
    """The tool by which an agent whose answer must fit `schema` gives it."""
    return ToolSpec(
        name=RESPONSE,
        description="Gives your final answer, and ends your work. Text beside it is not read.",
        parameters=schema,
        effect="pure",
        quick=True,
        source="answer",
    )


class Project(Frozen):
    """What a workspace is for, as agents are told of it."""

    name: str = ""
    description: str = ""
    instructions: str = ""


class AgentSpec(Frozen):
    """All that a turn runs under, pinned by its hash when the turn begins.

    `user` is whom the session speaks with. `useful` are the tools of the profile's `when_useful`
    that there is something for, decided when the session's first turn begins. `withheld` are
    tools that the agent's access does not allow it. `level` is 0 for who answers a person, and
    one more for whom that one asks. `checkpoints`: what files hold is kept before
    tools change them. `servers` are its MCP servers, whose tools are among `tools`
    once they are known, but those of `hidden`, and where `served_only` names any, only those;
    `lifecycle` says whether they may change within a session. `priority` is how urgent its calls
    are, where it is no person's conversation.
    `settings_error` tells why the workspace could not be read; such a turn ends with
    that reason as its outcome.
    """

    agent: Agent
    profile: Profile = DEFAULT
    tools: tuple[ToolSpec, ...] = ()
    project: Project = Project()
    workspace: str
    working_dir: str
    user: str = USER
    useful: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    level: int = Field(default=0, ge=0)
    checkpoints: bool = True
    servers: tuple[Server, ...] = ()
    lifecycle: Lifecycle = "frozen"
    hidden: tuple[str, ...] = ()
    served_only: tuple[str, ...] | None = None
    settings_error: str | None = None
    priority: int | None = None
    version: Literal[1] = 1

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the spec's JSON, in hex."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def history(self) -> History:
        return self.agent.history or self.profile.history

    @property
    def executors(self) -> Executors:
        return self.agent.executors or self.profile.executors

    def tool(self, name: str) -> ToolSpec | None:
        return self._tools_by_name.get(name)

    def with_tools(self, tools: tuple[ToolSpec, ...]) -> "AgentSpec":
        """The same with other tools."""
        return self.but(tools=tools)

    def but(self, **values: Any) -> "AgentSpec":
        """The same with other values. A copy would keep this one's hash."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return AgentSpec.model_construct(**{**fields, **values})

    def asks_about(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> bool:
        """Whether a person is asked before such a call ends. To answer needs no leave."""
        if tool.name == RESPONSE or tool.source == "answer":
            return False
        if tool.is_question:
            return True
        names = {tool.name, tool.runs or tool.name}
        if any(self.agent.approvals.name(name) for name in names):
            return True
        allowed = self.agent.allowed_tools
        if allowed is None:
            return tool.requires_approval and covers(tool.asks_only, arguments)
        return names.isdisjoint(allowed) and not any(
            entry.startswith(PREFIX) and fnmatchcase(tool.name, entry) for entry in allowed
        )

    @cached_property
    def served(self) -> str:
        """A digest of what its servers are, and offer."""
        texts = [server.model_dump_json() for server in self.servers]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()

    @property
    def is_pending(self) -> bool:
        """Whether the tools of its servers are still to be asked for."""
        return any(server.catalogue is None for server in self.servers)

    def hooks_before(self, tool: ToolSpec) -> tuple[ToolHook, ...]:
        """Those that may keep a call of the tool from running."""
        return of_tool(self.agent.hooks.pre_tool_use, (tool.name, tool.runs or tool.name))

    def hooks_after(self, tool: ToolSpec) -> tuple[ToolHook, ...]:
        return of_tool(self.agent.hooks.post_tool_use, (tool.name, tool.runs or tool.name))

    @cached_property
    def changing(self) -> frozenset[str]:
        """The tools that may change the world."""
        return frozenset(tool.name for tool in self.tools if tool.effect != "pure")

    @cached_property
    def runs(self) -> frozenset[str]:
        """The tools by their own names, whatever they are shown as."""
        return frozenset(tool.runs or tool.name for tool in self.tools)

    @cached_property
    def _tools_by_name(self) -> dict[str, ToolSpec]:
        return {tool.name: tool for tool in self.tools}
