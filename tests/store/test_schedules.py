"""Schedules as the store decides about them: each time once, overlap by the turn that works."""

from dataclasses import replace
from pathlib import Path

import pytest
from stories import Story, count

from everturn.budgets import Budget
from everturn.errors import IdempotencyConflict, UnknownSchedule, UnknownSession, UsageError
from everturn.schedules import ChangeSchedule, Definition, Overlap, RunView
from everturn.session import SessionKey, TurnHead
from everturn_activities.store import Inbound, SessionSettings, firings
from everturn_activities.store.firings import Firing
from everturn_activities.store.sql_schedules import Bounds, SqlSchedules

MINUTE = 60


class Timetable:
    """The schedules of a story's store, its clock at a whole minute."""

    def __init__(self, story: Story, folder: Path, bounds: Bounds) -> None:
        self.story = story
        story.clock.now -= story.clock.now % MINUTE
        self.start = story.clock.now
        self.schedules = SqlSchedules(story.store._database, count, folder, bounds)  # type: ignore[attr-defined]

    async def add(self, name: str = "news", **given: object) -> None:
        said = {"prompt": "What is new?", "every_seconds": MINUTE, "session": "s", **given}
        if said["session"] is None:
            said |= {"workspace": "/workspace", "working_dir": "/workspace"}
        await self.schedules.add("default", name, Definition.model_validate(said))

    async def fire(self, n: int, name: str = "news", late: float = 0.0) -> str:
        """The `n`-th minute comes, and is decided about so much later."""
        at = self.start + n * MINUTE
        self.story.clock.now = max(self.story.clock.now, at + late)
        return (await self.schedules.fire("default", name, at)).state

    async def runs(self, name: str = "news") -> list[RunView]:
        return list((await self.schedules.schedule("default", name, 1)).runs)

    def session(self, name: str) -> Story:
        return replace(self.story, key=SessionKey("default", name))


@pytest.fixture
def table(story: Story, tmp_path: Path) -> Timetable:
    return Timetable(story, tmp_path, Bounds(schedules_max=3))


async def ended(story: Story, turn: TurnHead, run: str = "run-1") -> None:
    await story.step(turn)
    await story.finish(turn, run)


async def test_a_time_is_one_message_however_often_it_fires(table: Timetable) -> None:
    await table.add()
    assert [await table.fire(1) for _ in range(3)] == ["sent"] * 3
    assert (await table.story.store.session(table.story.key)).waiting == 1
    (accepted,) = await table.story.told("message_accepted")
    assert accepted.body["message_id"] == "schedule:news:20231114T221400Z"


async def test_a_schedule_that_is_changed_meanwhile_is_looked_at_anew(table: Timetable) -> None:
    await table.add()
    stale = Firing("default", "news", table.start + MINUTE, version=0)
    database = table.story.store._database  # type: ignore[attr-defined]
    fired = await database.write(lambda tx: firings.fire(tx, stale, count))
    assert (fired.state, await table.runs()) == ("again", [])


async def test_a_time_whose_predecessor_works_is_skipped_and_later_ones_are_not(
    table: Timetable,
) -> None:
    await table.add()
    assert await table.fire(1) == "sent"
    assert await table.fire(2) == "skipped"
    turn = await table.story.begun()
    assert await table.fire(3) == "skipped"
    await ended(table.story, turn)
    assert await table.fire(4) == "sent"
    newest, works, waits, _ = await table.runs()
    assert newest.state == "sent"
    assert works.why.endswith("in session s still works.")
    assert waits.why.endswith("in session s has not begun.")


async def test_a_run_is_shown_with_its_outcome_and_cost(table: Timetable) -> None:
    await table.add()
    await table.fire(1)
    (waits,) = await table.runs()
    assert (waits.outcome, waits.turn) == (None, None)
    await ended(table.story, await table.story.begun())
    (run,) = await table.runs()
    assert (run.session, run.turn, run.outcome, run.cost_usd) == ("s", 1, "completed", 0.5)


