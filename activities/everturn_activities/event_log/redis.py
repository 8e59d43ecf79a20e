"""The event log in Redis: what watchers read, brought there from the store after each COMMIT.

The store's rows stay the truth of all events but deltas, which are here alone. Any process may
bring what Redis lacks, in any order and again: the script takes each row once. So a crash between
COMMIT and Redis loses nothing, and neither does losing Redis: then a new epoch begins, which tells
the newest turn anew.

Cursors of an even epoch are Redis's; those of an odd one name a position of the store's, where a
watcher of whichever epoch can begin.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any
from weakref import WeakValueDictionary

import orjson

from everturn.errors import Fenced, RuntimeUnavailable, StoreAway
from everturn.events import DELTAS, Draft, Event
from everturn.session import SessionKey
from everturn_activities.event_log.shipments import Texts, entry, rows_told
from everturn_activities.redis_link import RedisAway, RedisLink
from everturn_activities.redis_wakeups import RedisWakeUps
from everturn_activities.store import log_epochs
from everturn_activities.store.database import Database
from everturn_activities.wakeups import changed, logged

PREFIX = "everturn:"
BATCH = 500
BATCH_CHARACTERS = 256_000
TTL_SECONDS = 86_400
ENTRIES_MAX = 10_000
LOOK_SECONDS = 2.0
"""How often a watcher compares Redis with the store, for what a crash has left between them."""
SHIPPED_AT_ONCE = 16
POSITIONS_MAX = 10_000
GATHER_SECONDS = 0.004
CLOSE_SECONDS = 2.0
BEGUN_SECONDS = 0.1
"""An epoch that the store has and Redis has not yet is taken for lost with its log after this."""

_SCRIPT = files("everturn_activities.event_log").joinpath("redis.lua").read_text()

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Page:
    """Events, and up to which position of the store they tell; `epoch` and `shipped` are the log's,
    where it was asked."""

    events: list[Event]
    position: int
    epoch: int = 0
    shipped: int = -1


class RedisEventLog:
    """`EventLog` on Redis. Made within a running loop, which all of it runs on but `told`."""

    def __init__(
        self,
        database: Database,
        wakeups: RedisWakeUps,
        link: RedisLink,
        ttl_seconds: int = TTL_SECONDS,
        prefix: str = PREFIX,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._link = link
        self._script = link.script(_SCRIPT)
        self._ttl = ttl_seconds
        self._prefix = prefix
        self._most = entries_max
        self._loop = asyncio.get_running_loop()
        # Up to which position Redis was known to have each session's rows.
        self._positions: dict[SessionKey, int] = {}
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._due: set[SessionKey] = set()
        self._shipping: asyncio.Task[None] | None = None
        self._closed = False

    def told(self, keys: set[SessionKey]) -> None:
        """Bring what was committed to these sessions, soon; called from any thread."""
        # Other topics than sessions have a slash.
        sessions = {key for key in keys if "/" not in key.session}
        try:
            self._loop.call_soon_threadsafe(self._take, sessions)
        except RuntimeError:
            return  # The loop has ended; whoever watches brings the rest.

    async def close(self) -> None:
        """Bring what is due, unless that takes long."""
        self._closed = True
        if (shipping := self._shipping) is not None:
            await asyncio.wait([shipping], timeout=CLOSE_SECONDS)
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)

    async def append_deltas(
        self, key: SessionKey, turn: int, step: int, attempt: int, drafts: Sequence[Draft]
    ) -> bool:
        call = f"{turn}.{step}.{attempt}"
        first = int(drafts[0].id.rpartition("/")[2])
        now = self._database.now()
        entries = [
            entry(d.type, d.turn, d.step, d.attempt, now, orjson.dumps(d.body).decode())
            for d in drafts
        ]
        try:
            answer = await self._ask(key, "deltas", call, first, *entries)
            if answer[0] in ("behind", "lost"):
                await self._ship(key)
                answer = await self._ask(key, "deltas", call, first, *entries)
        except RedisAway:
            raise self._away() from None
        if answer[0] == "hole":
            return False
        if answer[0] == "fenced":
            raise Fenced(f"Attempt {attempt} of turn {turn} step {step} is over.")
        if answer[0] != "ok":
            raise self._away()
        # The script has told the other processes.
        self._wakeups.tell_here({logged(key)})
        return True

    async def read(self, key: SessionKey, after: tuple[int, int], limit: int) -> list[Event]:
        events: list[Event] = []
        try:
            await self._catch_up(key)
            position = 0
            # What a cursor's epoch has may end before another one begins.
            while len(events) < limit:
                page = await self._page(key, after, limit - len(events), position)
                if not page.events:
                    break
                events += page.events
                after, position = (events[-1].epoch, events[-1].seq), page.position
        except RedisAway:
            if not events:
                events = (await self._without_redis(key, after, limit)).events
        return events

    async def watch(self, key: SessionKey, after: tuple[int, int]) -> AsyncIterator[list[Event]]:
        position, looked = 0, float("-inf")
        with self._wakeups.waiting(logged(key)) as event:
            while True:
                try:
                    page = await self._page(key, after, BATCH, position)
                    if not page.events and time.monotonic() - looked > LOOK_SECONDS:
                        looked = time.monotonic()
                        await self._catch_up(key)
                        page = await self._page(key, after, BATCH, position)
                except StoreAway:
                    # It goes on where it was: nobody needs to come again.
                    page = _Page([], position)
                except RedisAway:
                    looked = float("-inf")
                    page = _Page([], position)
                    if _is_position(after):
                        with suppress(StoreAway):
                            page = await self._without_redis(key, after, BATCH)
                if page.events:
                    after = (page.events[-1].epoch, page.events[-1].seq)
                    position = page.position
                    yield page.events
                else:
                    await changed(event, LOOK_SECONDS)

    async def end(self, key: SessionKey, like: tuple[int, int]) -> tuple[int, int]:
        standing = await self._database.read(partial(log_epochs.standing, key=key))
        if _is_position(like):
            return (max(like[0], 1), standing.position)
        try:
            answer = await self._ask(key, "standing")
        except RedisAway:
            return like
        # Of a log that is lost the store says which epoch that was; a cursor of it is no mistake.
        lost = (standing.epoch + 1, 0)
        return (answer[1], answer[3]) if answer[0] == "ok" else lost

    # Shipping.

    def _take(self, keys: set[SessionKey]) -> None:
        self._due |= keys
        if self._due and self._shipping is None and not self._closed:
            self._shipping = asyncio.create_task(self._ship_due())

    async def _ship_due(self) -> None:
        try:
            while self._due:
                # Commits of a step follow each other closely: they are brought together.
                await asyncio.sleep(GATHER_SECONDS)
                keys = [self._due.pop() for _ in range(min(len(self._due), SHIPPED_AT_ONCE))]
                shipped = (self._ship(key) for key in keys)
                for failed in await asyncio.gather(*shipped, return_exceptions=True):
                    # Whoever watches brings it once both are there again.
                    if isinstance(failed, Exception) and not isinstance(failed, RedisAway):
                        log.warning("events stay in the store: %s", type(failed).__name__)
        finally:
            self._shipping = None

    async def _catch_up(self, key: SessionKey) -> None:
        """Bring what the store has and Redis has not."""
        standing = await self._database.read(partial(log_epochs.standing, key=key))
        answer = await self._ask(key, "standing")
        if answer[:3] != ["ok", standing.epoch, standing.position]:
            await self._ship(key)

    async def _ship(self, key: SessionKey) -> None:
        """Bring the session's rows that Redis lacks, in a new epoch where it has lost the log."""
        # One at a time, so that no two of us begin an epoch each.
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            await self._ship_alone(key)

    async def _ship_alone(self, key: SessionKey) -> None:
        after = self._positions.get(key, 0)
        with_texts = False
        refused: tuple[str, int, int] | None = None
        while True:
            standing, rows = await self._database.read(
                partial(log_epochs.rows_after, key=key, position=after, limit=BATCH)
            )
            texts = {}
            if with_texts:
                steps = [(row.turn, row.step) for row in rows if row.type == "step_finished"]
                texts = await self._database.read(partial(log_epochs.replies, key=key, steps=steps))
            sent = _batch(rows, texts if with_texts else None)
            answer = await self._ask(key, "append", standing.epoch, self._most, *sent)
            match answer:
                case ["lost", run] | ["epoch", _, run]:
                    theirs = answer[1] if answer[0] == "epoch" else standing.epoch
                    found = (answer[0], standing.epoch, theirs)
                    if standing.epoch == log_epochs.NO_EPOCH or refused == found:
                        await self._begin(key, standing.epoch, theirs, run)
                        after = self._positions.get(key, 0)
                    else:
                        # Another process may have begun one: Redis has it after the store.
                        await asyncio.sleep(BEGUN_SECONDS)
                    refused = found
                case [how, position, new]:
                    if new:
                        self._wakeups.tell_here({logged(key)})
                    with_texts = with_texts or how == "text"
                    self._note(key, position)
                    if position >= standing.position or (not rows and position == after):
                        return
                    after = position

    def _note(self, key: SessionKey, position: int) -> None:
        self._positions.pop(key, None)
        self._positions[key] = position
        if len(self._positions) > POSITIONS_MAX:
            del self._positions[next(iter(self._positions))]

    async def _begin(self, key: SessionKey, seen: int, above: int, run: str) -> None:
        begun = await self._database.write(
            lambda tx: log_epochs.begin(tx, key, seen=seen, above=above)
        )
        if begun is None:
            return
        opening: list[tuple[str, dict[str, Any]]] = []
        if seen or begun.base:
            opening.append(("snapshot", {}))
        if seen and begun.idle_seconds < self._ttl:
            log.warning("the event log of session %s was lost; a new epoch begins", key.session)
            text = "Redis lost the event log: this turn is told anew. Nothing else is lost."
            opening.append(("status", {"text": text}))
        now = self._database.now()
        entries = [
            entry(kind, max(begun.turn, 1), 0, 0, now, orjson.dumps(body).decode())
            for kind, body in opening
        ]
        await self._ask(key, "begin", begun.epoch, run, begun.base, *entries)
        self._note(key, begun.base)

    # Reading.

    async def _page(
        self, key: SessionKey, after: tuple[int, int], limit: int, position: int
    ) -> _Page:
        """What follows on a cursor; `position` is what its watcher was told at least."""
        while True:
            kind = "position" if _is_position(after) else "seq"
            answer = await self._ask(key, "read", kind, *after, limit)
            match answer:
                case ["ok", epoch, shipped, _, first, start, *found]:
                    events = _entries(epoch, found)
                    if start + 1 < first:
                        events.insert(0, _gap(epoch, start, first, self._database.now()))
                    upto = found[-2] if found else position
                    return _Page(events, upto, epoch, shipped)
                case ["store", _, base]:
                    page = await self._stored(key, after, base, limit)
                    if page.events:
                        return page
                    after = (after[0], base)
                case ["old", epoch, base]:
                    turn, start = await self._database.read(
                        partial(log_epochs.turn_at, key=key, position=position)
                    )
                    if start >= base:
                        after = (epoch, 0)
                    else:
                        # What it may have missed before this epoch began, as the store has it.
                        turn, now = max(turn, 1), self._database.now()
                        told = _event(epoch - 1, start, "snapshot", turn, now, {})
                        return _Page([told], start)
                case ["ahead", *_]:
                    return _Page([], position)
                case _:
                    await self._ship(key)

    async def _without_redis(self, key: SessionKey, after: tuple[int, int], limit: int) -> _Page:
        """What the store has for a cursor of its own."""
        if not _is_position(after):
            raise self._away()
        return await self._stored(key, after, None, limit)

    async def _stored(
        self, key: SessionKey, after: tuple[int, int], upto: int | None, limit: int
    ) -> _Page:
        """Rows as events of the cursor's epoch. What stands of a reply comes whole with the end of
        its step, for its pieces were in Redis alone."""
        _, rows = await self._database.read(
            partial(log_epochs.rows_after, key=key, position=after[1], limit=limit)
        )
        rows = [row for row in rows if upto is None or row.seq <= upto]
        steps = [(row.turn, row.step) for row in rows if row.type == "step_finished"]
        texts = await self._database.read(partial(log_epochs.replies, key=key, steps=steps))
        events = []
        for row in rows:
            body = orjson.loads(row.body)
            if row.type in DELTAS:
                body["text"] = ""
            reply = texts.get((row.turn, row.step))
            if row.type == "step_finished" and reply is not None:
                body["text"] = reply.text
            events.append(
                Event.model_construct(
                    epoch=max(after[0], 1),
                    seq=row.seq,
                    type=row.type,
                    turn=row.turn,
                    step=row.step,
                    attempt=row.attempt,
                    time=row.time,
                    body=body,
                )
            )
        return _Page(events, events[-1].seq if events else after[1])

    def _away(self) -> RuntimeUnavailable:
        what = self._link.trouble.what
        return RuntimeUnavailable(f"Redis, which has the event log, {what}; try again later.")

    async def _ask(self, key: SessionKey, does: str, *given: str | int) -> list[Any]:
        name = f"{self._prefix}{{{key.tenant}/{key.session}}}"
        answer: list[Any] = await self._script(
            [f"{name}:log", f"{name}:events"],
            [does, self._ttl, self._wakeups.channel(logged(key)), self._wakeups.sender, *given],
        )
        return answer


def _batch(rows: Sequence[Any], texts: Texts | None) -> list[str | int]:
    """What is sent of `rows` at once: the first ones, as much as goes within an answer's time."""
    sent: list[str | int] = []
    size = 0
    for row in rows:
        told = list(rows_told(row, texts))
        size += sum(len(part) for part in told if isinstance(part, str))
        if sent and size > BATCH_CHARACTERS:
            break
        sent += told
    return sent


def _is_position(cursor: tuple[int, int]) -> bool:
    return cursor[0] % 2 == 1 or cursor[0] == 0


def _entries(epoch: int, found: Sequence[Any]) -> list[Event]:
    events = []
    for seq, text in zip(found[::3], found[2::3], strict=True):
        told = orjson.loads(text)
        events.append(Event.model_construct(epoch=epoch, seq=seq, **told))
    return events


def _gap(epoch: int, start: int, first: int, now: float) -> Event:
    return _event(epoch, first - 1, "gap", 0, now, {"first": start + 1, "last": first - 1})


def _event(epoch: int, seq: int, kind: str, turn: int, now: float, body: dict[str, Any]) -> Event:
    return Event.model_construct(
        epoch=epoch, seq=seq, type=kind, turn=turn, step=0, attempt=0, time=now, body=body
    )
