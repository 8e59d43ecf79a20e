"""Memory over HTTP and in the Client."""

import httpx
import pytest
from by_hand import Runtime, Served

from everturn.client import Client
from everturn.errors import IdempotencyConflict, UnknownSession, UsageError
from everturn.views import NewFact


async def test_facts_are_added_once_listed_and_forgotten(runtime: Runtime, client: Client) -> None:
    await client.create_session("s")
    added = await client.add_fact(NewFact(id="f1", scope="session", session="s", text="likes tea"))
    again = await client.add_fact(NewFact(id="f1", scope="session", session="s", text="likes tea"))
    assert (again, added.n, added.sources) == (added, 1, ())
    await client.add_fact(NewFact(scope="user", text="lives in Bern"))
    await client.add_fact(NewFact(scope="project", text="uses uv"))

    of_session = await client.facts(session="s")
    assert [(fact.scope, fact.text) for fact in of_session] == [
        ("session", "likes tea"),
        ("user", "lives in Bern"),
        ("project", "uses uv"),
    ]
    assert of_session[2].owner == str(runtime.workspace.resolve())
    await client.forget_fact("session", 1, session="s")
    assert [fact.scope for fact in await client.facts(session="s")] == ["user", "project"]
    assert [fact.scope for fact in await client.facts()] == ["user", "project"]


async def test_a_project_is_a_workspace_and_sees_its_own_facts(
    runtime: Runtime, client: Client
) -> None:
    other = runtime.folder / "other"
    other.mkdir()
    await client.add_fact(NewFact(scope="project", text="ours"))
    await client.add_fact(NewFact(scope="project", text="theirs", workspace=str(other)))
    assert [fact.text for fact in await client.facts("project")] == ["ours"]
    theirs = await client.facts("project", workspace=str(other))
    assert [fact.text for fact in theirs] == ["theirs"]


async def test_what_cannot_be_remembered_is_one_sentence(client: Client) -> None:
    with pytest.raises(UsageError, match="names its 'session', and no other does"):
        await client.add_fact(NewFact(scope="session", text="x"))
    with pytest.raises(UsageError, match="names its 'session', and no other does"):
        await client.facts("user", session="s")
    with pytest.raises(UnknownSession):
        await client.facts("session", session="nowhere")
    with pytest.raises(UsageError, match="2,001 characters and the limit is 2,000"):
        await client.add_fact(NewFact(scope="user", text="x" * 2001))
    with pytest.raises(UsageError, match="user has no fact 7"):
        await client.forget_fact("user", 7)


async def test_a_request_that_names_no_scope_to_forget_from_is_refused(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.delete("/v1/memory", params={"fact": 1})
    assert answer.status_code == 422
    assert "scope" in answer.json()["detail"]


async def test_a_users_facts_are_read_by_that_users_sessions_alone(client: Client) -> None:
    await client.create_session("of-ana", user="ana")
    await client.create_session("of-nobody")
    await client.add_fact(NewFact(scope="user", text="likes tea", user="ana"))
    await client.add_fact(NewFact(scope="user", text="likes rum"))
    assert (await client.session("of-ana")).user == "ana"
    assert [fact.text for fact in await client.facts(session="of-ana")] == ["likes tea"]
    assert [fact.text for fact in await client.facts(session="of-nobody")] == ["likes rum"]
    assert [fact.text for fact in await client.facts(user="ana")] == ["likes tea"]
    assert [fact.text for fact in await client.facts("user", user="ben")] == []
    await client.forget_fact("user", 1, user="ana")
    assert [fact.text for fact in await client.facts("user")] == ["likes rum"]


async def test_a_session_keeps_its_user(client: Client) -> None:
    await client.create_session("s", user="ana")
    assert (await client.create_session("s")).user == "ana"
    with pytest.raises(IdempotencyConflict, match="with user 'ana', not 'ben'"):
        await client.create_session("s", user="ben")
    with pytest.raises(UsageError, match=r"user 'a b' is not possible"):
        await client.create_session("t", user="a b")
    with pytest.raises(UsageError, match="Only a fact of scope 'user' names a 'user'"):
        await client.facts("project", user="ana")
