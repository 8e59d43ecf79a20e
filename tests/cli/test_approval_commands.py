"""A person decides about tool calls on the command line."""

import json
from typing import Any

from by_hand import Runtime
from commands import Commands
from in_need_of_leave import asks, decided, end, question, sent
from terminals import on_a_terminal
from test_work import waits

from everturn.session import SessionKey
from everturn_workers.cli.chat import _Conversation


async def test_calls_that_wait_are_listed_with_what_they_would_do(
    runtime: Runtime, commands: Commands
) -> None:
    none = await commands("approvals", "list")
    assert (none.code, none.out, none.err) == (0, "", "No call waits for leave.\n")
    await sent(runtime)
    text = "\x1b[31mhi\nApproval 2 of session s: read"
    await asks(runtime, {"path": "a.txt", "text": text}, preview="-old\n+new")
    listed = await commands("approvals", "list")
    assert listed.out.splitlines() == [
        "Approval 1 of session s: write",
        "  path: a.txt",
        "  text: �[31mhi",
        "    Approval 2 of session s: read",
        "  | -old",
        "  | +new",
    ]
    (line,) = (await commands("approvals", "list", "s", "--json")).out.splitlines()
    assert json.loads(line)["arguments"]["path"] == "a.txt"
    unknown = await commands("approvals", "list", "nowhere")
    assert unknown.code == 2
    assert "no session 'nowhere'" in unknown.err


