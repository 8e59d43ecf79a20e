"""Budgets on the command line."""

from by_hand import Runtime
from commands import Commands

from everturn.budgets import Budget
from everturn.messages import user_text
from everturn.session import PrepareStep, SessionKey
from everturn_activities.store import Inbound, SessionSettings


async def test_budgets_are_set_listed_raised_and_taken_back(
    runtime: Runtime, commands: Commands
) -> None:
    put = await commands("budget", "set", "--day", "--usd", "1", "--tokens", "5000", "--soft", ".8")
    assert (put.code, put.err) == (0, "")
    raised = await commands("budget", "raise", "--day", "--usd", "2.5")
    assert (raised.code, raised.err) == (0, "The budget is raised.\n")
    listed = await commands("budget", "list")
    lines = [" ".join(line.split()) for line in listed.out.splitlines()]
    assert any(" UTC usd $2.5000 $0.0000 $0.0000 $2.0000" in line for line in lines), listed.out
    assert any(" UTC tokens 5,000 0 0 4,000" in line for line in lines), listed.out
    await commands("budget", "set", "--day")
    assert (await runtime.store.budgets("default"))[0].limits == Budget()


async def test_a_budget_of_less_than_a_hundredth_of_a_cent_is_listed_as_it_is(
    runtime: Runtime, commands: Commands
) -> None:
    await commands("budget", "set", "--tenant", "--usd", "0.00005", "--soft", ".5")
    listed = await commands("budget", "list")
    lines = [" ".join(line.split()) for line in listed.out.splitlines()]
    assert "tenant usd $0.00005 $0.0000 $0.0000 $0.000025" in lines, listed.out
    nothing = await commands("budget", "set", "--tenant", "--usd", "0.0000001")
    assert nothing.code == 2
    assert "--usd: Input should be greater than or equal to 0.000001" in nothing.err


async def test_what_cannot_be_a_budget_is_one_sentence(
    runtime: Runtime, commands: Commands
) -> None:
    both = await commands("budget", "set", "--day", "--tenant", "--usd", "1")
    assert (both.code, both.err) == (2, "Name one of SESSION, --tenant and --day.\n")
    negative = await commands("budget", "set", "--day", "--usd", "-1")
    assert negative.code == 2
    assert negative.err.startswith("The budget is not possible: --usd: ")
    unknown = await commands("budget", "set", "nowhere", "--usd", "1")
    assert unknown.code == 2
    assert "no session 'nowhere'" in unknown.err
    empty = await commands("budget", "raise", "nowhere")
    assert (empty.code, empty.err) == (
        2,
        "The budget is not possible: a raise needs a new limit: usd, tokens, steps or seconds.\n",
    )


async def test_who_watches_a_turn_that_asks_is_told_and_left_with_code_3(
    runtime: Runtime, commands: Commands
) -> None:
    key = SessionKey("default", "s")
    where = str(runtime.workspace)
    await runtime.store.create_session(key, SessionSettings(where, where))
    await runtime.store.put_budget("default", "session", "s", Budget(tokens=1, soft=0.5))
    await runtime.store.accept(key, Inbound("m", "message", user_text("hello")))
    head = await runtime.begin("s")
    context = await runtime.store.prepare_step(PrepareStep(*key, 1, 1, head.epoch), "queued")
    blocked = await runtime.store.check_budget(context, "m")
    assert blocked is not None

    ran = await commands("attach", "s")
    assert ran.code == 3
    assert blocked.reason in ran.err
    assert "'everturn budget raise s --tokens LIMIT', or 'everturn budget deny s'" in ran.err
    shown = await commands("budget", "deny", "s")
    assert shown.err == "The budget stays as it is; the turn ends.\n"
    again = await commands("budget", "deny", "s")
    assert again.err == "Session s asks nothing.\n"