async def test_queued_runs_wait_in_the_inbox(table: Timetable) -> None:
    await table.add(overlap="queue")
    await table.fire(1)
    await table.story.begun()
    assert await table.fire(2) == "sent"
    assert await table.fire(3) == "sent"
    view = await table.story.store.session(table.story.key)
    assert (view.turn, view.waiting) == (1, 2)
    assert not await table.story.store.cancelled(table.story.key, 1)


async def test_a_run_that_cancels_interrupts_its_predecessor_and_no_other_turn(
    table: Timetable,
) -> None:
    await table.add(overlap="cancel")
    await table.story.send("a person's")
    turn = await table.story.begun()
    assert await table.fire(1) == "sent"
    # It waits behind a person's turn; the next would say the same.
    assert await table.fire(2) == "skipped"
    assert not await table.story.store.cancelled(table.story.key, 1)
    await ended(table.story, turn)
    await table.story.begun("run-2", previous="run-1")

    assert await table.fire(3) == "sent"

    assert await table.story.store.cancelled(table.story.key, 2)


@pytest.mark.parametrize(
    ("overlap", "states", "cancelled"),
    [
        ("skip", ["sent", "skipped"], False),
        ("cancel", ["sent", "sent"], True),
        ("all", ["sent", "sent"], False),
    ],
)
async def test_runs_with_new_sessions_overlap_as_they_are_told(
    table: Timetable, overlap: Overlap, states: list[str], cancelled: bool
) -> None:
    await table.add(session=None, overlap=overlap, agent="digest", user="ada")
    first = await table.fire(1)
    began = table.session("news-20231114T221400Z")
    await began.begun()
    assert [first, await table.fire(2)] == states

    assert await table.story.store.cancelled(began.key, 1) is cancelled
    view = await table.story.store.session(began.key)
    assert (view.agent, view.user, view.workspace) == ("digest", "ada", "/workspace")
    sessions = await table.story.store.sessions("default", 9, None)
    assert len(sessions) == 1 + states.count("sent")


async def test_a_new_session_has_the_budget_of_its_schedule(table: Timetable) -> None:
    await table.add(session=None, budget=Budget(usd=0.25))
    await table.fire(1)
    (budget,) = await table.story.store.budgets("default")
    assert (budget.session, budget.limits.usd) == ("news-20231114T221400Z", 0.25)


@pytest.mark.parametrize(
    ("overlap", "states"),
    [("skip", ["missed", "missed", "sent"]), ("queue", ["sent", "sent", "sent"])],
)
async def test_of_times_that_were_missed_the_newest_is_made_up_for_or_each_is_queued(
    table: Timetable, overlap: Overlap, states: list[str]
) -> None:
    await table.add(overlap=overlap)
    table.story.clock.now += 3 * MINUTE + 5
    assert [await table.fire(n) for n in (1, 2, 3)] == states


async def test_a_time_that_is_too_long_ago_is_not_made_up_for(table: Timetable) -> None:
    await table.add(overlap="queue", catch_up_seconds=90)
    assert await table.fire(1, late=91) == "missed"
    assert await table.fire(2) == "sent"
    assert (await table.runs())[1].why == "The runtime was down, and came back more than 90s later."


