"""Memory on the command line."""

import json

from by_hand import Runtime
from commands import Commands

from everturn.session import SessionKey
from everturn_activities.store import SessionSettings


async def test_facts_are_added_listed_and_forgotten(runtime: Runtime, commands: Commands) -> None:
    where = str(runtime.workspace)
    await runtime.store.create_session(SessionKey("default", "s"), SessionSettings(where, where))
    added = await commands("memory", "add", "likes [bold]tea", "--of", "s")
    assert (added.code, added.err) == (0, "Remembered as session fact 1.\n")
    await commands("memory", "add", "uses uv", "--project")
    await commands("memory", "add", "lives in Bern", "--user")

    listed = await commands("memory", "list", "--of", "s")
    assert "a person" in listed.out
    assert "likes [bold]tea" in listed.out
    both = await commands("memory", "list", "--json")
    facts = [json.loads(line) for line in both.out.splitlines()]
    assert [(fact["scope"], fact["text"]) for fact in facts] == [
        ("user", "lives in Bern"),
        ("project", "uses uv"),
    ]
    forgot = await commands("memory", "forget", "1", "--user")
    assert (forgot.code, forgot.err) == (0, "Forgot user fact 1.\n")
    assert (await commands("memory", "list", "--user", "--json")).out == ""


async def test_each_user_has_facts_of_its_own(commands: Commands) -> None:
    added = await commands("memory", "add", "likes tea", "--whose", "ana")
    assert (added.code, added.err) == (0, "Remembered as user fact 1.\n")
    assert "user ana" in (await commands("memory", "list", "--whose", "ana")).out
    assert (await commands("memory", "list", "--user", "--json")).out == ""
    assert (await commands("memory", "list", "--whose", "ben", "--json")).out == ""
    assert "likes tea" in (await commands("memory", "list", EVERTURN_USER="ana")).out
    await commands("memory", "forget", "1", "--user", EVERTURN_USER="ana")
    assert (await commands("memory", "list", "--whose", "ana", "--json")).out == ""


async def test_what_cannot_be_done_is_one_sentence(commands: Commands) -> None:
    both = await commands("memory", "add", "x", "--user", "--project")
    assert (both.code, both.err) == (2, "Name one of --of SESSION, --user and --project.\n")
    gone = await commands("memory", "forget", "9", "--project")
    assert (gone.code, gone.err) == (2, "The memory of this project has no fact 9.\n")
    empty = await commands("memory", "add", " ", "--user")
    assert empty.code == 2
    assert empty.err.count("\n") == 1
