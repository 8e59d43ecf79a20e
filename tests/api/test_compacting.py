"""Asking for a compaction over HTTP and on the command line, and taking one back."""

import httpx
import pytest

from everturn.errors import UnknownSession, UsageError
from everturn.session import SessionKey
from everturn_activities.store import cuts
from everturn_activities.store.locked import LockedSession

KEY = SessionKey("default", "s")


async def test_a_compaction_is_asked_for(client, runtime):
    await client.create_session("s")
    await client.compact("s")

    def asked(tx):
        return LockedSession(tx, KEY).compact_asked

    assert await runtime.store._database.write(asked) == 1


async def test_the_newest_compaction_is_undone_and_told(client, runtime):
    await client.create_session("s")

    def change(tx):
        session = LockedSession(tx, KEY)
        cuts.cut(session, "compaction", 1, 8, 1, "the gist", 2)
        session.save()

    await runtime.store._database.write(change)
    undone = await client.undo_compaction("s")
    assert (undone.first, undone.last) == (1, 8)
    with pytest.raises(UsageError, match="no compaction that could be undone"):
        await client.undo_compaction("s")
    events = [event.type for event in await runtime.log.read(KEY, (1, 0), 100)]
    assert events == ["compaction_undone"]


async def test_an_undoing_that_is_sent_again_undoes_no_other_compaction(client, runtime, served):
    await client.create_session("s")

    def change(tx):
        session = LockedSession(tx, KEY)
        for first in (1, 9):
            cuts.cut(session, "compaction", first, first + 7, 1, "the gist", 2)
        session.save()

    await runtime.store._database.write(change)
    async with httpx.AsyncClient(base_url=served.url) as http:
        for _ in range(2):
            undone = await http.post("/v1/sessions/s/compact/undo", json={"id": "once"})
            assert undone.json() == {"first": 9, "last": 16}
        refused = await http.post("/v1/sessions/s/compact/undo", json={"id": "a b"})
        assert "The undo id 'a b' is not possible" in refused.json()["detail"]


async def test_an_unknown_session_is_named(client):
    with pytest.raises(UnknownSession, match="'nope'"):
        await client.compact("nope")
    with pytest.raises(UnknownSession, match="'nope'"):
        await client.undo_compaction("nope")


async def test_asking_for_a_compaction_needs_no_body(client, served):
    await client.create_session("s")

    async with httpx.AsyncClient(base_url=served.url) as http:
        asked = await http.post("/v1/sessions/s/compact")
        undone = await http.post("/v1/sessions/s/compact/undo")

    assert asked.status_code == 202
    assert "no compaction that could be undone" in undone.json()["detail"]