async def test_moments_that_are_no_times_of_it_leave_no_trace(table: Timetable) -> None:
    await table.add(cron=["*/2 * * * *"], every_seconds=None)
    no_time = 1 if (table.start // MINUTE) % 2 == 0 else 2
    assert await table.fire(no_time) == "ignored"
    # A time, but one that passed before it was set.
    assert await table.fire(no_time - 3) == "ignored"
    assert await table.runs() == []
    assert (await table.schedules.fire("default", "other", table.start)).state == "unknown"


async def test_a_paused_schedule_rests_and_makes_up_for_nothing(table: Timetable) -> None:
    await table.add(overlap="queue")
    await table.schedules.change("default", "news", ChangeSchedule(paused=True))
    assert await table.fire(1) == "ignored"
    table.story.clock.now = table.start + 2 * MINUTE + 30
    view, _ = await table.schedules.change("default", "news", ChangeSchedule(paused=False))
    assert view.status == "active"
    # Its interval begins anew.
    assert view.next[0] == table.start + 3 * MINUTE + 30
    assert await table.fire(2) == "ignored"


async def test_a_schedule_ends_after_its_last_message(table: Timetable) -> None:
    await table.add(runs_max=2, overlap="queue")
    assert [await table.fire(n) for n in (1, 2, 3)] == ["sent", "sent", "ignored"]
    view = await table.schedules.schedule("default", "news", 1)
    assert (view.status, view.sent, view.next) == ("ended", 2, ())
    more, _ = await table.schedules.change("default", "news", ChangeSchedule(runs_max=3))
    assert more.status == "active"


async def test_a_run_that_a_person_asks_for_is_one_and_overlaps_as_others_do(
    table: Timetable,
) -> None:
    await table.add()
    await table.schedules.change("default", "news", ChangeSchedule(paused=True))
    run, fired = await table.schedules.run("default", "news", "by-hand:1")
    again, repeated = await table.schedules.run("default", "news", "by-hand:1")
    assert (run.state, run.by_hand, again) == ("sent", True, run)
    assert (len(fired.wakes), len(repeated.wakes)) == (1, 0)
    waits, _ = await table.schedules.run("default", "news", "by-hand:2")
    assert waits.state == "skipped"


async def test_no_time_is_named_behind_the_last_run(table: Timetable) -> None:
    await table.add(runs_max=3, overlap="queue")
    assert len((await table.schedules.schedule("default", "news", 5)).next) == 3
    await table.fire(1)
    assert len((await table.schedules.schedule("default", "news", 5)).next) == 2


async def test_runs_by_hand_within_a_second_have_sessions_of_their_own(table: Timetable) -> None:
    await table.add(session=None, overlap="all")
    made = [await table.schedules.run("default", "news", f"by-hand:{n}") for n in (1, 2)]
    first, second = [run.session for run, _ in made]
    assert first is not None
    assert second is not None
    assert first.startswith("news-20231114T2213")
    assert first != second


async def test_a_model_is_told_that_its_agent_and_no_person_said_so(table: Timetable) -> None:
    await table.add(made_by="s")
    await table.fire(1)
    await table.story.begun()
    assert await table.story.transcript() == [
        "user: [From schedule news, which you have set yourself.]\n\nWhat is new?"
    ]


async def test_what_cannot_be_sent_is_told_and_repeated_by_nobody(table: Timetable) -> None:
    await table.add(session=None)
    theirs = SessionKey("default", "news-20231114T221400Z")
    await table.story.store.create_session(theirs, SessionSettings("/theirs", "/theirs"))
    await table.add("own")
    taken = Inbound("schedule:own:20231114T221400Z", "cancel")
    await table.story.store.accept(table.story.key, taken)

    assert await table.fire(1) == "failed"
    assert await table.fire(1, "own") == "failed"

    ((news,), (own,)) = (await table.runs(), await table.runs("own"))
    assert "a session 'news-20231114T221400Z' that no run began" in news.why
    assert "was used for another content" in own.why
    assert (await table.story.store.session(theirs)).waiting == 0


async def test_a_run_that_fails_to_begin_cancels_nothing(table: Timetable) -> None:
    await table.add(session=None, overlap="cancel")
    await table.fire(1)
    works = table.session("news-20231114T221400Z")
    await works.begun()
    theirs = SessionKey("default", "news-20231114T221500Z")
    await table.story.store.create_session(theirs, SessionSettings("/theirs", "/theirs"))

    assert await table.fire(2) == "failed"

    assert not await table.story.store.cancelled(works.key, 1)


async def test_a_worktree_that_cannot_be_made_is_told(table: Timetable, tmp_path: Path) -> None:
    await table.add(session=None, working_dir=str(tmp_path), folder="worktree")
    assert await table.fire(1) == "failed"
    assert "is in no git repository" in (await table.runs())[0].why


async def test_the_same_schedule_again_is_the_one_there_is_and_another_is_refused(
    table: Timetable,
) -> None:
    await table.add()
    table.story.clock.now += 30
    await table.add()
    assert (await table.schedules.schedule("default", "news", 1)).next[0] == table.start + MINUTE
    with pytest.raises(IdempotencyConflict, match="another schedule 'news'"):
        await table.add(prompt="Something else")
    with pytest.raises(UnknownSession):
        await table.add("other", session="nobody")


async def test_a_tenant_has_so_many_schedules_at_most(table: Timetable) -> None:
    for name in ("a", "b", "c"):
        await table.add(name)
    with pytest.raises(UsageError, match=r"There are 3 schedules, .*EVERTURN_SCHEDULES_MAX"):
        await table.add("d")
    await table.schedules.remove("default", "a")
    await table.add("d")
    assert [one.name for one in await table.schedules.schedules("default")] == ["b", "c", "d"]
    assert await table.schedules.schedules("other") == []
    # Another tenant's are none of it.
    given = Definition(prompt="x", every_seconds=MINUTE, workspace="/w", working_dir="/w")
    await table.schedules.add("other", "e", given)


async def test_a_change_of_times_begins_anew_and_one_of_words_does_not(table: Timetable) -> None:
    await table.add()
    table.story.clock.now += 30
    view, _ = await table.schedules.change("default", "news", ChangeSchedule(prompt="And now?"))
    assert (view.prompt, view.next[0]) == ("And now?", table.start + MINUTE)
    changed = ChangeSchedule(cron=("0 9 * * *",), time_zone="Europe/Berlin")
    view, _ = await table.schedules.change("default", "news", changed)
    assert (view.cron, view.every_seconds) == (("0 9 * * *",), None)
    view, _ = await table.schedules.change("default", "news", ChangeSchedule(every_seconds=120))
    assert (view.cron, view.next[0]) == ((), table.start + 30 + 120)
    with pytest.raises(UsageError, match="so it names no 'session'"):
        await table.schedules.change("default", "news", ChangeSchedule(overlap="all"))
    both = ChangeSchedule(cron=("0 9 * * *",), every_seconds=60)
    with pytest.raises(UsageError, match="either 'cron' or 'every_seconds'"):
        await table.schedules.change("default", "news", both)
    with pytest.raises(UsageError, match="fires more often"):
        await table.schedules.change("default", "news", ChangeSchedule(every_seconds=1))
    limited = ChangeSchedule.model_validate({"runs_max": 5})
    unlimited = ChangeSchedule.model_validate({"runs_max": None})
    assert (await table.schedules.change("default", "news", limited))[0].runs_max == 5
    assert (await table.schedules.change("default", "news", unlimited))[0].runs_max is None


async def test_an_agent_removes_its_own_schedules_only(table: Timetable) -> None:
    await table.add()
    await table.add("mine", made_by="s")
    with pytest.raises(UsageError, match="whoever set it removes it"):
        await table.schedules.remove_own("default", "news", "s")
    with pytest.raises(UsageError, match="whoever set it removes it"):
        await table.schedules.remove_own("default", "mine", "other")
    await table.schedules.remove_own("default", "mine", "s")
    with pytest.raises(UnknownSchedule):
        await table.schedules.schedule("default", "mine", 1)


# What Temporal is told.


async def test_a_schedule_is_due_until_temporal_has_its_newest_version(table: Timetable) -> None:
    await table.add()
    (first,) = await table.schedules.due(9)
    await table.schedules.change("default", "news", ChangeSchedule(paused=True))
    await table.schedules.told(first)
    (second,) = await table.schedules.due(9)
    assert (first.paused, second.paused) == (False, True)
    await table.schedules.told(second)
    assert await table.schedules.due(9) == []
    assert [one.name for one in await table.schedules.known()] == ["news"]


async def test_what_temporal_refuses_is_shown_and_told_again_later(table: Timetable) -> None:
    await table.add()
    (told,) = await table.schedules.due(9)
    await table.schedules.refused(told, "It will not.")
    assert await table.schedules.due(9) == []
    assert (await table.schedules.schedule("default", "news", 1)).problem == "It will not."
    table.story.clock.now += 61
    (again,) = await table.schedules.due(9)
    await table.schedules.told(again)
    assert (await table.schedules.schedule("default", "news", 1)).problem is None


async def test_a_schedule_is_told_anew_where_an_older_version_may_have_come_last(
    table: Timetable,
) -> None:
    await table.add()
    (first,) = await table.schedules.due(9)
    await table.schedules.change("default", "news", ChangeSchedule(paused=True))
    (second,) = await table.schedules.due(9)
    await table.schedules.told(second)
    await table.schedules.told(first)
    assert await table.schedules.due(9) == [second]


async def test_what_temporal_has_lost_is_told_again(table: Timetable) -> None:
    await table.add()
    (told,) = await table.schedules.due(9)
    await table.schedules.told(told)
    (known,) = await table.schedules.known()
    await table.schedules.lost(known)
    assert await table.schedules.due(9) == [told]


async def test_times_that_nobody_has_decided_about_are_missed_until_they_are_settled(
    table: Timetable,
) -> None:
    await table.add(overlap="queue")
    await table.fire(2)
    table.story.clock.now = table.start + 3 * MINUTE + 4
    (missed,) = await table.schedules.missed(5)
    assert missed.times == (table.start + MINUTE,)
    await table.schedules.settled(missed)
    assert await table.schedules.missed(5) == []
    table.story.clock.now += 1
    (missed,) = await table.schedules.missed(5)
    assert (missed.times, missed.next) == ((table.start + 3 * MINUTE,), table.start + 4 * MINUTE)

    # One that was changed meanwhile is looked at anew.
    await table.schedules.change("default", "news", ChangeSchedule(paused=True))
    await table.schedules.settled(missed)
    assert await table.schedules.missed(5) == []
    await table.schedules.change("default", "news", ChangeSchedule(paused=False))
    table.story.clock.now += MINUTE + 6
    (missed,) = await table.schedules.missed(5)
    assert len(missed.times) == 1


async def test_what_was_missed_longer_ago_than_counts_is_not_looked_at(table: Timetable) -> None:
    await table.add(overlap="queue", catch_up_seconds=250 * MINUTE)
    table.story.clock.now += 1000 * MINUTE
    (missed,) = await table.schedules.missed(5)
    assert (len(missed.times), missed.next) == (250, table.start + 1000 * MINUTE)


async def test_a_schedule_that_ended_has_nothing_to_miss(table: Timetable) -> None:
    await table.add(runs_max=1)
    await table.add("short", until=table.start + 2 * MINUTE)
    await table.fire(1)
    table.story.clock.now += 9 * MINUTE
    (missed,) = await table.schedules.missed(5)
    assert (missed.name, len(missed.times), missed.next) == ("short", 2, None)
    await table.schedules.settled(missed)
    assert await table.schedules.missed(5) == []


async def test_a_removed_schedule_stays_a_row_until_temporal_has_forgotten_it(
    table: Timetable,
) -> None:
    await table.add()
    await table.fire(1)
    removed = await table.schedules.remove("default", "news")
    assert await table.fire(2) == "unknown"
    # Its name may be taken at once, and the new one has none of its runs.
    await table.add(prompt="Something else")
    await table.schedules.told(removed)
    assert (await table.runs(), await table.fire(3)) == ([], "sent")
    last = await table.schedules.remove("default", "news")
    await table.schedules.told(last)
    assert await table.schedules.due(9) == []
    with pytest.raises(UnknownSchedule):
        await table.schedules.remove("default", "news")


async def test_a_run_that_still_works_is_not_forgotten_however_many_times_pass(
    table: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everturn_activities.store.firings.KEPT", 3)
    await table.add()
    assert await table.fire(1) == "sent"
    turn = await table.story.begun()
    assert {await table.fire(n) for n in range(2, 9)} == {"skipped"}
    await ended(table.story, turn)
    assert await table.fire(9) == "sent"


async def test_a_time_that_no_calendar_can_tell_is_refused(table: Timetable) -> None:
    with pytest.raises(ValueError, match="until"):
        await table.add(until=1_790_000_000_000)


async def test_only_the_newest_times_are_remembered(
    table: Timetable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everturn_activities.store.firings.KEPT", 3)
    await table.add()
    for n in range(1, 6):
        await table.fire(n)
        await ended(table.story, await table.story.begun(f"run-{n}"), f"run-{n}")
    assert [run.at for run in await table.runs()] == [table.start + n * MINUTE for n in (5, 4, 3)]
