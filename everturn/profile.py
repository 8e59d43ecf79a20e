"""Profiles: how a context is composed, as data. A new profile is only a file."""

from string import Formatter
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from everturn.mcp import Lifecycle
from everturn.memory import MemoryRules
from everturn.messages import Frozen
from everturn.skills import SkillRules

BOUNDARY = "boundary"
"""The source of the pseudo-layer below which nothing is kept in a provider's cache."""

SUMMARY = "summary"
"""The source of the layer that a compaction's summary stands in, where that is its sink."""

ESCAPES = ("", "xml", "line")
"""What a field of a template may be escaped for: `{name:xml}`, or `{value:line}` for one line."""


class Layer(Frozen):
    """One block of context: where its items come from, and how they are written.

    A `source` gives items, each a set of named texts; `item` writes one of them, `join` stands
    between them, `header` above them all and `footer` below. `item_chars_max` cuts an item's
    `text`, `chars_max` the whole. `text` is what the source `text` gives, and what stands there
    when a layer with `missing = "default"` has no item. `options` are the source's own.

    `frame` is what stands around the whole: `entry` is kiro's, `heading` writes `title` above
    it, `xml` takes `title` for its tag, `prefix` writes it before the first word.
    Text of which `trust` is `reference` is marked as nothing to obey.
    `scope` says how long the text stands: for the session, for the turn, or for one step.
    """

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    source: str
    text: str = ""
    header: str = ""
    footer: str = ""
    item: str = "{text}"
    join: str = "\n"
    frame: Literal["none", "entry", "heading", "xml", "prefix"] = "none"
    title: str = ""
    item_chars_max: int | None = Field(default=None, ge=32)
    chars_max: int | None = Field(default=None, ge=32)
    missing: Literal["skip", "default"] = "skip"
    trust: Literal["instructions", "reference"] = "instructions"
    scope: Literal["session", "turn", "step"] = "turn"
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("item")
    @classmethod
    def _template(cls, given: str) -> str:
        try:
            fields = [part for part in Formatter().parse(given) if part[1] is not None]
        except ValueError as error:
            raise ValueError(f"the template {given!r} is broken: {error}") from None
        for _, name, escape, conversion in fields:
            if not str(name).isidentifier() or conversion or escape not in ESCAPES:
                raise ValueError(
                    f"the template {given!r} has a field that is not {{name}}, {{name:xml}} or"
                    " {name:line}"
                )
        return given

    @model_validator(mode="after")
    def _titled(self) -> "Layer":
        if self.frame in ("heading", "xml", "prefix") and not self.title:
            raise ValueError(f"layer {self.id!r} has the frame {self.frame!r} and no title")
        return self


class Recipe(Frozen):
    """Ordered layers. In the mode `pair` they are a user's message that `ack` answers, in the
    mode `system` the system prompt; `separator` stands between them.

    What is above the layer of source `boundary` is the same from step to step, and a provider
    may keep it; without one that is what is above the first layer of scope `step`.
    """

    mode: Literal["pair", "system"] = "system"
    ack: str = ""
    separator: str = "\n\n"
    layers: tuple[Layer, ...]

    @model_validator(mode="after")
    def _ordered(self) -> "Recipe":
        ids = [layer.id for layer in self.layers]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"two layers are called {name!r}")
        if self.mode == "pair" and not self.ack:
            raise ValueError("the mode 'pair' needs an ack, which answers the context")
        above = True
        bounded = any(layer.source == BOUNDARY for layer in self.layers)
        for layer in self.layers:
            above = above and layer.source != BOUNDARY
            if bounded and above and layer.scope == "step":
                raise ValueError(
                    f"layer {layer.id!r} is above the boundary and changes with each step"
                )
        return self

    @property
    def by_step(self) -> bool:
        """Whether any layer changes with each step."""
        return any(layer.scope == "step" for layer in self.layers)

    @property
    def pinned(self) -> tuple[Layer, ...]:
        """The layers that are written once for a session and an agent."""
        return tuple(layer for layer in self.layers if layer.scope == "session")


