"""Schedules on the command line, and where a session tells that it is scheduled."""

from by_hand import Runtime
from commands import Commands
from terminals import on_a_terminal

from everturn.schedules import Definition
from everturn.session import SessionKey
from everturn_activities.store import SessionSettings


async def test_a_schedule_is_added_run_paused_listed_and_shown(commands: Commands) -> None:
    given = ("--cron", "0 9 * * MON-FRI", "--time-zone", "Europe/Berlin", "--budget-usd", "0.5")
    added = await commands("schedules", "add", "news", "What is new?", *given)
    assert added.code == 0, added.err
    assert added.err.startswith("Schedule news is set, to a new session each time. Next: 20")
    assert added.err.count(" 09:00 CE") == 3

    ran = await commands("schedules", "run", "news")
    assert (ran.code, "everturn attach news-20" in ran.err) == (0, True), ran.err
    again = await commands("schedules", "run", "news")
    assert again.code == 1
    assert again.err.startswith("Nothing was sent (skipped): The run of 20")
    paused = await commands("schedules", "pause", "news")
    assert paused.err == "Schedule news is paused.\n"

    listed = await commands("schedules", "list")
    assert "0 9 * * MON-FRI (Europe/Berlin)" in listed.out
    shown = await commands("schedules", "show", "news")
    assert shown.out.startswith("news: paused, 0 9 * * MON-FRI (Europe/Berlin)\n")
    assert "to:       a new session each time" in shown.out
    assert "budget:   $0.5 for each session" in shown.out
    assert " by hand  skipped" in shown.out
    assert " by hand  waits" in shown.out


async def test_mistakes_are_told_in_the_words_of_the_command(commands: Commands) -> None:
    neither = await commands("schedules", "add", "news", "What is new?")
    assert neither.code == 2
    assert neither.err == "A schedule has either --cron or --every; name one of the two.\n"
    often = await commands("schedules", "add", "news", "What?", "--every", "10s")
    assert often.err.startswith("A schedule each 10s fires more often than is allowed")
    unknown = await commands("schedules", "remove", "news")
    assert unknown.code == 2
    assert unknown.err.startswith("There is no schedule 'news'; 'everturn schedules list'")


async def test_a_chat_says_plainly_that_its_session_is_scheduled(
    runtime: Runtime, commands: Commands
) -> None:
    folder = str(runtime.workspace)
    key = SessionKey("default", "s")
    await runtime.store.create_session(key, SessionSettings(folder, folder))
    given = Definition(prompt="What is new?", session="s", every_seconds=3600, made_by="s")
    await runtime.schedules.add("default", "news", given)
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        said = "Schedule news, set by its agent, sends to session s, each 1h."
        await terminal.shows(lambda lines: said in " ".join(lines))
        await terminal.shows(lambda lines: ">" in lines)
        await runtime.schedules.run("default", "news", "by-hand:1")
        await terminal.shows(
            lambda lines: 'schedule news says "[From schedule news' in " ".join(lines)
        )
    shown = await commands("sessions", "show", "s")
    assert said in shown.out
