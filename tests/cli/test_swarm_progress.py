"""What a person is shown of a swarm: how far it is, and how it ended, in words."""

import io
from typing import Any

import pytest
import typer
from rich.console import Console

from everturn.swarm_views import SwarmView
from everturn_workers.cli.swarm_progress import Progress, ending, line
from everturn_workers.cli.swarms import _exit_as

SPEC = {"deadline_seconds": 1800, "reduce": None}


def view(**given: Any) -> SwarmView:
    known = {"id": "w", "state": "running", "items": 10, "workspace": "/", "created_at": 0.0}
    spec = given.pop("spec", {})
    return SwarmView.model_validate({**known, "spec": {**SPEC, **spec}, **given})


def done(**given: Any) -> SwarmView:
    return view(state="done", begun_at=5.0, ended_at=95.0, **given)


def test_a_line_says_how_far_a_swarm_is() -> None:
    counts = {"done": 4, "failed": 1, "running": 2, "waiting": 3}
    running = view(counts=counts, items_per_second=0.5, left_seconds=10, cost_usd=0.25)
    assert line(running) == (
        "5 of 10: 4 done, 1 failed, 2 running, 3 waiting; 30.0/min, $0.2500, 10 s left."
    )
    open_one = view(state="paused", open=True, counts={"waiting": 10})
    assert line(open_one) == "0 of 10 and more: 10 waiting; paused, $0.0000."
    reducing = view(counts={"done": 10}, reducing=2)
    assert line(reducing) == "10 of 10: 10 done; reducing, level 2, $0.0000."


@pytest.mark.parametrize(
    ("swarm", "sentences", "code"),
    [
        (done(counts={"done": 10}), "Swarm w has done 10 of 10 items, in 1 min 30 s, $0.0000.", 0),
        (done(counts={"done": 9, "failed": 1}), "9 of 10 items, 1 failed", 4),
        (done(counts={"done": 9, "failed": 1}), "'everturn swarm resume w --retry-failed'", 4),
        (done(counts={"failed": 10}), "has done 0 of 10 items, 10 failed", 1),
        (
            done(counts={"done": 3, "skipped": 7}, reason="quorum"),
            "It stopped at its quorum: 3 items had completed.",
            0,
        ),
        (
            done(counts={"done": 3, "cancelled": 7}, reason="deadline"),
            "It stopped at its deadline, 30 min after it began.",
            4,
        ),
        (
            done(counts={"done": 3, "skipped": 7}, reason="budget"),
            "It stopped at its budget; raise it with 'everturn budget raise w --usd LIMIT'.",
            4,
        ),
        (done(counts={"skipped": 10}, reason="cancelled"), "It was cancelled.", 1),
        (
            done(counts={"done": 10}, spec={"reduce": "critic"}),
            "Agent critic made no result of them; 'everturn sessions show w' lists its sessions.",
            1,
        ),
        (done(counts={"done": 10}, spec={"reduce": "critic"}, text="All."), "has done 10", 0),
    ],
    ids=range(10),
)
def test_how_a_swarm_ended_is_said_in_words_and_by_the_exit_code(
    capsys: pytest.CaptureFixture[str], swarm: SwarmView, sentences: str, code: int
) -> None:
    exited = 0
    try:
        _exit_as(swarm, json=False)
    except typer.Exit as exit_:
        exited = exit_.exit_code
    said = capsys.readouterr()
    assert sentences in said.err
    assert (exited, said.out) == (code, f"{swarm.text}\n" if swarm.text else "")
    retried = {"failed", "cancelled", "skipped"} & {
        name for name, count in swarm.counts.model_dump().items() if count
    }
    wanted = bool(retried) and swarm.reason != "quorum"
    assert ("--retry-failed" in "".join(ending(swarm))) is wanted


def test_a_bar_is_drawn_on_a_terminal_and_taken_away_in_the_end() -> None:
    drawn = io.StringIO()
    with Progress(Console(file=drawn, force_terminal=True, width=80, highlight=False)) as progress:
        progress.show(view(counts={"done": 5, "running": 5}))
        shown = drawn.getvalue()
        progress.show(view(counts={"done": 5, "running": 5}, asking=["w:1"]))
    assert "5 of 10" in shown
    assert "5 done, 5 running; $0.0000" in shown
    assert "Waiting for a person: w:1; see 'everturn swarm show w'." in drawn.getvalue()
    assert drawn.getvalue().endswith("\x1b[1A\x1b[2K")


def test_elsewhere_it_is_a_line_at_first_and_as_the_state_changes() -> None:
    said = io.StringIO()
    with Progress(Console(file=said, width=40)) as progress:
        for state in ("running", "running", "paused", "done"):
            progress.show(view(state=state, counts={"waiting": 10}, asking=["w:1"]))
    assert said.getvalue().splitlines() == [
        "Waiting for a person: w:1; see 'everturn swarm show w'.",
        "0 of 10: 10 waiting; $0.0000.",
        "0 of 10: 10 waiting; paused, $0.0000.",
    ]
    with Progress(Console(file=said), quiet=True) as progress:
        progress.show(view(asking=["w:2"]))
    assert "w:2" not in said.getvalue()
