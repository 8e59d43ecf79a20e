"""Swarms: one agent's work on many items, as many at once as may be."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from everturn.budgets import Budget
from everturn.errors import UsageError
from everturn.inputs import ID_CHARACTERS_MAX, checked_id, checked_text
from everturn.messages import Frozen
from everturn.session import BegunStep, OutcomeKind, TurnHead

WIDTH_MAX = 1_000
ITEMS_MAX = 100_000
ATTEMPTS_MAX = 10
NAME_CHARACTERS_MAX = ID_CHARACTERS_MAX - 20
"""Of a swarm's id: those of its items' sessions begin with it."""

SHARD_WIDTH = 25
"""Places of one shard: so many sessions are coroutines of one workflow. A shard is worked by one
worker at a time, so a swarm of some width is spread over several."""

RESULT_CHARACTERS = 8_000
"""Of one result, as a reducing agent is shown it."""

RETRIED: frozenset[OutcomeKind] = frozenset({"model_failed", "failed", "max_steps", "max_tokens"})
"""Outcomes after which another attempt may go better; nobody's decision is among them."""

SwarmState = Literal["running", "paused", "stopping", "done"]
StopReason = Literal["cancelled", "quorum", "deadline", "budget"]
ItemState = Literal["waiting", "running", "done", "failed", "cancelled", "skipped"]

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# A database may keep no character 0, and results are found by these.
_NAME = re.compile(r"[^\0]{0,200}")


