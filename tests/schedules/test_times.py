"""When schedules fire: as Debian's cron reads them, whatever clocks do."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.errors import UsageError
from everturn.schedules import Timing, seconds_of, shown_seconds
from everturn_activities import cron

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def times(expression: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    timing = Timing(cron=(expression,), time_zone=zone)
    return [cron.shown(one, zone) for one in cron.times(timing, at(after), count)]


def test_a_time_that_clocks_leave_out_comes_right_after_the_gap() -> None:
    assert times("30 2 * * *", "2027-03-26T12:00Z", 3) == [
        "2027-03-27 02:30 CET",
        "2027-03-28 03:00 CEST",
        "2027-03-29 02:30 CEST",
    ]


def test_times_that_a_gap_puts_together_come_once() -> None:
    assert times("0,30 2 * * *", "2027-03-27T12:00Z", 2) == [
        "2027-03-28 03:00 CEST",
        "2027-03-29 02:00 CEST",
    ]


def test_a_time_that_clocks_show_twice_comes_once() -> None:
    assert times("30 2 * * *", "2027-10-30T12:00Z", 2) == [
        "2027-10-31 02:30 CEST",
        "2027-11-01 02:30 CET",
    ]


def test_what_runs_each_hour_goes_by_elapsed_time() -> None:
    assert times("30 * * * *", "2027-10-30T23:45Z", 3) == [
        "2027-10-31 02:30 CEST",
        "2027-10-31 02:30 CET",
        "2027-10-31 03:30 CET",
    ]


def test_a_day_of_the_month_or_one_of_the_week_is_enough() -> None:
    assert times("0 0 13 * 5", "2027-03-04T12:00Z", 3, "UTC") == [
        "2027-03-05 00:00 UTC",
        "2027-03-12 00:00 UTC",
        "2027-03-13 00:00 UTC",
    ]


def test_several_expressions_fire_once_where_they_meet() -> None:
    timing = Timing(cron=("0 9 * * *", "0 */9 * * *"))
    found = cron.times(timing, at("2027-01-01T08:00Z"), 3)
    assert [cron.shown(one, "UTC")[11:16] for one in found] == ["09:00", "18:00", "00:00"]


def test_an_interval_counts_from_when_it_was_set_and_ends_in_time() -> None:
    timing = Timing(every_seconds=90, until=1000.0 + 3 * 90)
    assert cron.times(timing, 1000.0, 9, since=1000.4) == [1090.0, 1180.0, 1270.0]
    assert cron.times(timing, 1090.0, 1, since=1000.4) == [1180.0]
    assert not cron.is_time(timing, 1000.0, since=1000.4)
    assert cron.is_time(timing, 1180.0, since=1000.4)


EXPRESSIONS = (
    *("30 2 * * *", "15 3 * * *", "*/20 * * * *", "0 */2 * * *", "5 0 1 * *", "0 0 13 * 5"),
    *("59 23 31 12 *", "0 9 L * *", "10 1-3 * * SUN#2"),
)
ZONES = (
    *("UTC", BERLIN, "America/New_York", "America/St_Johns", "Australia/Lord_Howe"),
    *("Asia/Kolkata", "Africa/Casablanca", "Pacific/Chatham", "America/Sao_Paulo"),
)


@settings(max_examples=30, deadline=None)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    now=st.integers(1_735_689_600, 1_900_000_000),
)
def test_temporal_is_told_of_every_time_that_may_come_within_the_year(
    expression: str, zone: str, now: int
) -> None:
    timing = Timing(cron=(expression,), time_zone=zone)
    moments = cron.moments(timing, now)
    for one in cron.times(timing, now, 60):
        moment = datetime.fromtimestamp(one, UTC)
        if one < now + 360 * 86_400:
            assert moment.minute in moments.get(moment.hour, ()), moment
        assert cron.is_time(timing, one)


@pytest.mark.parametrize(
    ("timing", "said"),
    [
        ({"cron": ("0 9 * *",)}, "has 4 fields and must have 5"),
        ({"cron": ("61 9 * * *",)}, r"not possible \(bad minute\)"),
        ({"cron": ("0 0 30 2 *",)}, "not possible"),
        ({"cron": ("0 9 * * *",), "time_zone": "Mars/Olympus"}, "'Mars/Olympus' is not known"),
        ({"cron": ("0 9 * * *",), "time_zone": "../../etc/passwd"}, "is not known"),
        ({"every_seconds": 59}, r"each 59s fires more often .* once in 1m"),
        ({"cron": ("0 9 * * *",), "until": 1000.0}, "never fires"),
    ],
)
def test_what_means_nothing_or_fires_too_often_is_refused(
    timing: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        cron.check(Timing.model_validate(timing), 1_800_000_000.0, 60)


def test_the_shortest_interval_holds_between_any_two_times() -> None:
    timing = Timing(cron=("0 9 * * *", "20 9 * * *"))
    cron.check(timing, 1_800_000_000.0, 1200)
    with pytest.raises(UsageError, match=r"fires 20m after another time.* interval is 1h"):
        cron.check(timing, 1_800_000_000.0, 3600)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2 d", 172_800), ("45", 45)]
)
def test_a_span_is_read_in_its_unit(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5m", "0", "0.5s", "1.5s", "3y"])
def test_another_span_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not possible; write one such as"):
        seconds_of(text)


def test_a_span_is_shown_in_the_largest_unit_that_fits() -> None:
    assert [shown_seconds(one) for one in (90, 3600, 86_400, 1.5)] == ["90s", "1h", "1d", "1.5s"]


def test_a_date_is_one_of_the_schedules_zone() -> None:
    assert cron.from_text("2027-06-01", BERLIN) == at("2027-05-31T22:00Z")
    assert cron.from_text("2027-06-01T10:00+00:00", BERLIN) == at("2027-06-01T10:00Z")
    with pytest.raises(UsageError, match="'tomorrow' is not possible"):
        cron.from_text("tomorrow", BERLIN)
