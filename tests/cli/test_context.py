"""everturn context."""

import json

from composed import compose

from everturn.session import SessionKey
from everturn_activities.store import SessionSettings


async def made(runtime) -> None:
    folder = str(runtime.workspace)
    await runtime.store.create_session(SessionKey("default", "s"), SessionSettings(folder, folder))
    await compose(runtime, "s", "01", "02")


async def test_a_context_is_shown_layer_by_layer_with_a_bar_for_the_window(commands, runtime):
    await made(runtime)

    shown = await commands("context", "s")
    full = await commands("context", "s", "--step", "1", "--full")

    assert (shown.code, shown.err) == (0, "")
    assert "s  step 1.2  agent clerk  openai/test  profile office (system)" in shown.out
    assert "115 of 1,000 tokens, 11.5%" in shown.out
    assert "summarised from 900 tokens on (90%)" in shown.out
    rows = [line.split() for line in shown.out.splitlines()]
    assert ["█", "role", "turn", "4", "0.4%", "You", "are", "a", "clerk."] in rows
    assert ["▚", "this", "turn", "1", "0.1%", "1", "message"] in rows
    assert "It is 12:01.\n" in full.out


async def test_two_steps_are_told_apart_by_what_changed(commands, runtime):
    await made(runtime)
    shown = await commands("context", "s", "--diff", "1")
    rows = [line.split() for line in shown.out.splitlines()]
    assert ["role", "4", "4", "same"] in rows
    assert ["now", "3", "3", "changed"] in rows
    assert "-It is 12:01.\n+It is 12:02." in shown.out
    assert (await commands("context", "s", "--step", "1", "--diff", "1.2")).code == 0


async def test_a_step_is_held_against_one_of_another_turn(commands, runtime):
    folder = str(runtime.workspace)
    await runtime.store.create_session(SessionKey("default", "s"), SessionSettings(folder, folder))
    turn, step = await compose(runtime, "s", "01", "02")
    await runtime.finish(turn, step, await runtime.begin_attempt(step), "Done.")
    await compose(runtime, "s", "03", "04")

    other = await commands("context", "s", "--diff", "1.2")
    own = await commands("context", "s", "--diff", "1")

    assert (other.code, own.code) == (0, 0)
    assert "-It is 12:02.\n+It is 12:04." in other.out
    assert "-It is 12:03.\n+It is 12:04." in own.out


async def test_a_context_is_json_too(commands, runtime):
    await made(runtime)
    shown = await commands("context", "s", "--diff", "1.1", "--json")
    newest, first = (json.loads(line) for line in shown.out.splitlines())
    assert newest["layers"][-1]["text"] == "It is 12:02."
    assert (first["step"], first["layers"][-1]["text"]) == (1, "It is 12:01.")


async def test_a_step_that_is_none_is_refused_in_a_sentence(commands, runtime):
    await made(runtime)
    for written in ("two", "0", "1.0", ".2"):
        wrong = await commands("context", "s", "--diff", written)
        assert wrong.code == 2
        assert f"--diff is '{written}'; write a step such as 2" in wrong.err
    unknown = await commands("context", "s", "--step", "9")
    assert unknown.code == 2
    assert "has no step 9" in unknown.err
