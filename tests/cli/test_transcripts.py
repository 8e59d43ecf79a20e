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


async def test_a_long_conversation_comes_and_goes_whole(
    runtime: Runtime, commands: Commands
) -> None:
    """An export reads it in pages; of many lines that are left out the first are told."""
    lines = [json.dumps({"role": "user", "content": f"Say {number}."}) for number in range(501)]
    (runtime.workspace / "long.jsonl").write_text("\n".join([*lines, *["no message"] * 7]))

    taken = await commands("sessions", "import", "long.jsonl", "--agent", "plan")
    exported = await commands("sessions", "export", "long")

    assert taken.err.count("Left out: line ") == 5
    assert taken.err.endswith("Left out: 2 more lines.\nSession long has 501 messages.\n")
    said = [json.loads(line)["content"] for line in exported.out.splitlines()]
    assert said == [f"Say {number}." for number in range(501)]
    shown = json.loads((await commands("sessions", "show", "long", "--json")).out)
    assert (shown["agent"], shown["title"]) == ("plan", "Say 0.")


async def test_a_file_that_is_too_long_is_not_imported(
    runtime: Runtime, commands: Commands
) -> None:
    with (runtime.workspace / "big.jsonl").open("wb") as big:
        big.truncate(16 * 1024 * 1024 + 1)
    refused = await commands("sessions", "import", "big.jsonl")
    assert (refused.code, refused.err) == (
        2,
        "big.jsonl has more than 16,777,216 bytes, which is the limit; shorten it.\n",
    )
