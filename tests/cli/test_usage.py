"""What was used, on the command line."""

import json

from by_hand import Runtime
from commands import Commands

from everturn.messages import user_text
from everturn.session import SessionKey
from everturn_activities.store import Inbound, SessionSettings


async def work(runtime: Runtime, *names: str) -> None:
    where = str(runtime.workspace)
    for name in names:
        key = SessionKey("default", name)
        await runtime.store.create_session(key, SessionSettings(where, where))
        await runtime.store.accept(key, Inbound("m", "message", user_text("hello")))
        await runtime.work(name, "Done.")


async def test_usage_is_added_up_as_a_table_as_json_and_as_csv(
    runtime: Runtime, commands: Commands
) -> None:
    await work(runtime, "a", "b")
    table = await commands("usage", "--by", "model")
    rows = [line.split() for line in table.out.splitlines()]
    assert ["m", "2", "0", "0", "14", "0", "6", "$1.0000"] in rows
    assert ["all", "2", "0", "0", "14", "0", "6", "$1.0000"] in rows
    as_json = await commands("usage", "--json", "--since", "2026-01-01")
    found = [json.loads(line) for line in as_json.out.splitlines()]
    assert [(row["key"], row["cost_usd"]) for row in found] == [("a", 0.5), ("b", 0.5)]
    as_csv = await commands("usage", "--by", "agent", "--csv")
    heading, line = as_csv.out.splitlines()
    assert heading.startswith("agent,model_calls,lost_attempts,side_calls,input_tokens")
    assert line == "default,2,0,0,14,0,6,0,1.000000000000,0,0"
    none = await commands("usage", "--json", "--since", "2999-01-01")
    assert (none.code, none.out) == (0, "")


async def test_calls_without_a_price_are_counted_beside_what_the_others_cost(
    runtime: Runtime, commands: Commands
) -> None:
    await work(runtime, "a")
    await runtime.store.accept(
        SessionKey("default", "a"), Inbound("m2", "message", user_text("again"))
    )
    await runtime.work("a", "Done.", cost_usd=None)
    for asked in (["usage"], ["sessions", "list"], ["sessions", "show", "a"]):
        shown = await commands(*asked)
        assert "$0.5000 + 1 unpriced" in shown.out, shown.out
    turns = [line for line in shown.out.splitlines() if "turn 2" in line]
    assert "1 unpriced" in turns[0]
    as_csv = await commands("usage", "--csv")
    assert as_csv.out.splitlines()[1].endswith(",0.500000000000,1,0")


async def test_what_usage_cannot_add_up_by_is_one_sentence(
    runtime: Runtime, commands: Commands
) -> None:
    by = await commands("usage", "--by", "moon")
    assert (by.code, by.err) == (2, "--by is 'moon'; it is one of session, agent, model, day.\n")
    since = await commands("usage", "--since", "yesterday")
    assert since.code == 2
    assert since.err == "The day 'yesterday' is not possible; write one such as 2026-01-31.\n"
