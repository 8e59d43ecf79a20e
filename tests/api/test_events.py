"""Events over HTTP: server-sent, resumed, and as pages."""

import asyncio
from contextlib import aclosing

import httpx
import orjson
import pytest

from everturn.client import Client
from everturn.errors import RuntimeUnavailable, UnknownSession, UsageError
from everturn.events import Event, cursor_from_text
from everturn.reading import Transcript
from everturn.session import SessionKey
from everturn_workers.cli.follow import follow_message
from everturn_workers.doors.streams import WATCHERS_MAX


@pytest.fixture
async def http(served):
    async with httpx.AsyncClient(base_url=served.url, timeout=10) as http:
        yield http


@pytest.fixture
async def worked(client, runtime):
    """A session with one finished turn."""
    await client.create_session("s")
    await client.send("s", "hello", id="m1")
    await runtime.work("s", "good ", "day\u2028")


async def test_a_turns_events_begin_behind_its_cursor_and_end_at_the_sessions(client, runtime):
    await client.create_session("s")
    for text in ("one", "two"):
        await client.send("s", text)
        await runtime.work("s", text)

    first, second = await client.turns("s")
    key = SessionKey("default", "s")
    events = await runtime.log.read(key, cursor_from_text(second.cursor), 100)

    assert (events[0].type, events[-1].type) == ("turn_started", "turn_finished")
    assert {event.turn for event in events} == {2}
    assert (await client.session("s")).cursor == events[-1].cursor
    assert cursor_from_text(first.cursor) < cursor_from_text(second.cursor)


async def test_a_stream_is_frames_of_id_type_and_one_line_of_json(http, worked):
    answer = await http.get("/v1/sessions/s/events", params={"until": "turn_finished", "turn": 1})

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert b"\r" not in answer.content
    comment, *frames = answer.text.strip("\n").split("\n\n")
    assert comment == ": open"
    for number, frame in enumerate(frames, 1):
        sent_id, name, data = frame.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert sent_id == f"id: 1.{number}"
        assert name == f"event: {event['type']}"
        assert (event["epoch"], event["seq"]) == (1, number)
    assert event["type"] == "turn_finished"
    assert event["text"] == "good day\u2028"


@pytest.mark.parametrize("resume", ["header", "query", "both"])
async def test_a_stream_resumes_after_the_cursor(http, worked, resume):
    params = {"until": "turn_finished", "turn": "1"}
    headers = {}
    if resume != "header":
        params["after"] = "1.3" if resume == "query" else "1.1"
    if resume != "query":
        headers["last-event-id"] = "1.3"

    answer = await http.get("/v1/sessions/s/events", params=params, headers=headers)

    assert "id: 1.3\n" not in answer.text
    assert answer.text.startswith(": open\n\nid: 1.4\n")


async def test_a_stream_until_a_turn_that_is_over_ends_at_once(http, client, worked):
    end = (await client.session("s")).cursor
    params = {"until": "turn_finished", "turn": 1, "after": end}

    answer = await http.get("/v1/sessions/s/events", params=params)

    assert answer.text == ": open\n\n"


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
async def test_a_cursor_behind_the_logs_end_is_refused_and_not_waited_with(
    http, client, worked, accept
):
    end = (await client.session("s")).cursor
    headers = {"accept": accept, "last-event-id": "1.99"}

    answer = await http.get("/v1/sessions/s/events", headers=headers)

    assert answer.status_code == 422
    assert f"1.99 lies behind the end of session 's', which is {end}" in answer.json()["detail"]
    assert "begin anew at 0" in answer.json()["detail"]
    with pytest.raises(UsageError, match="behind the end"):
        await anext(client.events("s", "2.1"))


@pytest.mark.parametrize("turn", [{"turn": 1}, {}], ids=["the turn", "any turn"])
async def test_a_stream_until_a_turn_tells_nothing_of_the_next(http, client, runtime, worked, turn):
    await client.send("s", "again", id="m2")
    await runtime.work("s", "and again")

    answer = await http.get("/v1/sessions/s/events", params={"until": "turn_finished", **turn})

    last = answer.text.strip("\n").rpartition("\n")[2]
    event = orjson.loads(last.removeprefix("data: "))
    assert (event["type"], event["turn"]) == ("turn_finished", 1)


async def test_events_are_a_page_where_json_is_asked_for(http, worked):
    headers = {"accept": "application/json"}

    page = (await http.get("/v1/sessions/s/events", headers=headers)).json()
    rest = await http.get(f"/v1/sessions/s/events?after={page['cursor']}", headers=headers)

    assert [event["seq"] for event in page["events"]] == list(range(1, len(page["events"]) + 1))
    assert rest.json() == {"events": [], "cursor": page["cursor"]}


async def test_a_silent_stream_is_kept_alive_with_comments(http, served, client):
    await client.create_session("s")
    served.streams.keep_alive_seconds = 0.01

    async with http.stream("GET", "/v1/sessions/s/events") as answer:
        lines = answer.aiter_lines()
        told = [await anext(lines) for _ in range(5)]

    assert told == [": open", "", ": keep-alive", "", ": keep-alive"]


