"""Trajectories: what sessions did, step by step, and where two of them part."""

import difflib
import json
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from everturn.forks import ForkedFrom, place_text
from everturn.messages import Frozen
from everturn.session import OutcomeKind, Stop

How = Literal["same", "changed", "only_a", "only_b"]
TEXT_CHARACTERS = 4_000
"""Of a text, an argument or a result, as a difference shows it."""
TEXT_LINES = 40
"""Of the lines in which two texts differ."""


class CallTrace(Frozen):
    """A call with what came of it; `result` is None where nothing did."""

    name: str
    arguments: dict[str, Any]
    result: str | None = None
    failed: bool = False
    recorded: bool = False


class StepTrace(Frozen):
    """A step: `seconds` are those of its model call."""

    turn: int
    step: int
    model: str
    stop: Stop | None
    text: str = ""
    calls: tuple[CallTrace, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    seconds: float | None = None

    @property
    def place(self) -> str:
        return place_text(self.turn, self.step)

    @property
    def asked(self) -> Hashable:
        """What it decided to do, equal for steps that did the same."""
        return tuple(map(_asked, self.calls)) or self.text


class TurnTrace(Frozen):
    """A turn: what its users `said`, how it ended, and its steps."""

    turn: int
    said: str
    outcome: OutcomeKind | None
    seconds: float | None
    steps: tuple[StepTrace, ...] = ()


class Trajectory(Frozen):
    """The turns that a session has worked itself."""

    session: str
    forked: ForkedFrom | None = None
    turns: tuple[TurnTrace, ...] = ()

    def behind(self, turn: int, step: int | None) -> "Trajectory":
        """What of it comes behind a step, or a whole turn."""
        kept = [one for one in self.turns if one.turn > turn]
        if step is not None:
            for one in self.turns:
                if one.turn == turn and (rest := tuple(s for s in one.steps if s.step > step)):
                    kept.insert(0, one.model_copy(update={"steps": rest, "said": ""}))
        return self.model_copy(update={"turns": tuple(kept)})


class Changed(Frozen):
    """A value in each; None where there is none."""

    name: str
    a: str | None
    b: str | None


class CallDiff(Frozen):
    """Calls that stand for each other. `arguments` are those that differ."""

    how: How
    a: str | None
    b: str | None
    arguments: tuple[Changed, ...] = ()
    result: Literal["same", "changed"] = "same"
    result_a: str | None = None
    result_b: str | None = None
    recorded_a: bool = False
    recorded_b: bool = False


class StepDiff(Frozen):
    """Steps that stand for each other; `text` are the lines in which their texts differ."""

    how: How
    a: StepTrace | None
    b: StepTrace | None
    calls: tuple[CallDiff, ...] = ()
    text: tuple[str, ...] = ()


class TurnDiff(Frozen):
    how: How
    a: TurnTrace | None
    b: TurnTrace | None
    steps: tuple[StepDiff, ...] = ()


class Totals(Frozen):
    """Sums over the steps that are compared; `unpriced` are those without a known price."""

    turns: int = 0
    steps: int = 0
    calls: int = 0
    failed_calls: int = 0
    recorded_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    seconds: float = 0.0


class Difference(Frozen):
    """Answer of `GET /v1/diff`: the trajectories `a` and `b`, behind what both have in common.

    `shared` is where one was forked from the other. `parts_a` and `parts_b` are the steps at which
    they first part, both None where they do not.
    """

    a: str
    b: str
    shared: ForkedFrom | None
    parts_a: str | None
    parts_b: str | None
    same: bool
    turns: tuple[TurnDiff, ...]
    totals_a: Totals
    totals_b: Totals


_One = TypeVar("_One")


def difference(a: Trajectory, b: Trajectory) -> Difference:
    """How two trajectories differ, in what comes behind where one was forked from the other."""
    shared = None
    for fork, other in ((b, a), (a, b)):
        if shared is None and fork.forked is not None and fork.forked.session == other.session:
            shared = fork.forked
    pairs: Sequence[tuple[TurnTrace | None, TurnTrace | None]]
    if shared is None:
        pairs = list(_by_number(a.turns, b.turns))
    else:
        a, b = (_behind(one, shared) for one in (a, b))
        pairs = list(_in_order(a.turns, b.turns))
    turns = tuple(_turn(one, two) for one, two in pairs)
    steps = [step for turn in turns for step in turn.steps]
    part = next((step for step in steps if step.how != "same"), None)
    return Difference(
        a=a.session,
        b=b.session,
        shared=shared,
        parts_a=part.a.place if part is not None and part.a is not None else None,
        parts_b=part.b.place if part is not None and part.b is not None else None,
        same=all(turn.how == "same" for turn in turns),
        turns=turns,
        totals_a=totals(a.turns),
        totals_b=totals(b.turns),
    )


def _behind(one: Trajectory, shared: ForkedFrom) -> Trajectory:
    """What of a fork, or of its origin, is compared: of turns worked again, only those."""
    rest = one.behind(shared.turn, shared.step)
    if not shared.turns or one.session != shared.session:
        return rest
    turns = tuple(turn for turn in rest.turns if turn.turn in shared.turns)
    return rest.model_copy(update={"turns": turns})


def totals(turns: Sequence[TurnTrace]) -> Totals:
    steps = [step for turn in turns for step in turn.steps]
    calls = [call for step in steps for call in step.calls]
    return Totals(
        turns=len(turns),
        steps=len(steps),
        calls=len(calls),
        failed_calls=sum(call.failed for call in calls),
        recorded_calls=sum(call.recorded for call in calls),
        input_tokens=sum(step.input_tokens for step in steps),
        output_tokens=sum(step.output_tokens for step in steps),
        cost_usd=sum(step.cost_usd or 0.0 for step in steps),
        unpriced=sum(step.cost_usd is None for step in steps),
        seconds=sum(turn.seconds or 0.0 for turn in turns),
    )


def _by_number(
    a: Sequence[TurnTrace], b: Sequence[TurnTrace]
) -> Iterator[tuple[TurnTrace | None, TurnTrace | None]]:
    one, two = ({turn.turn: turn for turn in turns} for turns in (a, b))
    for number in sorted({*one, *two}):
        yield one.get(number), two.get(number)


def _in_order(a: Sequence[_One], b: Sequence[_One]) -> Iterator[tuple[_One | None, _One | None]]:
    for index in range(max(len(a), len(b))):
        yield (a[index] if index < len(a) else None), (b[index] if index < len(b) else None)


def _turn(a: TurnTrace | None, b: TurnTrace | None) -> TurnDiff:
    pairs = _aligned(
        a.steps if a is not None else (),
        b.steps if b is not None else (),
        lambda step: step.asked,
        lambda step: tuple(map(_name, step.calls)),
    )
    steps = tuple(_step(one, two) for one, two in pairs)
    how = _how(a, b)
    if a is not None and b is not None:
        alike = a.outcome == b.outcome and all(step.how == "same" for step in steps)
        how = "same" if alike else "changed"
    return TurnDiff(how=how, a=a, b=b, steps=steps)


def _step(a: StepTrace | None, b: StepTrace | None) -> StepDiff:
    if a is None or b is None:
        return StepDiff(how=_how(a, b), a=_short(a), b=_short(b))
    pairs = _aligned(a.calls, b.calls, _asked, _name)
    calls = tuple(_call(one, two) for one, two in pairs)
    same = a.text == b.text and a.stop == b.stop and all(call.how == "same" for call in calls)
    return StepDiff(
        how="same" if same else "changed",
        a=_short(a),
        b=_short(b),
        calls=calls,
        text=() if a.text == b.text else _lines(a.text, b.text),
    )


def _asked(call: CallTrace) -> Hashable:
    return call.name, _canonical(call.arguments)


def _name(call: CallTrace) -> str:
    return call.name


def _call(a: CallTrace | None, b: CallTrace | None) -> CallDiff:
    told = {
        "a": None if a is None else a.name,
        "b": None if b is None else b.name,
        "result_a": None if a is None else _cut(a.result),
        "result_b": None if b is None else _cut(b.result),
        "recorded_a": a is not None and a.recorded,
        "recorded_b": b is not None and b.recorded,
    }
    if a is None or b is None:
        in_a = {} if a is None else a.arguments
        in_b = {} if b is None else b.arguments
        given = (_changed(name, in_a, in_b) for name in {**in_a, **in_b})
        return CallDiff(how=_how(a, b), arguments=tuple(given), result="changed", **told)
    arguments = tuple(
        _changed(name, a.arguments, b.arguments)
        for name in {**a.arguments, **b.arguments}
        if _of(a.arguments, name) != _of(b.arguments, name)
    )
    alike = (a.result, a.failed) == (b.result, b.failed)
    same = a.name == b.name and not arguments and alike
    return CallDiff(
        how="same" if same else "changed",
        arguments=arguments,
        result="same" if alike else "changed",
        **told,
    )


def _changed(name: str, a: dict[str, Any], b: dict[str, Any]) -> Changed:
    return Changed(name=name, a=_cut(_of(a, name)), b=_cut(_of(b, name)))


def _of(arguments: dict[str, Any], name: str) -> str | None:
    """An argument as it reads best; None where it is not given."""
    if name not in arguments:
        return None
    value = arguments[name]
    return value if isinstance(value, str) else _canonical(value)


def _canonical(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _aligned(
    a: Sequence[_One], b: Sequence[_One], *keys: Any
) -> Iterator[tuple[_One | None, _One | None]]:
    """What stands for each other: those equal by the first key, between these those equal by the
    next, and between all of these one after the other."""
    if not keys:
        yield from _in_order(a, b)
        return
    first, *others = keys
    # It leaves what many of hundreds share to the end: else its time grows with their cube.
    matcher = difflib.SequenceMatcher(None, [*map(first, a)], [*map(first, b)])
    for _, first_a, last_a, first_b, last_b in matcher.get_opcodes():
        # What is equal by one key is so by the next.
        yield from _aligned(a[first_a:last_a], b[first_b:last_b], *others)


def _lines(a: str, b: str) -> tuple[str, ...]:
    lines = list(difflib.unified_diff(a.splitlines(), b.splitlines(), n=0, lineterm=""))[2:]
    found = [_cut(line) or "" for line in lines if not line.startswith("@@")]
    if len(found) > TEXT_LINES:
        found[TEXT_LINES:] = [f"… and {len(found) - TEXT_LINES} more lines"]
    return tuple(found)


def _how(a: object, b: object) -> How:
    return "only_b" if a is None else "only_a" if b is None else "changed"


def _short(step: StepTrace | None) -> StepTrace | None:
    if step is None:
        return None
    calls = tuple(
        call.model_copy(
            update={
                "result": _cut(call.result),
                "arguments": {
                    name: value if len(shown := _of(call.arguments, name) or "") <= TEXT_CHARACTERS
                    else _cut(shown)
                    for name, value in call.arguments.items()
                },
            }
        )
        for call in step.calls
    )  # fmt: skip
    return step.model_copy(update={"text": _cut(step.text), "calls": calls})


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= TEXT_CHARACTERS:
        return text
    return f"{text[: TEXT_CHARACTERS - 1]}…"
