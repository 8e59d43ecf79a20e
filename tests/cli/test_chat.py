"""A conversation on a terminal."""

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from terminals import on_a_terminal
from test_work import spoil_events, waits

from everturn.budgets import Budget
from everturn.session import PrepareStep, SessionKey
from everturn_workers.cli.completing import Names


async def test_all_of_a_reply_stands_on_the_screen_beside_the_prompt(commands, runtime):
    pieces = ("The fi", "rst line\nThe sec", "ond line\nThe e", "nd")
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        terminal.type("Say it.\r")
        await waits(runtime, "s")
        head = await runtime.begin("s")
        context, attempt = await runtime.begin_step(head)

        # Each piece is drawn, and the prompt below it, before the next one comes.
        await runtime.stream(context, attempt, *pieces[:2])
        await terminal.shows(lambda lines: "The first line" in lines)
        # What the log holds already, it does not take again.
        await runtime.stream(context, attempt, *pieces)
        await terminal.shows(lambda lines: any("ond line" in line for line in lines))
        await runtime.finish(head, context, attempt, "".join(pieces))
        lines = await terminal.shows(lambda lines: any("completed:" in line for line in lines))

    start = lines.index("The first line")
    assert "\n".join(lines[start : start + 3]) == "".join(pieces)
    assert lines[start + 3].startswith("completed:")


async def test_a_chat_shows_the_turn_under_way_and_reads_none_before_it(commands, runtime):
    await commands("run", "one", "--session", "s", "--detach")
    await runtime.work("s", "first")
    await commands("send", "s", "two")
    head = await runtime.begin("s")
    context, attempt = await runtime.begin_step(head)
    spoil_events(runtime, turn=1)

    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        await runtime.finish(head, context, attempt, "second")
        lines = await terminal.shows(lambda lines: any("completed:" in line for line in lines))

    assert not any("first" in line for line in lines)


async def test_in_a_chat_a_message_joins_waits_for_or_interrupts_the_turn(commands, runtime):
    key = SessionKey("default", "s")
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        lines = await terminal.shows(lambda lines: ">" in lines)
        assert "/interrupt TEXT" in " ".join(lines)
        terminal.type("Begin.\r")
        await waits(runtime, "s")
        head = await runtime.begin("s")
        context, attempt = await runtime.begin_step(head)
        await runtime.stream(context, attempt, "A line.\n")
        await terminal.shows(lambda lines: "A line." in lines)

        terminal.type("Mind this.\r")
        await terminal.shows(lambda lines: 'message "Mind this." waits for the next step.' in lines)
        terminal.type("/queue Later.\r")
        await terminal.shows(lambda lines: 'message "Later." waits for the next turn.' in lines)
        terminal.type("/interrupt Stop.\r")
        await terminal.shows(lambda lines: 'message "Stop." interrupts the turn.' in lines)

    assert await runtime.store.cancelled(key, head.turn)


async def test_in_a_chat_a_slash_asks_for_a_skill_and_an_unknown_one_names_those_there_are(
    commands, runtime
):
    (runtime.workspace / "skills").mkdir(exist_ok=True)
    (runtime.workspace / "skills" / "review.md").write_text("Review the newest change.")
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        terminal.type("/reviw\r")
        await terminal.shows(lambda lines: "/review" in " ".join(lines))
        terminal.type("/review\r")
        await waits(runtime, "s")
    await runtime.begin("s")
    (sent,) = await runtime.store.messages(SessionKey("default", "s"), 0, 10)
    assert [part.text for part in sent.message.parts] == ["Review the newest change."]


async def test_in_a_chat_a_budget_is_raised_where_the_turn_asks_about_it(commands, runtime):
    key = SessionKey("default", "s")
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        terminal.type("/raise 20\r")
        await terminal.shows(lambda lines: "asks nothing about a budget" in " ".join(lines))
        terminal.type("Begin.\r")
        await waits(runtime, "s")
        head = await runtime.begin("s")
        await runtime.store.put_budget("default", "session", "s", Budget(tokens=1, soft=0.5))
        context = await runtime.store.prepare_step(PrepareStep(*key, 1, 1, head.epoch), "queued")
        assert await runtime.store.check_budget(context, "m") is not None
        await terminal.shows(lambda lines: "/raise LIMIT, in tokens, or /deny" in " ".join(lines))

        terminal.type("/raise much\r")
        await terminal.shows(lambda lines: "'much' is no limit in tokens" in " ".join(lines))
        terminal.type("/raise 9,000\r")
        await terminal.shows(
            lambda lines: "budget  The budget was raised to 9,000 tokens." in lines
        )

    assert (await runtime.store.budgets("default"))[0].limits.tokens == 9000
    assert await runtime.store.check_budget(context, "m") is None


async def test_in_a_chat_a_denial_leaves_the_budget_and_ends_the_turn(commands, runtime):
    key = SessionKey("default", "s")
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        terminal.type("Begin.\r")
        await waits(runtime, "s")
        head = await runtime.begin("s")
        await runtime.store.put_budget("default", "session", "s", Budget(tokens=1, soft=0.5))
        context = await runtime.store.prepare_step(PrepareStep(*key, 1, 1, head.epoch), "queued")
        await runtime.store.check_budget(context, "m")
        await terminal.shows(lambda lines: "or /deny" in " ".join(lines))
        terminal.type("/deny\r")
        await terminal.shows(lambda lines: "budget  The budget was not raised." in lines)

    blocked = await runtime.store.check_budget(context, "m")
    assert blocked is not None
    assert blocked.how == "over"


async def test_B2_a_visible_agent_is_completed_after_an_at_sign_and_asked(commands, runtime):
    agents = runtime.workspace / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "zoologist.md").write_text("---\ndescription: Knows animals.\n---\nBe exact.\n")
    (agents / "zebra.md").write_text("---\nvisible: false\n---\nHide.\n")
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        # Of the two that begin so, one is visible: Tab writes the rest of it.
        terminal.type("@z\t")
        await terminal.shows(lambda lines: any("> @zoologist" in line for line in lines))
        terminal.type("name a bird\r")
        await waits(runtime, "s")
    asked = await runtime.store.assignment(SessionKey("default", "s"))
    (event,) = await runtime.log.read(SessionKey("default", "s"), (1, 0), 10)
    assert (asked.agent, event.body["text"]) == ("zoologist", "name a bird")


def test_what_begins_with_no_known_name_is_completed_to_nothing():
    names = Names({"@plan": "Plans.", "/review": "Reviews.", "/queue": "after the turn"})

    def completed(text: str) -> list[str]:
        found = names.get_completions(Document(text), CompleteEvent())
        return [each.text for each in found]

    assert completed("@") == ["@plan "]
    assert completed("/") == ["/review ", "/queue "]
    assert completed("/rev") == ["/review "]
    assert completed("") == completed("mail @pl") == completed("@plan write") == []