async def test_a_session_has_a_bounded_number_of_watchers(http, served, client):
    await client.create_session("s")
    key = ("default", "s")
    served.streams.watchers[key] = WATCHERS_MAX - 1

    async with http.stream("GET", "/v1/sessions/s/events") as open_one:
        lines = open_one.aiter_lines()
        await anext(lines)
        refused = await http.get("/v1/sessions/s/events")

    assert refused.status_code == 429
    assert "64 watchers" in refused.json()["detail"]
    async with asyncio.timeout(10):
        while served.streams.watchers[key] == WATCHERS_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_watcher_is_told_of_a_turn_as_it_runs(client, runtime):
    await client.create_session("s")
    accepted = await client.send("s", "hello", id="m1")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    transcript = Transcript()

    events = client.events("s", accepted.cursor, until_turn=1)
    await runtime.stream(context, attempt, "so ")
    async for event in events:
        transcript.apply(event)
        if event.type == "text_delta":
            break
    assert transcript.text(1) == "so "

    await runtime.finish(head, context, attempt, "so far")
    async for event in events:
        transcript.apply(event)
    assert transcript.results[1].outcome == "completed"


async def test_u3_a_reply_that_stalls_after_ten_tokens_leaves_no_duplicate_prefix(client, runtime):
    """U3: a retried stream raises attempt, and clients drop the older text."""
    await client.create_session("s")
    await client.send("s", "count", id="m1")
    words = [f"{number} " for number in range(20)]
    head = await runtime.begin("s")
    context, first = await runtime.begin_step(head)
    await runtime.stream(context, first, *words[:10])

    second = await runtime.begin_attempt(context)
    await runtime.stream(context, second, *words)
    await runtime.finish(head, context, second, "".join(words))

    transcript = Transcript()
    events = [event async for event in client.events("s", until_turn=1)]
    for event in events:
        transcript.apply(event)
    attempts = {event.attempt for event in events if event.type == "text_delta"}
    assert attempts == {first, second}
    assert "superseded" in [event.type for event in events]
    assert transcript.steps[(1, 1)].text == "".join(words)


async def test_waiting_for_a_message_returns_how_its_turn_ended(client, runtime):
    await client.create_session("s")
    accepted = await client.send("s", "hello", id="m1")
    waiting = asyncio.create_task(client.wait("s", "m1", accepted.cursor))

    await runtime.work("s", "good day")

    result = await waiting
    assert (result.turn, result.outcome, result.text) == (1, "completed", "good day")
    assert (result.usage.input_tokens, result.cost_usd, result.steps) == (7, 0.5, 1)


async def test_waiting_again_for_a_message_that_was_worked_answers_from_the_log(client, worked):
    assert (await client.wait("s", "m1")).text == "good day\u2028"


async def test_watching_an_unknown_session_raises(client: Client):
    with pytest.raises(UnknownSession, match="nobody"):
        await anext(client.events("nobody"))


async def test_a_watcher_goes_on_where_it_was_when_the_api_comes_back(runtime):
    async with runtime.served() as served:
        port = int(served.url.rpartition(":")[2])
        client = Client(served.url, patience_seconds=10)
        await client.create_session("s")
        await client.send("s", "one", id="m1")
        events = client.events("s")
        first = await anext(events)
    following = asyncio.create_task(anext(events))
    async with runtime.served(port=port), client, aclosing(events):
        await client.send("s", "two", id="m2")
        second = await following

    assert [event.body["message_id"] for event in (first, second)] == ["m1", "m2"]
    assert [event.seq for event in (first, second)] == [1, 2]


async def test_a_runtime_that_stays_away_is_given_up(runtime):
    async with runtime.served() as served:
        client = Client(served.url, patience_seconds=0.2)
        await client.create_session("s")
    async with client:
        with pytest.raises(RuntimeUnavailable, match=r"No runtime answers at .*'everturn up'"):
            await anext(client.events("s"))


async def test_a_runtime_that_was_never_there_is_given_up_at_once(runtime):
    async with Client("http://127.0.0.1:1", patience_seconds=3600) as client:
        with pytest.raises(RuntimeUnavailable, match="No runtime answers"):
            await client.session("s")
        with pytest.raises(RuntimeUnavailable, match="No runtime answers"):
            await anext(client.events("s"))


@pytest.fixture
async def trimmed(runtime, worked, monkeypatch):
    """A log that tells of a sequence's cursor only that all behind it was trimmed away."""
    watch = runtime.log.watch

    async def only_a_gap(key, after):
        if after[0] % 2:
            async for batch in watch(key, after):
                yield batch
        gap = {"first": after[1] + 1, "last": 99}
        yield [Event(epoch=2, seq=99, type="gap", turn=0, step=0, attempt=0, time=0, body=gap)]
        await asyncio.Event().wait()

    async def end(key, like):
        return (2, 99)

    monkeypatch.setattr(runtime.log, "watch", only_a_gap)
    monkeypatch.setattr(runtime.log, "end", end)


async def test_who_waits_behind_what_was_trimmed_is_told_how_its_turn_ended(client, trimmed):
    async with asyncio.timeout(20):
        result = await client.wait("s", "m1", "2.4")

    assert (result.turn, result.outcome) == (1, "completed")


async def test_a_shell_that_follows_a_trimmed_log_is_shown_the_gap_and_then_the_turn(
    client, trimmed
):
    class Shown:
        def __init__(self):
            self.types = []

        def event(self, event):
            self.types.append(event.type)

    accepted = await client.send("s", "hello", id="m1")
    shown, first = Shown(), True

    class Reconnected:
        """Is at a cursor of the sequence when it meets the gap."""

        def events(self, session, after):
            nonlocal first
            after, first = ("2.4" if first else after), False
            return client.events(session, after)

    async with asyncio.timeout(20):
        before = accepted.model_copy(update={"cursor": "0"})
        result = await follow_message(Reconnected(), "s", before, shown, every_event=False)

    assert (result.turn, result.outcome) == (1, "completed")
    assert (shown.types[0], shown.types[-1]) == ("gap", "turn_finished")
