"""A conversation on a terminal."""

from terminals import on_a_terminal
from test_work import waits


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