class SwarmSpec(Frozen):
    """What a swarm does with each of its items, and when it stops.

    `prompt` is a template: `{field}` stands for a field of the item, `{{` and `}}` for braces.
    With `quorum` the swarm stops once so many items have completed, `deadline_seconds` after it
    began. An item that fails is tried `attempts_max` times in all. With `hedge` one that takes
    so many times the median is worked a second time beside, as the last ones are waited for, and
    the first answer counts; only where the agent's tools act on nothing. `reduce` is an agent
    that makes one result of all, `fan_in` at a time, as a tree.
    """

    agent: str = "default"
    model: str | None = None
    prompt: str = "{prompt}"
    width: int = Field(default=10, ge=1, le=WIDTH_MAX)
    quorum: int | None = Field(default=None, ge=1, le=ITEMS_MAX)
    deadline_seconds: float | None = Field(default=None, gt=0, le=365 * 86_400)
    budget: Budget | None = None
    attempts_max: int = Field(default=1, ge=1, le=ATTEMPTS_MAX)
    hedge: float | None = Field(default=None, gt=1, le=100)
    reduce: str | None = None
    reduce_prompt: str = "Make one result of these results of parts of the work.\n\n{results}"
    fan_in: int = Field(default=10, ge=2, le=100)

    @property
    def shards(self) -> list[int]:
        """The width of each shard: as even as can be."""
        count = -(-self.width // SHARD_WIDTH)
        return [self.width // count + (n < self.width % count) for n in range(count)]


def fields_of(template: str) -> tuple[str, ...]:
    """The fields that a prompt template names; raises UsageError for a brace of no pair."""
    found = []
    for match in _PLACE.finditer(template):
        if match[0] in ("{", "}") or match[1] == "":
            raise UsageError(
                f"The prompt template has a single {match[0]!r} at character {match.start() + 1};"
                " write {field} for a field of the item, {{ and }} for braces."
            )
        if match[1] is not None and match[1] not in found:
            found.append(match[1])
    return tuple(found)


def checked_name(name: str) -> str:
    """`name` where a swarm can be called so; raises UsageError otherwise."""
    checked_id(name, "swarm id")
    if ":" in name or len(name) > NAME_CHARACTERS_MAX:
        raise UsageError(
            f"The swarm id {name[:40]!a} is not possible: its items' sessions are called ID:1,"
            f" ID:2 and so on; give at most {NAME_CHARACTERS_MAX} characters, and no colon."
        )
    return name


def checked_spec(spec: SwarmSpec, items: int | None) -> None:
    """Raise UsageError for what no swarm of so many items can do; `items` is None while more may
    come."""
    fields_of(spec.prompt)
    if spec.reduce is not None and "{results}" not in spec.reduce_prompt:
        raise UsageError(
            "Field 'reduce_prompt' does not name {results}, for which the results stand; add it."
        )
    if items == 0:
        raise UsageError("The swarm has no items; send some, or begin it as open and add them.")
    if items is not None and spec.quorum is not None and spec.quorum > items:
        raise UsageError(
            f"A quorum of {spec.quorum} is not possible with {items} items; ask for fewer."
        )


def filled(template: str, values: Mapping[str, Any]) -> str:
    """`template` with its fields, as JSON what is no text; raises KeyError for a missing one."""

    def put(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        value = values[match[1]]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _PLACE.sub(put, template)


def checked_item(template: str, item: object, n: int) -> str:
    """The id of item `n`, which is the `n`th; raises UsageError where it cannot be worked."""
    if not isinstance(item, dict):
        raise UsageError(f"Item {n} is no JSON object; give each item as an object of fields.")
    name = item.get("id", n)
    text = str(name)
    if not isinstance(name, str | int) or isinstance(name, bool) or not _NAME.fullmatch(text):
        raise UsageError(
            f"The id of item {n} is no text of up to 200 characters without the character 0, and"
            " no number; give it another."
        )
    missing = [name for name in fields_of(template) if name not in item]
    if missing:
        has = ", ".join(sorted(item)) or "none"
        raise UsageError(
            f"Item {n} has no field {missing[0]!r}, which the prompt template names; it has: {has}."
        )
    checked_text(filled(template, item), f"prompt of item {n}")
    return str(name)


def session_of(swarm: str, level: int, n: int, attempt: int) -> str:
    """The session that works an item, or a node of the tree that reduces, at its nth attempt."""
    place = str(n) if level == 0 else f"r{level}.{n}"
    return f"{swarm}:{place}" + (f"-{attempt}" if attempt > 1 else "")


def reduce_prompt(template: str, results: Sequence[tuple[str, str]]) -> str:
    """What a reducing agent is asked: `results` are ids with what was answered."""
    shown = []
    for name, text in results:
        if len(text) > RESULT_CHARACTERS:
            text = f"{text[:RESULT_CHARACTERS]}\n[cut: {len(text):,} characters]"
        shown.append(f"## {name}\n{text}")
    return template.replace("{results}", "\n\n".join(shown))


# What crosses Temporal.


@dataclass(frozen=True)
class SwarmStart:
    tenant: str
    swarm: str
    history_events_max: int = 0

    @property
    def workflow_id(self) -> str:
        return f"t/{self.tenant}/w/{self.swarm}"


@dataclass(frozen=True)
class SwarmHead:
    """Where a swarm stands: `waits` items wait for a place, `works` are worked. `shards` are the
    widths of the shards that are to work it; `left_seconds` is the time to its deadline."""

    state: SwarmState
    waits: int = 0
    works: int = 0
    open: bool = False
    shards: list[int] = field(default_factory=list)
    left_seconds: float | None = None


@dataclass(frozen=True)
class ItemRef:
    """An item that a shard has taken, or a node of the tree (`level` above 0)."""

    level: int
    n: int
    session: str


@dataclass(frozen=True)
class ShardStart:
    """`carried` are items under way when the run before continued as this one; one that is
    `retired` takes no more."""

    tenant: str
    swarm: str
    width: int
    carried: list[ItemRef] = field(default_factory=list)
    history_events_max: int = 0
    retired: bool = False


@dataclass(frozen=True)
class TakeItems:
    """`run_id` and `k`, counting the takings of that run, make a taking the same when repeated."""

    tenant: str
    swarm: str
    run_id: str
    k: int
    most: int


@dataclass(frozen=True)
class Taken:
    """`then` says what is to be done once these are worked: take more, wait until told (or for
    `wait_seconds`, where that is not 0), or end; `stopping` that those under way are to be
    stopped."""

    items: list[ItemRef]
    then: Literal["more", "wait", "end"]
    stopping: bool = False
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class BeginItem:
    """`previous_run_id` is the run that continued as this one, if any; `k` counts the turns that
    this run began for the item's session."""

    tenant: str
    swarm: str
    item: ItemRef
    workflow_id: str
    run_id: str
    previous_run_id: str | None
    k: int = 0


@dataclass(frozen=True)
class GiveUpItem:
    """An item that could not be begun, and why."""

    tenant: str
    swarm: str
    item: ItemRef
    reason: str


@dataclass(frozen=True)
class BegunItem:
    """`turn` is None where nothing is left to do; `more`: another turn of the session waits.
    `step` is the turn's next step, where that is begun already."""

    turn: TurnHead | None = None
    step: BegunStep | None = None
    more: bool = False
