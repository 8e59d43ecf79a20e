"""A rolled-back turn takes its changes of files along, but never over somebody else's."""

import pytest
from harness import Bench, calls, eventually, says, scripted

from everturn.events import Event
from everturn.session import SessionKey
from everturn_activities.sandbox import probe


def told(events: list[Event]) -> list[str]:
    return [event.body["text"] for event in events if event.type == "status"]


async def rolled_back(made: Bench, key: SessionKey, *steps: dict[str, object]) -> list[Event]:
    """Work `steps` in a turn that a message rolls back; all events to the end of the next."""
    gateway = scripted(
        *steps, says("thinking", hold="mid"), by_last_user={"instead": [says("new")]}
    )
    async with made.worker(gateway):
        await made.send(key, "go")
        await gateway.reached("mid")
        await made.send(key, "instead", mode="rollback")
        events = await made.until(key, "turn_finished", turn=2)
        await made.closed(key)
    return events


def writes(path: str, content: str) -> dict[str, object]:
    return calls("write_file", path=path, content=content)


async def test_files_of_a_rolled_back_turn_are_as_before_it_when_the_next_begins(made: Bench):
    (made.workspace / "old.txt").write_text("old")
    key = await made.session()
    events = await rolled_back(made, key, writes("old.txt", "new"), writes("made.txt", "made"))
    assert events[-1].body["text"] == "new"
    assert (made.workspace / "old.txt").read_text() == "old"
    assert not (made.workspace / "made.txt").exists()
    assert told(events) == ["Turn 1 was rolled back. Put back as they were: old.txt, made.txt."]
    assert (await made.runtime.store.folder(key)).restore_turn == 0


async def test_a_turn_without_changes_of_files_is_rolled_back_without_a_word(made: Bench):
    key = await made.session()
    events = await rolled_back(made, key, calls("add", a=1, b=2))
    assert told(events) == []
    assert events[-1].body["text"] == "new"


@pytest.mark.skipif(not probe().available, reason="there is no sandbox here")
async def test_a_file_that_a_person_changed_meanwhile_is_kept_and_named(made: Bench):
    (made.workspace / "mine.txt").write_text("old")
    (made.workspace / "its.txt").write_text("old")
    key = await made.session()
    command = "echo new > mine.txt; echo new > its.txt"
    gateway = scripted(
        calls("run_command", command=command),
        says("thinking", hold="mid"),
        by_last_user={"instead": [says("new")]},
    )
    async with made.worker(gateway):
        await made.send(key, "go")
        await gateway.reached("mid")
        (made.workspace / "mine.txt").write_text("by a person")
        await made.send(key, "instead", mode="rollback")
        events = await made.until(key, "turn_finished", turn=2)
        await made.closed(key)
    assert (made.workspace / "mine.txt").read_text() == "by a person"
    assert (made.workspace / "its.txt").read_text() == "old"
    assert told(events) == [
        "Turn 1 was rolled back. Put back as they were: its.txt. Left as they are: mine.txt"
        " (somebody else has changed it since)."
    ]


async def test_without_checkpoints_nothing_is_put_back(made: Bench):
    (made.workspace / "everturn.toml").write_text("[folders]\ncheckpoints = false\n")
    key = await made.session()
    events = await rolled_back(made, key, writes("made.txt", "made"))
    assert told(events) == []
    assert (made.workspace / "made.txt").read_text() == "made"


@pytest.mark.skipif(not probe().available, reason="there is no sandbox here")
async def test_what_a_command_had_done_goes_back_that_the_rollback_ended(made: Bench):
    (made.workspace / "a.txt").write_text("old")
    key = await made.session()
    gateway = scripted(
        calls("run_command", command="echo new > a.txt; sleep 60"),
        by_last_user={"instead": [says("new")]},
    )
    async with made.worker(gateway):
        await made.send(key, "go")
        await eventually(lambda: (made.workspace / "a.txt").read_text() == "new\n")
        await made.send(key, "instead", mode="rollback")
        events = await made.until(key, "turn_finished", turn=2)
        await made.closed(key)
    assert (made.workspace / "a.txt").read_text() == "old"
    assert told(events) == ["Turn 1 was rolled back. Put back as they were: a.txt."]
