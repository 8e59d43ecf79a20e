"""Conversations go to files and come from files."""

import json

from by_hand import Runtime
from commands import Commands

from everturn.session import SessionKey

LINES = (
    '{"role": "user", "content": "Deploy on Mondays.", "tokens": 4}\n'
    '{"role": "assistant", "content": "Noted.", "tokens": 2}\n'
    "no message\n"
)


async def test_T21_T22_T23_a_session_is_imported_with_its_agent_and_exported_as_it_was(
    runtime: Runtime, commands: Commands
) -> None:
    """T21: a session is ensured under the file's id. T22: its meta file names the agent."""
    folder = runtime.workspace
    (folder / "old.jsonl").write_text(LINES)
    (folder / "old.meta.json").write_text('{"agent": "plan"}')

    taken = await commands("sessions", "import", "old.jsonl")
    assert taken.code == 0, taken.err
    assert taken.err == (
        "Left out: line 3 is no message with 'role' and 'content'.\nSession old has 2 messages.\n"
    )
    again = await commands("sessions", "import", "old.jsonl")
    assert again.err.endswith("Session old has 2 messages.\n")
    shown = json.loads((await commands("sessions", "show", "old", "--json")).out)
    assert (shown["agent"], shown["title"]) == ("plan", "Deploy on Mondays.")

    page = await commands("sessions", "show", "old")
    assert "It began with 2 imported messages; 'everturn sessions export old' shows" in page.out
    events = await runtime.log.read(SessionKey("default", "old"), (1, 0), 10)
    assert [(event.type, event.body["messages"]) for event in events] == [("messages_imported", 2)]

    exported = await commands("sessions", "export", "old", "--to", "out")
    assert exported.code == 0, exported.err
    lines = [json.loads(line) for line in (folder / "out/old.jsonl").read_text().splitlines()]
    assert [(line["role"], line["content"]) for line in lines] == [
        ("user", "Deploy on Mondays."),
        ("assistant", "Noted."),
    ]
    assert all(line["tokens"] > 0 for line in lines)
    assert json.loads((folder / "out/old.meta.json").read_text())["agent"] == "plan"


async def test_what_cannot_be_imported_is_one_sentence(
    runtime: Runtime, commands: Commands
) -> None:
    missing = await commands("sessions", "import", "gone.jsonl")
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    (runtime.workspace / "old.jsonl").write_text(LINES)
    await commands("sessions", "import", "old.jsonl")
    (runtime.workspace / "old.jsonl").write_text(LINES.replace("Mondays", "Fridays"))
    other = await commands("sessions", "import", "old.jsonl")
    assert other.code == 2
    assert "has messages already; import into a new session" in other.err
