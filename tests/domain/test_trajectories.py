"""Two trajectories side by side: what stands for what, and where they part."""

from everturn.forks import ForkedFrom
from everturn.trajectories import (
    TEXT_CHARACTERS,
    CallTrace,
    Changed,
    StepTrace,
    Trajectory,
    TurnTrace,
    difference,
)


def call(name: str, result: str | None = "ok", **arguments: object) -> CallTrace:
    return CallTrace(name=name, arguments=arguments, result=result)


def step(number: int, *calls: CallTrace, text: str = "", turn: int = 1) -> StepTrace:
    stop = "tool_use" if calls else "end_turn"
    figures = {"input_tokens": 10, "output_tokens": 1, "cost_usd": 0.5, "seconds": 1.0}
    return StepTrace(
        turn=turn, step=number, model="m", stop=stop, text=text, calls=calls, **figures
    )


def turn(number: int, *steps: StepTrace, outcome: str = "completed") -> TurnTrace:
    return TurnTrace(turn=number, said="go", outcome=outcome, seconds=2.0, steps=steps)


def session(name: str, *turns: TurnTrace, forked: ForkedFrom | None = None) -> Trajectory:
    return Trajectory(session=name, turns=turns, forked=forked)


def test_the_same_steps_are_the_same_whatever_they_cost() -> None:
    cheap = step(1, text="so").model_copy(update={"cost_usd": 0.1, "seconds": 9.0})
    found = difference(session("a", turn(1, step(1, text="so"))), session("b", turn(1, cheap)))
    assert found.same
    assert (found.parts_a, found.parts_b) == (None, None)
    assert (found.totals_a.cost_usd, found.totals_b.cost_usd) == (0.5, 0.1)


def test_a_step_that_only_one_took_does_not_put_the_others_out_of_step() -> None:
    look, read, end = call("look"), call("read", path="a"), step(9, text="so")
    a = session("a", turn(1, step(1, look), step(2, read), end))
    b = session("b", turn(1, step(1, read), end))
    (found,) = difference(a, b).turns
    assert [one.how for one in found.steps] == ["only_a", "same", "same"]
    assert difference(a, b).parts_a == "1.1"
    assert difference(a, b).parts_b is None
    assert difference(b, a).turns[0].steps[0].how == "only_b"


def test_calls_tell_which_arguments_and_results_differ() -> None:
    a = session("a", turn(1, step(1, call("read", "old", path="a", lines=3, deep={"b": 1}))))
    b = session("b", turn(1, step(1, call("read", "new", path="b", lines=3, more=True))))
    ((found,),) = (one.calls for one in difference(a, b).turns[0].steps)
    assert found.arguments == (
        Changed(name="path", a="a", b="b"),
        Changed(name="deep", a='{"b": 1}', b=None),
        Changed(name="more", a=None, b="true"),
    )
    assert (found.how, found.result) == ("changed", "changed")
    assert (found.result_a, found.result_b) == ("old", "new")


def test_an_equal_call_with_another_result_is_where_they_part() -> None:
    a = session("a", turn(1, step(1, call("read", "old")), step(2, text="so")))
    b = session("b", turn(1, step(1, call("read", "new")), step(2, text="so")))
    found = difference(a, b)
    assert (found.parts_a, found.parts_b) == ("1.1", "1.1")
    assert [one.how for one in found.turns[0].steps] == ["changed", "same"]
    failed = call("read", "old").model_copy(update={"failed": True})
    assert not difference(a, session("b", turn(1, step(1, failed), step(2, text="so")))).same


def test_texts_differ_by_lines() -> None:
    a = session("a", turn(1, step(1, text="one\ntwo\nthree")))
    b = session("b", turn(1, step(1, text="one\n2\nthree")))
    assert difference(a, b).turns[0].steps[0].text == ("-two", "+2")


def test_only_what_comes_behind_a_fork_is_compared_with_its_origin() -> None:
    first, more = (
        turn(1, step(1, call("look")), step(2, text="so")),
        turn(2, step(1, text="and", turn=2)),
    )
    whole = session("a", first, more)
    fork = session("b", turn(2, step(1, text="or")), forked=ForkedFrom(session="a", turn=1))
    found = difference(whole, fork)
    assert [(one.a.turn, one.b.turn) for one in found.turns if one.a and one.b] == [(2, 2)]
    assert (found.shared, found.parts_a) == (fork.forked, "2.1")
    assert found.totals_a.steps == 1
    # In the midst of a turn, its rest stands for the fork's first turn.
    fork = session("b", turn(2, step(1, text="so")), forked=ForkedFrom(session="a", turn=1, step=1))
    found = difference(fork, whole)
    assert found.turns[0].how == "same"
    assert [one.how for one in found.turns] == ["same", "only_b"]
    assert not found.same


def test_another_outcome_of_the_same_steps_is_a_difference() -> None:
    a, b = (session(n, turn(1, step(1, text="x"), outcome=n)) for n in ("completed", "cancelled"))
    found = difference(a, b)
    assert (found.same, found.parts_a, found.turns[0].how) == (False, None, "changed")


def test_long_texts_are_compared_whole_and_shown_cut() -> None:
    long = "x" * (TEXT_CHARACTERS + 1)
    a = session("a", turn(1, step(1, call("read", f"{long}1", path=f"{long}3"))))
    b = session("b", turn(1, step(1, call("read", f"{long}2", path=f"{long}3"))))
    (found,) = difference(a, b).turns[0].steps
    assert found.calls[0].result == "changed"
    assert found.a is not None
    shown = (found.calls[0].result_a, found.a.calls[0].result, found.a.calls[0].arguments["path"])
    assert [len(one or "") for one in shown] == [TEXT_CHARACTERS] * 3


def test_hundreds_of_steps_that_call_the_same_are_compared_one_after_the_other() -> None:
    numbers = range(1, 401)
    one = [step(n, call("read", path=f"a{n}")) for n in numbers]
    two = [step(n, call("read" if n % 2 else "grep", path=f"b{n}")) for n in numbers]
    (found,) = difference(session("a", turn(1, *one)), session("b", turn(1, *two))).turns
    assert [(step.a.step, step.b.step) for step in found.steps if step.a and step.b] == [
        (n, n) for n in numbers
    ]
