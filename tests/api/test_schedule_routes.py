"""Schedules over HTTP and in the Client."""

from typing import Any

import httpx
import pytest
from by_hand import Runtime, Served

from everturn.client import Client
from everturn.errors import IdempotencyConflict, UnknownSchedule, UnknownSession, UsageError
from everturn.schedules import ChangeSchedule, NewSchedule

NEWS: dict[str, Any] = {"name": "news", "prompt": "What is new?", "cron": ("0 9 * * *",)}


def news(**more: object) -> NewSchedule:
    return NewSchedule.model_validate({**NEWS, **more})


async def test_a_schedule_is_added_told_to_temporal_read_and_removed(
    runtime: Runtime, client: Client
) -> None:
    added = await client.schedules.add(news(time_zone="Europe/Berlin"))
    assert (added.status, added.problem, len(added.next)) == ("active", None, 5)
    assert added.workspace == str(runtime.workspace.resolve())
    assert set(runtime.waker.schedules) == {"c/default/news"}
    assert await client.schedules.add(news(time_zone="Europe/Berlin")) == added

    (listed,) = await client.schedules.list()
    assert (listed.name, listed.next) == ("news", added.next[:1])
    assert len((await client.schedules.get("news", 7)).next) == 7
    await client.schedules.remove("news")
    assert await client.schedules.list() == ()
    assert runtime.waker.schedules["c/default/news"].definition is None
    with pytest.raises(UnknownSchedule, match="'everturn schedules list'"):
        await client.schedules.remove("news")


async def test_a_schedule_of_a_session_is_listed_with_it_and_rests_when_it_is_paused(
    runtime: Runtime, client: Client
) -> None:
    await client.create_session("s")
    await client.schedules.add(news(session="s"))
    await client.schedules.add(news(name="other"))
    assert [one.name for one in await client.schedules.list("s")] == ["news"]

    paused = await client.schedules.change("news", ChangeSchedule(paused=True))
    assert (paused.status, paused.next) == ("paused", ())
    assert runtime.waker.schedules["c/default/news"].paused
    again = await client.schedules.change("news", ChangeSchedule(paused=False, prompt="And now?"))
    assert (again.status, again.prompt) == ("active", "And now?")


async def test_a_run_by_hand_sends_the_message_once_and_wakes_its_session(
    runtime: Runtime, client: Client
) -> None:
    await client.create_session("s")
    await client.schedules.add(news(session="s", paused=True))
    first = await client.schedules.run("news", "today")
    assert (first.state, first.session) == ("sent", "s")
    assert await client.schedules.run("news", "today") == first
    assert [wake.key.session for wake in runtime.waker.woken] == ["s"]
    await runtime.work("s", "Nothing.")
    (run,) = (await client.schedules.get("news")).runs
    assert (run.by_hand, run.outcome, run.cost_usd) == (True, "completed", 0.5)
    with pytest.raises(UnknownSchedule):
        await client.schedules.run("nothing")


async def test_a_schedule_is_kept_while_temporal_is_away(runtime: Runtime, client: Client) -> None:
    runtime.waker.reachable = False
    assert (await client.schedules.add(news())).problem is None
    assert [one.name for one in await runtime.schedules.due(9)] == ["news"]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"session": "nobody"}, UnknownSession, "no session 'nobody'"),
        ({"agent": "nobody"}, UsageError, "nobody"),
        ({"workspace": "/nowhere"}, UsageError, "'workspace' is '/nowhere'"),
        ({"session": "s", "workspace": "/tmp"}, UsageError, "leave workspace out"),
        ({"session": "s", "user": "ada"}, UsageError, "leave user out"),
        ({"prompt": " "}, UsageError, "The prompt is empty"),
        ({"name": "a/b"}, UsageError, "schedule name 'a/b' is not possible"),
        ({"cron": ("x",)}, UsageError, "has 1 fields"),
        ({"time_zone": "Nowhere"}, UsageError, "time zone 'Nowhere' is not known"),
    ],
)
async def test_what_cannot_be_scheduled_is_refused_in_a_sentence(
    client: Client, given: dict[str, object], error: type[UsageError], said: str
) -> None:
    await client.create_session("s")
    with pytest.raises(error, match=said):
        await client.schedules.add(news(**given))
    assert await client.schedules.list() == ()


async def test_another_schedule_of_that_name_is_a_conflict(client: Client) -> None:
    await client.schedules.add(news())
    with pytest.raises(IdempotencyConflict):
        await client.schedules.add(news(prompt="Something else"))


async def test_bodies_that_contradict_themselves_are_refused(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url, trust_env=False) as http:
        for body, said in (
            ({"name": "n", "prompt": "x"}, "either 'cron' or 'every_seconds'"),
            ({**NEWS, "every_seconds": 60}, "either 'cron' or 'every_seconds'"),
            ({**NEWS, "overlap": "queue"}, "'queue' needs a 'session'"),
            ({**NEWS, "session": "s", "overlap": "all"}, "names no 'session'"),
            ({**NEWS, "session": "s", "budget": {"usd": 1}}, "everturn budget set session s"),
            ({**NEWS, "every": "1h"}, "'every' is not known here"),
        ):
            answer = await http.post("/v1/schedules", json=body)
            assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text
        await http.post("/v1/schedules", json=NEWS)
        limited = await http.patch("/v1/schedules/news", json={"runs_max": 3})
        unlimited = await http.patch("/v1/schedules/news", json={"runs_max": None})
        assert (limited.json()["runs_max"], unlimited.json()["runs_max"]) == (3, None)
        assert (await http.get("/v1/schedules/other")).status_code == 404