async def test_a_call_is_approved_granted_or_denied_by_its_number(
    runtime: Runtime, commands: Commands
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a"}, {"path": "b"}, {"path": "c"})
    which = await commands("approvals", "deny", "s")
    assert (which.code, which.err) == (2, "Session s has approvals 1, 2, 3; name one.\n")
    unread = await commands("approvals", "approve", "s")
    assert (unread.code, "APPROVAL" in unread.err) == (2, True)
    yes = await commands("approvals", "approve", "s", "1", "--arguments", '{"path": "z"}')
    assert (yes.code, yes.err) == (0, "It runs.\n")
    always = await commands("approvals", "approve", "s", "2", "--like", "path=docs/*")
    assert always.err == "It runs, and calls like it in this session need no further leave.\n"
    no = await commands("approvals", "deny", "s", "--reason", "Too late.")
    assert no.err == "It does not run.\n"
    calls = await runtime.store.tool_calls(SessionKey("default", "s"), 1, 1)
    assert [(call.asks, call.edited, call.arguments["path"]) for call in calls] == [
        (False, True, "z"),
        (False, False, "b"),
        (True, False, "c"),
    ]
    assert calls[2].result is not None
    assert calls[2].result.text == "The call did not run: a person denied it: Too late."


async def test_what_cannot_be_decided_is_one_sentence(runtime: Runtime, commands: Commands) -> None:
    await sent(runtime)
    nothing = await commands("approvals", "deny", "s")
    assert (nothing.code, nothing.err) == (2, "No call of session s waits for leave.\n")
    await asks(runtime, {"path": "a"})
    other = await commands("approvals", "deny", "s", "7")
    assert other.err == "Approval 7 of session s does not wait; 1 does.\n"
    text = await commands("approvals", "approve", "s", "1", "--arguments", "path")
    assert text.err.startswith("The arguments are not one JSON object")
    wrong = await commands("approvals", "approve", "s", "1", "--arguments", '{"file": "z"}')
    assert (wrong.code, "do not fit its parameters" in wrong.err) == (2, True)
    like = await commands("approvals", "approve", "s", "1", "--like", "docs/*")
    assert like.err == "--like 'docs/*' is not possible; write NAME=TEXT.\n"
    unknown = await commands("approvals", "approve", "s", "1", "--like", "file=docs/*")
    assert unknown.err == (
        "The pattern names the argument 'file', which the call has not; its arguments are path.\n"
    )
    assert len(await runtime.store.approvals("default", "s")) == 1


async def test_who_watches_a_turn_that_waits_for_leave_is_told_and_left_with_code_3(
    runtime: Runtime, commands: Commands
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a"})
    ran = await commands("attach", "s")
    assert ran.code == 3
    assert "write" in ran.err
    assert "'everturn approvals approve s 1', or 'everturn approvals deny s 1'" in ran.err


async def test_on_a_terminal_a_run_asks_the_person_and_goes_on(
    runtime: Runtime, commands: Commands
) -> None:
    async with on_a_terminal(commands, "run", "write it", "--session", "s") as terminal:
        await waits(runtime, "s")
        (asked,) = await asks(runtime, {"path": "a.txt"}, preview="+new")
        lines = await terminal.shows(lambda lines: any("Run it?" in line for line in lines))
        assert "  | +new" in lines
        terminal.type("maybe\r")
        await terminal.shows(lambda lines: sum("Run it?" in line for line in lines) == 2)
        terminal.type("n\r")
        await terminal.shows(lambda lines: any("Why" in line for line in lines))
        terminal.type("Not now\r")
        await terminal.shows(lambda lines: any("It does not run." in line for line in lines))
    assert asked.state == "open"
    await decided(runtime)
    (call,) = await runtime.store.tool_calls(SessionKey("default", "s"), 1, 1)
    assert call.result is not None
    assert call.result.text == "The call did not run: a person denied it: Not now."


async def test_in_a_chat_a_call_is_shown_and_decided_by_a_word(
    runtime: Runtime, commands: Commands
) -> None:
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        terminal.type("/approve\r")
        await terminal.shows(lambda lines: "No call of session s waits for leave." in lines)
        terminal.type("Write it.\r")
        await waits(runtime, "s")
        await asks(runtime, {"path": "a.txt"})
        await terminal.shows(lambda lines: any("/approve runs it" in line for line in lines))
        terminal.type("/always\r")
        await terminal.shows(lambda lines: any("need no further" in line for line in lines))
    await decided(runtime)
    await end(runtime)


async def test_in_a_chat_one_of_several_calls_is_decided_by_its_number(
    runtime: Runtime, commands: Commands
) -> None:
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        terminal.type("Write them.\r")
        await waits(runtime, "s")
        await asks(runtime, {"path": "a.txt"}, {"path": "b.txt"})
        await terminal.shows(lambda lines: "/approve 2." in " ".join(lines))
        terminal.type("/approve\r")
        await terminal.shows(lambda lines: any("has approvals 1, 2" in line for line in lines))
        terminal.type("/deny 2 Not this one.\r")
        await terminal.shows(lambda lines: "It does not run." in lines)
        terminal.type("/approve 1\r")
        await terminal.shows(lambda lines: "It runs." in lines)
    await decided(runtime)
    calls = await runtime.store.tool_calls(SessionKey("default", "s"), 1, 1)
    assert [call.result is None for call in calls] == [True, False]
    assert calls[1].result is not None
    assert calls[1].result.text.endswith("a person denied it: Not this one.")
    await end(runtime)


async def test_in_a_chat_nobody_approves_a_call_that_was_not_shown(
    runtime: Runtime, commands: Commands
) -> None:
    await sent(runtime)
    (asked,) = await asks(runtime, {"path": "a.txt"})
    nobody: Any = None
    conversation, said = _Conversation(nobody, "s", nobody), []
    await conversation._decide(asked, "/approve", "", said.append)
    assert said[:2] == ["Approval 1 of session s: write", "  path: a.txt"]
    assert len(await runtime.store.approvals("default", "s")) == 1


async def said(runtime: Runtime) -> str:
    (call,) = await runtime.store.tool_calls(SessionKey("default", "s"), 1, 1)
    assert call.result is not None
    return call.result.text


async def test_a_question_is_listed_and_answered_by_the_number_of_a_choice(
    runtime: Runtime, commands: Commands
) -> None:
    await sent(runtime)
    await question(runtime, "Which colour?\nApproval 7 of session s: write", "red", "b\x1blue")
    listed = await commands("approvals", "list")
    assert listed.out.splitlines() == [
        "Question 1 of session s",
        "  Which colour?",
        "  Approval 7 of session s: write",
        "  1. red",
        "  2. b\ufffdlue",
    ]
    shown = await commands("sessions", "show", "s")
    (waits,) = [line for line in shown.out.splitlines() if line.startswith("It waits")]
    assert waits.startswith("It waits for an answer to question 1, since 20")
    assert "'everturn approvals answer s 1 TEXT'" in waits
    (line,) = (await commands("sessions", "show", "s", "--json")).out.splitlines()
    assert json.loads(line)["waits_for"][0]["arguments"]["choices"][0] == "red"
    wrong = await commands("approvals", "approve", "s", "1")
    assert (wrong.code, "is a question: answer it" in wrong.err) == (2, True)
    empty = await commands("approvals", "answer", "s", "1", " ")
    assert empty.err == "The answer is empty; write one, or refuse to answer.\n"
    done = await commands("approvals", "answer", "s", "1", "1")
    assert (done.code, done.err) == (0, "It is answered.\n")
    assert await said(runtime) == "The user answers:\nred"


async def test_sessions_show_names_the_call_that_waits_for_leave(
    runtime: Runtime, commands: Commands
) -> None:
    await sent(runtime)
    await asks(runtime, {"path": "a"})
    shown = await commands("sessions", "show", "s")
    assert "It waits for leave for write, approval 1, since 20" in shown.out


async def test_who_watches_a_turn_that_asks_is_told_how_to_answer_and_left_with_code_3(
    runtime: Runtime, commands: Commands
) -> None:
    await sent(runtime)
    await question(runtime, "Which colour?")
    ran = await commands("attach", "s")
    assert ran.code == 3
    assert "'everturn approvals answer s 1 TEXT', or 'everturn approvals deny s 1'" in ran.err


async def test_on_a_terminal_a_run_asks_the_person_what_the_agent_asks(
    runtime: Runtime, commands: Commands
) -> None:
    async with on_a_terminal(commands, "run", "paint it", "--session", "s") as terminal:
        await waits(runtime, "s")
        await question(runtime, "Which colour?")
        await terminal.shows(lambda lines: any("Your answer" in line for line in lines))
        terminal.type("\r")
        await terminal.shows(lambda lines: any("is empty" in line for line in lines))
        terminal.type("green\r")
        await terminal.shows(lambda lines: "It is answered." in lines)
    await decided(runtime)
    assert await said(runtime) == "The user answers:\ngreen"


async def test_in_a_chat_what_is_typed_next_answers_the_question(
    runtime: Runtime, commands: Commands
) -> None:
    async with on_a_terminal(commands, "chat", "--session", "s") as terminal:
        await terminal.shows(lambda lines: ">" in lines)
        terminal.type("Paint it.\r")
        await waits(runtime, "s")
        await question(runtime, "Which colour?", "red", "blue")
        await terminal.shows(lambda lines: any("is the answer" in line for line in lines))
        terminal.type("2\r")
        await terminal.shows(lambda lines: "It is answered." in lines)
    await decided(runtime)
    assert await said(runtime) == "The user answers:\nblue"
    await end(runtime)
