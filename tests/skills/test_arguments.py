"""What becomes of a skill's text when it is asked for with arguments."""

import pytest

from everturn.skills import filled_in, invoked, words


def test_T32_arguments_are_put_in_whole_and_by_position_with_quotes_respected():
    text = "All: $ARGUMENTS; first: $0; second: $1; third: $2."
    assert filled_in(text, '"a b" c', "positional") == (
        'All: "a b" c; first: a b; second: c; third: .'
    )


def test_B35_every_ARGUMENTS_is_replaced_by_the_arguments_or_by_nothing():
    assert filled_in("Review: $ARGUMENTS", "", "whole") == "Review: "
    assert filled_in("$ARGUMENTS and $ARGUMENTS", "x", "whole") == "x and x"


def test_what_arguments_bring_along_is_not_replaced_again():
    assert filled_in("$ARGUMENTS|$0", "$1 $ARGUMENTS", "positional") == "$1 $ARGUMENTS|$1"


@pytest.mark.parametrize(
    ("how", "text"), [("none", "$ARGUMENTS $1"), ("whole", "x y $1"), ("positional", "x y y")]
)
def test_a_profile_says_which_places_are_filled(how, text):
    assert filled_in("$ARGUMENTS $1", "x y", how) == text


def test_a_shells_own_dollars_stay_where_a_skill_is_read_without_arguments():
    text = "Run awk '{print $1}' and keep $10 or $100."
    assert filled_in(text, "", "positional") == text


def test_an_apostrophe_is_no_quote_that_was_left_open():
    assert words("don't stop") == ["don't", "stop"]
    assert words('say "it is" done') == ["say", "it is", "done"]
    assert words('don\'t say "it is" done') == ["don't", "say", "it is", "done"]


def test_arguments_of_a_person_are_never_lost():
    assert invoked("Review the code.", "main.py", "none") == (
        "Review the code.\n\nArguments: main.py"
    )
    assert invoked("Review $0.", "main.py", "positional") == "Review main.py."
