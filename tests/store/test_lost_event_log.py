"""An event log in Redis that is lost, put back, or away: watchers miss nothing, and see it once."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import Databases
from redis_servers import RedisServer, redis_server
from redis_stories import KEY, on_redis
from stories import Open, Story, count, delta

from everturn.errors import Fenced, RuntimeUnavailable, StoreAway
from everturn.events import Event
from everturn.reading import Transcript
from everturn.session import ContextHead, SessionKey, TurnHead
from everturn_activities.deltas import DeltaWriter
from everturn_activities.event_log import redis as module
from everturn_activities.gateways import TextDelta
from everturn_activities.redis_refusals import RIGHTS
from everturn_activities.store import SessionSettings, log_epochs, schema
from everturn_activities.store.database import Tx
from everturn_activities.store.sql import SqlStore


@pytest.fixture
def prefix() -> str:
    return f"everturn:{secrets.token_hex(4)}:"


@pytest.fixture
async def told_in(redis: RedisServer, tmp_path: Path, prefix: str) -> AsyncIterator[Story]:
    async with on_redis(tmp_path, redis.url, prefix) as story:
        yield story


async def streaming(story: Story) -> tuple[TurnHead, ContextHead, int]:
    """A turn whose first step is at its reply."""
    await story.send()
    turn = await story.begun()
    context = await story.prepare(turn)
    return turn, context, await story.start(context)


async def all_of(story: Story, after: tuple[int, int] = (1, 0)) -> list[Event]:
    return await story.events.read(story.key, after, 10_000)


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]


def cursor(event: Event) -> tuple[int, int]:
    return event.epoch, event.seq


async def test_what_a_crash_left_in_the_store_is_brought_by_who_watches(
    redis: RedisServer, databases: Databases, opened: Open, tmp_path: Path, prefix: str
) -> None:
    async with asyncio.timeout(20), opened(tmp_path) as dies_after_each_commit:
        await dies_after_each_commit.send("one")
        async with on_redis(databases, redis.url, prefix) as story:
            watching = story.events.watch(story.key, (1, 0))
            first = await anext(watching)
            await dies_after_each_commit.send("two")
            second = await anext(watching)
            await watching.aclose()  # type: ignore[attr-defined]
    assert [(event.seq, event.body["text"]) for event in first + second] == [(1, "one"), (2, "two")]


async def test_a_flushed_log_begins_a_new_epoch_that_tells_the_newest_turn_anew(
    told_in: Story, redis: RedisServer
) -> None:
    story = told_in
    _, context, attempt = await streaming(story)
    await story.events.append_deltas(story.key, 1, 1, attempt, [delta("so ", 1)])
    before = await all_of(story)

    redis.ask("FLUSHALL")
    await story.reply(context, attempt, "so far", [], deltas=[delta("far", 2)])
    after = await all_of(story, cursor(before[-1]))

    assert kinds(after) == [
        *("snapshot", "status", "message_accepted", "turn_started", "message_admitted"),
        *("step_started", "text_delta", "step_finished"),
    ]
    assert [event.seq for event in after] == list(range(1, len(after) + 1))
    assert {event.epoch for event in after} == {before[-1].epoch + 2}
    assert (after[0].turn, after[0].body) == (1, {})
    assert "Redis lost the event log" in after[1].body["text"]
    transcript = Transcript()
    for event in before + after:
        transcript.apply(event)
    assert transcript.steps[1, 1].text == "so far"


async def test_a_log_of_which_a_server_short_of_memory_dropped_the_entries_is_told_anew(
    told_in: Story, redis: RedisServer, prefix: str
) -> None:
    story = told_in
    _, _, attempt = await streaming(story)
    await story.events.append_deltas(story.key, 1, 1, attempt, [delta("so ", 1)])
    before = await all_of(story)
    end = await story.events.end(story.key, (1, 0))

    assert redis.ask(f"DEL {prefix}{{default/s}}:events") == ":1"
    from_a_position = await story.events.read(story.key, end, 10_000)
    await story.events.append_deltas(story.key, 1, 1, attempt, [delta("so far", 1)])
    after = await all_of(story, cursor(before[-1]))

    assert from_a_position == []
    assert kinds(after)[:2] == ["snapshot", "status"]
    assert kinds(after)[-2:] == ["step_started", "text_delta"]


async def test_a_reply_that_streams_is_told_again_from_its_beginning(
    told_in: Story, redis: RedisServer
) -> None:
    story = told_in
    _, context, attempt = await streaming(story)
    writer = DeltaWriter(story.events, story.key, 1, 1, attempt)
    writer.add(TextDelta("one "))
    await until_told(story, "one ")
    redis.ask("FLUSHALL")
    writer.add(TextDelta("two "))
    await until_told(story, "one two ")
    writer.add(TextDelta("three"))
    await writer.stop()
    await story.reply(context, attempt, "one two three", deltas=writer.rest())

    events = await all_of(story)
    pieces = [event.body["text"] for event in events if event.type == "text_delta"]
    assert "".join(pieces) == "one two three"


async def until_told(story: Story, text: str) -> None:
    async with asyncio.timeout(10):
        while True:
            events = await all_of(story)
            if "".join(e.body["text"] for e in events if e.type == "text_delta") == text:
                return
            await asyncio.sleep(0.01)


async def test_a_server_put_back_from_an_old_snapshot_gives_no_number_twice(
    tmp_path: Path, prefix: str
) -> None:
    with redis_server(tmp_path) as server:
        async with on_redis(tmp_path, server.url, prefix) as story:
            await story.send("one")
            (one,) = await all_of(story)
            assert server.ask("SAVE") == "+OK"
            await story.send("two")
            (two,) = await all_of(story, cursor(one))
            server.kill()
            server.start()
            await until_answers(story)
            await story.send("three")

            # No turn has begun: all is told anew.
            later = await all_of(story, cursor(two))
            assert later[0].epoch == two.epoch + 2
            texts = [e.body["text"] for e in later if e.type == "message_accepted"]
            assert texts == ["one", "two", "three"]


async def until_answers(story: Story) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                return await anext(_answered(story))
            except RuntimeUnavailable:
                await asyncio.sleep(0.02)


async def _answered(story: Story) -> AsyncIterator[None]:
    await story.events.read(story.key, (2, 0), 1)
    yield


async def test_while_redis_is_away_the_store_tells_and_pieces_wait(
    tmp_path: Path, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path) as server:
        async with on_redis(tmp_path, server.url, prefix) as story:
            turn, context, attempt = await streaming(story)
            before = await all_of(story)
            server.kill()
            with pytest.raises(RuntimeUnavailable, match="does not answer"):
                await story.events.append_deltas(story.key, 1, 1, attempt, [delta("a", 1)])
            with pytest.raises(RuntimeUnavailable, match="does not answer"):
                await all_of(story, cursor(before[-1]))
            await story.reply(context, attempt, "ab", deltas=[delta("a", 1), delta("b", 2)])
            await story.finish(turn)
            stored = await all_of(story, (1, 0))
            server.start()
            await until_answers(story)
            again = await all_of(story, cursor(stored[-1]))
            anew = await all_of(story, cursor(before[-1]))

    assert kinds(stored)[-1] == "turn_finished"
    assert {event.epoch for event in stored} == {1}
    finished = next(event for event in stored if event.type == "step_finished")
    assert finished.body["text"] == "ab"
    assert again == []
    assert [e.body["text"] for e in anew if e.type == "text_delta"] == ["a", "b"]
    assert kinds(anew)[0] == "snapshot"
    assert caplog.text.count("does not answer") == 1


async def test_a_user_with_the_rights_that_we_name_can_do_all(
    redis: RedisServer, tmp_path: Path, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    redis.ask(f"ACL SETUSER rights on >r {RIGHTS}")
    async with on_redis(tmp_path, redis.url.replace("//", "//rights:r@"), prefix) as story:
        turn, context, attempt = await streaming(story)
        await story.events.append_deltas(story.key, 1, 1, attempt, [delta("a", 1)])
        await story.reply(context, attempt, "a", deltas=[delta("a", 1)])
        await story.finish(turn)
        told = await all_of(story)

    assert kinds(told)[-1] == "turn_finished"
    assert caplog.records == []


async def test_a_refusal_is_told_as_what_it_is(
    redis: RedisServer, tmp_path: Path, prefix: str
) -> None:
    async with on_redis(tmp_path, redis.url, prefix) as story:
        _, _, attempt = await streaming(story)
        redis.ask("CONFIG SET maxmemory 1mb")
        try:
            with pytest.raises(RuntimeUnavailable, match="event log, has no memory left"):
                await story.events.append_deltas(story.key, 1, 1, attempt, [delta("a", 1)])
        finally:
            redis.ask("CONFIG SET maxmemory 0")


async def test_a_watcher_of_a_lost_epoch_misses_no_turn_that_began_meanwhile(
    told_in: Story, redis: RedisServer
) -> None:
    story = told_in
    await work(story, 1, "first")
    seen = await all_of(story)
    redis.ask("FLUSHALL")
    for number in (2, 3):
        await work_unwatched(story, number)
        redis.ask("FLUSHALL")
    rest = await all_of(story, cursor(seen[-1]))
    transcript = Transcript()
    for event in seen + rest:
        transcript.apply(event)
    assert sorted(transcript.results) == [1, 2, 3]
    assert {of: step.text for of, step in transcript.steps.items()} == {
        (1, 1): "first",
        (2, 1): "text of step 1",
        (3, 1): "text of step 1",
    }
    cursors = [cursor(event) for event in rest]
    assert cursors == sorted(set(cursors))


async def work(story: Story, number: int, text: str) -> None:
    await story.send()
    turn = await story.begun(f"run-{number}")
    context = await story.prepare(turn)
    attempt = await story.start(context)
    piece = delta(text, 1, attempt, turn=number)
    await story.events.append_deltas(story.key, number, 1, attempt, [piece])
    await story.reply(context, attempt, text)
    await story.finish(turn, f"run-{number}")


async def work_unwatched(story: Story, number: int) -> None:
    await story.send()
    turn = await story.begun(f"run-{number}")
    await story.step(turn)
    await story.finish(turn, f"run-{number}")


async def test_every_key_expires(told_in: Story, redis: RedisServer, prefix: str) -> None:
    await work(told_in, 1, "hello")
    await all_of(told_in)
    for name in ("log", "events"):
        answer = redis.ask(f"TTL {prefix}{{default/s}}:{name}")
        assert 86_300 < int(answer.removeprefix(":")) <= 86_400


async def test_a_long_log_is_trimmed_behind_finished_turns_and_says_so(
    redis: RedisServer, tmp_path: Path, prefix: str
) -> None:
    async with on_redis(tmp_path, redis.url, prefix, entries_max=20) as story:
        for number in range(1, 6):
            await work(story, number, "hello")
            await all_of(story)
        events = await all_of(story, (2, 3))
        whole = await all_of(story, (2, 0))

    assert events[0].type == "gap"
    assert events[0].body == {"first": 4, "last": events[0].seq}
    assert events[1].seq == events[0].seq + 1
    assert whole[0].body["first"] == 1
    assert whole[1:] == events[1:]
    assert 20 <= len(events) - 1 <= 30
    assert events[1].turn > 1


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_lost_watchers_read_each_event_once_and_each_reply_whole(
    redis: RedisServer, tmp_path: Path, prefix: str, seed: int
) -> None:
    """Turns of replies in pieces, between losses, reads and processes that die before they tell."""
    dice = random.Random(seed)
    watchers = [Watcher(), Watcher()]
    async with (
        on_redis(tmp_path, redis.url, prefix) as one,
        on_redis(tmp_path, redis.url, prefix) as other,
    ):
        expected = {}

        async def disturbed() -> None:
            what = dice.random()
            if what < 0.12:
                redis.ask("FLUSHALL")
            elif what < 0.5:
                await dice.choice(watchers).look(dice.choice([one, other]), dice.randint(1, 8))

        for number in range(1, 6):
            story = dice.choice([one, other])
            await story.send(id_=f"m{number}")
            turn = await story.begun(f"run-{number}")
            for step in (1, 2):
                context = await story.prepare(turn, step)
                for _ in range(dice.choice([1, 1, 2])):
                    attempt = await story.start(context)
                    writer = ByHand(story, number, step, attempt)
                    for _ in range(dice.randint(0, 3)):
                        await disturbed()
                        await writer.piece(dice.choice("abc"))
                await disturbed()
                writer.say("end")
                rest = writer.rest
                await story.reply(context, attempt, writer.text, deltas=rest)
                expected[number, step] = writer.text
                await disturbed()
            await story.finish(turn, f"run-{number}", step=2)
            await disturbed()
        for watcher in watchers:
            await watcher.look(one, 10_000)
            await watcher.look(other, 10_000)

    for watcher in watchers:
        assert {of: step.text for of, step in watcher.page.steps.items()} == expected
        assert sorted(watcher.page.results) == [1, 2, 3, 4, 5]
        watcher.demand_no_gap()


class ByHand:
    """A reply in pieces, as `DeltaWriter` sends them."""

    def __init__(self, story: Story, turn: int, step: int, attempt: int) -> None:
        self._story, self._at = story, (turn, step, attempt)
        self._sent: list[str] = []
        self._held = 0

    @property
    def text(self) -> str:
        return "".join(self._sent)

    @property
    def rest(self) -> list:  # type: ignore[type-arg]
        return self._drafts(self._held)

    def _drafts(self, after: int) -> list:  # type: ignore[type-arg]
        turn, step, attempt = self._at
        return [
            delta(text, number, attempt, step, turn)
            for number, text in enumerate(self._sent, 1)
            if number > after
        ]

    def say(self, text: str) -> None:
        self._sent.append(text)

    async def piece(self, text: str) -> None:
        self.say(text)
        events, key = self._story.events, self._story.key
        if not await events.append_deltas(key, *self._at, self._drafts(len(self._sent) - 1)):
            assert await events.append_deltas(key, *self._at, self._drafts(0))
        self._held = len(self._sent)


class Watcher:
    """Reads on now and then, in whichever process."""

    def __init__(self) -> None:
        self.page = Transcript()
        self._after = (1, 0)
        self._seen: list[Event] = []

    async def look(self, story: Story, limit: int) -> None:
        for event in await story.events.read(story.key, self._after, limit):
            self.page.apply(event)
            self._seen.append(event)
            self._after = cursor(event)

    def demand_no_gap(self) -> None:
        last: dict[int, int] = {}
        for event in self._seen:
            if event.epoch % 2 == 0:
                assert event.seq == last.get(event.epoch, 0) + 1
                last[event.epoch] = event.seq
        assert [cursor(e) for e in self._seen] == sorted({cursor(e) for e in self._seen})


async def test_an_overtaken_attempt_is_fenced_once_the_newer_one_is_told(told_in: Story) -> None:
    story = told_in
    _, context, late = await streaming(story)
    newer = await story.start(context)
    await all_of(story)
    with pytest.raises(Fenced):
        await story.events.append_deltas(story.key, 1, 1, late, [delta("late", 1, late)])
    await story.reply(context, newer)
    await all_of(story)
    with pytest.raises(Fenced):
        await story.events.append_deltas(story.key, 1, 1, newer, [delta("late", 1, newer)])
    assert [event.body["text"] for event in await story.told("text_delta")] == ["hi"]


async def test_a_log_that_outlived_its_time_begins_anew_without_a_warning(
    told_in: Story, redis: RedisServer
) -> None:
    story = told_in
    await story.send("one")
    (one,) = await all_of(story)
    redis.ask("FLUSHALL")
    story.clock.now += 86_400
    await story.send("two")
    later = await all_of(story, cursor(one))
    assert kinds(later) == ["snapshot", "message_accepted", "message_accepted"]


@pytest.mark.parametrize("epoch", [0, 6])
async def test_a_log_of_another_epoch_than_the_stores_begins_anew(
    told_in: Story, epoch: int
) -> None:
    """A store that was put back, or a process that ended between the two."""
    database = told_in.store._database  # type: ignore[attr-defined]
    for _ in range(4):
        await told_in.send()
    before = await all_of(told_in, (2, 0))
    await database.write(
        lambda tx: tx.connection.execute(sa.update(schema.sessions).values(log_epoch=epoch))
    )

    turn, _, attempt = await streaming(told_in)
    pieces = [delta("Hello", 1, attempt)]
    async with asyncio.timeout(10):
        await told_in.events.append_deltas(told_in.key, turn.turn, 1, attempt, pieces)
        after = await all_of(told_in, (2, 0))

    assert {event.epoch for event in before} == {2}
    assert {event.epoch for event in after[1:]} == {max(epoch, 2) + 2}
    assert kinds(after)[-1] == "text_delta"
    assert kinds(after).count("message_accepted") == 5


async def test_many_who_ask_at_once_wait_for_their_turn(
    redis: RedisServer,
    tmp_path: Path,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with on_redis(tmp_path, redis.url, prefix) as story:
        await story.send()
        pages = await asyncio.gather(*(all_of(story) for _ in range(300)))
    assert {len(page) for page in pages} == {1}
    assert caplog.messages == []


async def test_a_stream_goes_on_while_the_store_is_away(
    told_in: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    database = told_in.store._database  # type: ignore[attr-defined]
    await told_in.send()
    watching = told_in.events.watch(told_in.key, (2, 0))
    assert kinds(await anext(watching)) == ["message_accepted"]
    away = []

    async def read(look: object) -> object:
        away.append(look)
        raise StoreAway("The database does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(database, "read", read)
        following = asyncio.ensure_future(anext(watching))
        while len(away) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await told_in.send()
    async with asyncio.timeout(10):
        assert kinds(await following) == ["message_accepted"]
    await watching.aclose()  # type: ignore[attr-defined]


async def test_an_epoch_that_another_process_is_about_to_begin_is_not_taken_for_lost(
    redis: RedisServer,
    tmp_path: Path,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    on_the_way, asked = asyncio.Event(), asyncio.Event()

    async def begins_late(key: SessionKey, does: str, *given: object) -> object:
        if does == "begin":
            on_the_way.set()
            await asked.wait()
        return await ask_one(key, does, *given)

    async def asks(key: SessionKey, does: str, *given: object) -> object:
        answer = await ask_other(key, does, *given)
        if does == "append":
            asked.set()
        return answer

    async with (
        on_redis(tmp_path, redis.url, prefix) as one,
        on_redis(tmp_path, redis.url, prefix) as other,
    ):
        ask_one, ask_other = one.events._ask, other.events._ask  # type: ignore[attr-defined]
        monkeypatch.setattr(one.events, "_ask", begins_late)
        monkeypatch.setattr(other.events, "_ask", asks)
        await one.send()
        async with asyncio.timeout(10):
            await on_the_way.wait()
            events = await all_of(other)
    assert kinds(events) == ["message_accepted"]
    assert events[-1].epoch == 2
    assert "lost" not in caplog.text


async def test_of_two_who_find_a_log_lost_one_begins_the_next_epoch(databases: Databases) -> None:
    database = await databases.open()
    store = SqlStore(database, count)
    await store.create_session(KEY, SessionSettings("/workspace", "/workspace"))

    def begin(tx: Tx) -> log_epochs.Begun | None:
        return log_epochs.begin(tx, KEY, seen=0, above=0)

    first, second = await database.write(begin), await database.write(begin)
    await store.close()
    assert first is not None
    assert (first.epoch, second) == (2, None)
