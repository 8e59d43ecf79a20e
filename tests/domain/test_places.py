"""How steps and edited results are written."""

import pytest

from everturn.errors import UsageError
from everturn.forks import ForkedFrom, edit_from_text, place_from_text


def test_a_place_is_a_turn_or_a_step_of_one() -> None:
    assert place_from_text("2") == (2, None)
    assert place_from_text("12.3") == (12, 3)


@pytest.mark.parametrize("text", ["", "0", "1.0", "1.x", "1.2.3", "-1", "1.", "9999999999"])
def test_what_is_no_place_is_refused_with_how_one_is_written(text: str) -> None:
    with pytest.raises(UsageError, match=r"write TURN\.STEP such as 2\.1, or TURN"):
        place_from_text(text)


def test_an_edited_result_names_its_call_and_may_be_empty_or_hold_anything() -> None:
    edit = edit_from_text("2.1.0=a=b\n c")
    assert (edit.place, edit.text) == ("2.1.0", "a=b\n c")
    assert edit_from_text("2.1.3=").text == ""


@pytest.mark.parametrize("text", ["2.1=x", "2.1.0", "0.1.0=x", "a.b.c=x", "2.1.-1=x"])
def test_an_edit_without_a_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"write TURN\.STEP\.INDEX=TEXT"):
        edit_from_text(text)


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ({"turn": 2}, "begins with it up to turn 2"),
        ({"turn": 2, "step": 3}, "begins with it up to step 2.3"),
        ({"turn": 0, "turns": [1]}, "works turn 1 of it again with recorded results"),
        ({"turn": 1, "turns": [2, 4]}, "works turns 2 to 4 of it again with recorded results"),
    ],
)
def test_a_fork_says_what_it_does_with_its_origin(came: dict[str, object], told: str) -> None:
    assert ForkedFrom.model_validate({"session": "s", **came}).told("it") == told