class History(Frozen):
    """What of earlier turns a request holds.

    `load`: all of it, or `tail_tokens`, the newest messages that fit beside this turn's. That is
    reckoned when a turn begins, and with `retrim = "step"` before each step.
    `reserve_generation` is how many tokens of the window are kept free for the reply; None means
    the agent's `tokens_max`. `project`: of turns that are over all is sent, or only what their
    users said and the final reply.
    """

    load: Literal["all", "tail_tokens"] = "all"
    reserve_generation: int | None = Field(default=None, ge=0)
    retrim: Literal["never", "step"] = "never"
    project: Literal["full", "user_and_final"] = "full"

    @property
    def projects(self) -> bool:
        return self.project != "full"


class Summaries(Frozen):
    """Where the summary of a compaction stands: it is the first `message` of the history, or the
    text of the `layer` whose source is `summary`."""

    sink: Literal["message", "layer"] = "message"


class Executors(Frozen):
    """Whether agents hand work to executors, and what those are like.

    An agent at level `depth_max` hands on nothing; one that answers a person is at level 0.
    `concurrent_max` executors of a session work at once. A new one is shown the last
    `parent_tail` messages of its parent, sees none of `minus_tools`, and takes `steps_max`
    steps at most; where the call names no other agent, `model` answers. `recipe` composes its
    context in place of the profile's own.

    With `managed` who answers a person only hands on: it sees `delegate`, what it answers with,
    and `manager_tools`.
    """

    depth_max: int = Field(default=0, ge=0, le=8)
    concurrent_max: int = Field(default=4, ge=1, le=1_000)
    parent_tail: int = Field(default=0, ge=0, le=200)
    minus_tools: tuple[str, ...] = ()
    model: str | None = None
    steps_max: int | None = Field(default=None, ge=1, le=10_000)
    recipe: Recipe | None = None
    managed: bool = False
    manager_tools: tuple[str, ...] = ()


class ServerRules(Frozen):
    """Whether agents have MCP servers: `frozen` as they were when a session began, `hot` as they
    are when a turn begins, or `none`."""

    lifecycle: Lifecycle = "frozen"


class Profile(Frozen):
    """How context is composed and what an agent does where its own file says nothing.

    `agent` holds defaults for the fields of `Agent`. `aliases` are other names for tools:
    `{"fs_read": "read_file"}` shows the tool `read_file` as `fs_read`. With `strict_allowed` an
    agent's `allowed_tools` are the only ones that it sees, and not only those that nobody is
    asked about. Tools of `when_useful` are shown where there is something for them to work on, or
    an agent's file names them: `code` where the working folder may hold code, `knowledge_query`
    where a folder was added to be searched. `memory` says which facts a turn reads and keeps,
    `executors` whether it hands work on, `mcp` whether its agents have MCP servers.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    description: str = ""
    recipe: Recipe
    aliases: dict[str, str] = Field(default_factory=dict)
    history: History = History()
    compaction: Summaries = Summaries()
    skills: SkillRules = SkillRules()
    strict_allowed: bool = False
    when_useful: tuple[Literal["code", "knowledge_query"], ...] = ()
    agent: dict[str, Any] = Field(default_factory=dict)
    memory: MemoryRules = MemoryRules()
    executors: Executors = Executors()
    mcp: ServerRules = ServerRules()

    @model_validator(mode="after")
    def _summarised(self) -> "Profile":
        sources = [layer.source for layer in self.recipe.layers]
        if self.compaction.sink == "layer" and SUMMARY not in sources:
            raise ValueError(
                "compaction.sink is 'layer', and no layer has the source 'summary'; add one"
            )
        return self


DEFAULT = Profile(
    name="default",
    description="The agent's prompt and nothing else.",
    recipe=Recipe(layers=(Layer(id="agent_prompt", source="agent_prompt"),)),
)
"""What stands where nobody has read a file."""
