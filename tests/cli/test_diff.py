"""The difference of two trajectories on a terminal of 80 columns."""

from everturn.forks import ForkedFrom
from everturn.trajectories import CallTrace, StepTrace, Trajectory, TurnTrace, difference
from everturn_workers.cli.diff import shown


def call(name: str, result: str, recorded: bool = False, **arguments: object) -> CallTrace:
    return CallTrace(name=name, arguments=arguments, result=result, recorded=recorded)


def step(number: int, *calls: CallTrace, text: str = "", cost: float = 0.01) -> StepTrace:
    figures = {"input_tokens": 1200, "output_tokens": 40, "cost_usd": cost, "seconds": 1.25}
    stop = "tool_use" if calls else "end_turn"
    return StepTrace(turn=2, step=number, model="m", stop=stop, text=text, calls=calls, **figures)


def told(*steps: StepTrace, name: str, forked: ForkedFrom | None = None) -> Trajectory:
    turn = TurnTrace(turn=2, said="Why is\nit red?", outcome="completed", seconds=3, steps=steps)
    return Trajectory(session=name, turns=(turn,), forked=forked)


A = told(
    step(1, call("read_file", "the old text", path="a.txt")),
    step(2, call("search", "3 hits", pattern="red", path="src")),
    step(3, call("search", "none", pattern="blue")),
    step(4, text="It is red.\nThat is all."),
    name="morning",
)
B = told(
    step(1, call("read_file", "the old text", recorded=True, path="a.txt"), cost=0.02),
    step(2, call("search", "1 hit\x1b[31m", pattern="x" * 100, path="src"), cost=0.02),
    step(3, text="It is blue.\nThat is all.", cost=0.02),
    name="what-if",
    forked=ForkedFrom(session="morning", turn=1, turns=(2,), unrecorded="refuse"),
)


def test_a_difference_reads_well_in_80_columns() -> None:
    lines = [line.plain for line in shown(difference(A, B), 80)]
    assert all(len(line) <= 80 for line in lines)
    assert lines == [
        "A  morning",
        "B  what-if",
        "B works turn 2 of A again with recorded results.",
        "They part at step 2.2 of A.",
        "",
        "A  turn 2, completed in 3.0 s: Why is it red?",
        "B  turn 2, completed in 3.0 s: Why is it red?",
        "  =     2.1     2.1 read_file (recorded)",
        "  -     2.2         search",
        "  ~     2.3     2.2 search",
        "                    ~ search",
        "                    -   pattern: blue",
        "                    +   pattern: " + "x" * 46 + "…",
        "                    +   path: src",
        "                    -   result: none",
        "                    +   result: 1 hit\ufffd[31m",
        "                    A 1,200 in, 40 out, $0.0100, 1.2 s",
        "                    B 1,200 in, 40 out, $0.0200, 1.2 s",
        '  ~     2.4     2.3 "It is red. That is all." | "It is blue. That is all."',
        "                    - It is red.",
        "                    + It is blue.",
        "                    A 1,200 in, 40 out, $0.0100, 1.2 s",
        "                    B 1,200 in, 40 out, $0.0200, 1.2 s",
        "",
        "                             A             B         B - A",
        "turns                        1             1",
        "steps                        4             3            -1",
        "calls                        3             2            -1",
        "failed calls                 0             0",
        "recorded calls               0             1            +1",
        "input tokens             4,800         3,600        -1,200",
        "output tokens              160           120           -40",
        "cost                   $0.0400       $0.0600      +$0.0200",
        "seconds                    3.0           3.0          +0.0",
    ]


def test_results_that_begin_alike_are_shown_from_where_they_differ() -> None:
    alike = "the same beginning of a long result " * 3
    one, two = (told(step(1, call("look", alike + end)), name=end) for end in ("red", "blue"))
    lines = [line.plain.strip() for line in shown(difference(one, two), 80)]
    changed = [line for line in lines if "result: …" in line]
    assert [line[-8:] for line in changed] == ["sult red", "ult blue"]


def test_sessions_that_did_the_same_say_so() -> None:
    lines = [line.plain for line in shown(difference(A, A), 80)]
    assert lines[2] == "They did the same."
