"""Which positions are sent under which cuts."""

from everturn.context.cuts import Cut, Span, shown


def test_without_cuts_all_is_sent() -> None:
    assert shown([], 5) == [Span(1, 5)]
    assert shown([], 0) == []


def test_a_summary_stands_where_its_messages_stood() -> None:
    summary = Cut(1, "compaction", 1, 3, "they met", 2)
    assert shown([summary], 5) == [summary, Span(4, 5)]


def test_a_later_summary_replaces_the_earlier_one_that_it_covers() -> None:
    first = Cut(1, "compaction", 1, 3, "they met", 2)
    second = Cut(2, "compaction", 1, 8, "they met and parted", 4)
    assert shown([first, second], 9) == [second, Span(9, 9)]


def test_what_was_rolled_back_leaves_a_gap_and_no_text() -> None:
    summary = Cut(1, "compaction", 1, 3, "they met", 2)
    rollback = Cut(2, "rollback", 5, 6)
    assert shown([summary, rollback], 8) == [summary, Span(4, 4), Span(7, 8)]


def test_a_summary_covers_what_was_rolled_back_before_it() -> None:
    rollback = Cut(1, "rollback", 2, 3)
    summary = Cut(2, "compaction", 1, 6, "they met", 2)
    assert shown([rollback, summary], 7) == [summary, Span(7, 7)]
