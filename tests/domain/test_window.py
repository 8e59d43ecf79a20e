"""Rows B23, K20, T15, T16: what fits into a window, and how full it is."""

import pytest
from pydantic import ValidationError

from everturn.agents import Compaction
from everturn.context.window import Frame, history_budget, newest_that_fit, reserved


@pytest.mark.parametrize(
    ("used", "level"),
    [(79_000, "none"), (80_000, "warn"), (90_000, "compact"), (95_000, "critical")],
)
def test_B23_levels_of_a_window_of_100k(used: int, level: str) -> None:
    assert Frame(window=100_000).level(used) == level


def test_K20_context_tools_history_and_reply_share_one_window() -> None:
    frame = Frame(window=1000, system=300, tools=400, generation=200)
    assert history_budget(frame, 0) == 100
    sections = frame.sections(history=60, memory=30)
    assert (sections.request, sections.used, sections.remaining) == (790, 990, 10)
    assert sections.budget == 70


def test_T15_the_history_gets_what_prompt_tools_and_message_leave() -> None:
    assert history_budget(Frame(window=4096, system=500, tools=600), 100) == 2896


def test_T15_a_full_window_leaves_the_history_nothing() -> None:
    assert history_budget(Frame(window=1000, system=900), 300) == 0


def test_C11_a_reply_as_long_as_the_window_keeps_half_of_it_free() -> None:
    assert reserved(4096, 4096) == 2048
    assert reserved(4096, 1000) == 1000
    assert reserved(4096, None) == 0


def test_T16_the_newest_messages_that_fit_are_taken() -> None:
    assert newest_that_fit([100] * 10, 350) == 7
    assert newest_that_fit([100] * 10, 99) == 10
    assert newest_that_fit([100] * 10, 5000) == 0


def test_levels_that_do_not_rise_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValidationError, match=r"warn, at and critical are 0\.95, 0\.9 and 0\.95"):
        Compaction(warn=0.95)
