"""What stands on a terminal."""

import io

from rich.console import Console

from everturn.context.untrusted import as_data
from everturn.events import Event
from everturn_workers.cli.show import Page, printable

MARK = "[the reply broke off; it begins again]"


class Terminal:
    """A screen of 40 columns and 10 rows that understands what `Page` sends to it."""

    def __init__(self, height: int = 10, whole_lines: bool = False) -> None:
        self.file = io.StringIO()
        self.page = Page(self._console(height), self._console(height), whole_lines)
        self._seq = 0

    def _console(self, height: int) -> Console:
        return Console(
            file=self.file, force_terminal=True, no_color=True, width=40, height=height,
            highlight=False, markup=False, emoji=False, _environ={"TERM": "xterm"},
        )  # fmt: skip

    def tell(self, type: str, attempt: int = 1, **body: object) -> None:  # noqa: A002
        self._seq += 1
        self.page.event(
            Event(
                epoch=1, seq=self._seq, type=type, turn=1, step=1, attempt=attempt,
                time=self._seq, body=body,
            )
        )  # fmt: skip

    def screen(self) -> str:
        """What is left of the output once its cursor movements are obeyed."""
        shown: list[str] = [""]
        sent = self.file.getvalue()
        while sent:
            if sent.startswith("\x1b["):
                end = next(at for at, letter in enumerate(sent) if letter.isalpha())
                if sent[end] == "A":
                    shown = shown[: len(shown) - int(sent[2:end])]
                elif sent[end] == "J":
                    shown[-1] = ""
                sent = sent[end + 1 :]
                continue
            letter, sent = sent[0], sent[1:]
            if letter == "\n" or len(shown[-1]) == 40:
                shown.append("")
            if letter not in "\r\n":
                shown[-1] += letter
        return "\n".join(shown)


def test_u3_text_that_a_retry_supersedes_leaves_the_screen():
    """U3: a retried stream raises attempt, and clients drop older text."""
    terminal = Terminal()
    terminal.tell("tool_finished", call_id="c", name="add", text="2", duration_seconds=0.1)
    terminal.tell("text_delta", text="wrong, and longer than a row of the terminal is\nby far")
    terminal.tell("superseded", attempt=2)
    terminal.tell("text_delta", attempt=2, text="right")

    assert terminal.screen() == "done    add 0.1 s\nright"


def test_u3_text_that_has_left_the_screen_is_marked_instead():
    terminal = Terminal(height=3)
    terminal.tell("text_delta", text="a\nb\nc\nd")
    terminal.tell("superseded", attempt=2)
    terminal.tell("text_delta", attempt=2, text="right")

    assert terminal.screen() == f"a\nb\nc\nd\n{MARK}\nright"


def test_in_whole_lines_an_unfinished_line_waits_for_its_end():
    terminal = Terminal(whole_lines=True)
    terminal.tell("thinking_delta", text="Hm")
    terminal.tell("text_delta", text="one\ntw")

    assert terminal.screen() == "Hm\none\n"
    terminal.tell("text_delta", text="o")
    terminal.tell("step_finished")
    assert terminal.screen() == "Hm\none\ntwo\n"


def test_u3_in_whole_lines_a_superseded_line_is_never_shown():
    """U3: a retried stream raises attempt, and clients drop older text."""
    terminal = Terminal(whole_lines=True)
    terminal.tell("text_delta", text="wrong")
    terminal.tell("superseded", attempt=2)
    terminal.tell("text_delta", attempt=2, text="right\nwro")
    terminal.tell("superseded", attempt=3)
    terminal.tell("text_delta", attempt=3, text="left\n")

    assert terminal.screen() == f"right\n{MARK}\nleft\n"


def test_a_tool_call_shows_its_state_and_how_long_it_took():
    terminal = Terminal()
    terminal.tell("text_delta", text="Adding.")
    terminal.tell("tool_started", call_id="c", name="add", arguments='{"a": 1}')
    terminal.tell(
        "tool_finished",
        call_id="c",
        name="add",
        failed=True,
        text=as_data("no\nb", "add", "0a1b"),
        duration_seconds=2,
    )

    lines = terminal.screen().splitlines()
    assert lines == ["Adding.", 'running add {"a": 1}', "failed  add 2.0 s: no b"]


def test_what_hooks_said_is_shown_where_it_is_more_than_yes():
    terminal = Terminal()
    said = {"moment": "PreToolUse", "hook": "sh", "name": "add", "duration_seconds": 0.1}
    terminal.tell("hook_finished", **said, exit_code=0, blocked=False, text="")
    terminal.tell("hook_finished", **said, exit_code=2, blocked=True, text="No\nway.")
    terminal.tell("hook_finished", **said, exit_code=None, blocked=False, text="Hung.")

    assert terminal.screen() == (
        "hook    PreToolUse of add: sh 0.1 s\n"
        "blocks  PreToolUse of add: sh: No way.\n"
        "hook    PreToolUse of add: sh: Hung.\n"
    )


def test_a_reason_that_was_told_already_is_not_repeated():
    terminal = Terminal()
    terminal.tell("status", text="The key was refused.")
    ends = {"outcome": "model_failed", "usage": {}, "cost_usd": 0.0, "text": ""}
    terminal.tell("turn_finished", reason="The key was refused.", **ends)

    assert terminal.screen().count("The key was refused.") == 1


def test_the_end_of_a_turn_tells_what_is_known_of_its_cost():
    terminal = Terminal()
    ends = {"outcome": "completed", "reason": None, "usage": {}, "text": "", "steps": 2}
    terminal.tell("turn_finished", cost_usd=0.5, unpriced_calls=1, **ends)

    assert "$0.5000 + 1 unpriced" in " ".join(terminal.screen().split("\n"))


def test_a_message_that_is_rolled_back_is_named_by_what_it_says():
    terminal = Terminal()
    terminal.tell("message_rolled_back", message_id="4f3a", text="Begin\nanew.")

    assert terminal.screen().strip() == 'message "Begin anew." is rolled back.'


def test_what_a_model_writes_cannot_steer_the_terminal():
    terminal = Terminal()
    terminal.tell("text_delta", text="\x1b]0;owned\x07 \x1b[2J\x9b2J red\ttab")
    terminal.tell("tool_started", call_id="c", name="a\x1b[2J", arguments="\x1b[2J")

    assert "\x1b]" not in terminal.file.getvalue()
    assert "\x1b[2J" not in terminal.file.getvalue()
    assert printable("a\x1b\u009b\tb\n\ud800") == "a\ufffd\ufffd\tb\n\ufffd"


def test_markup_in_a_reply_is_text():
    terminal = Terminal()
    terminal.tell("text_delta", text="[bold]x[/bold] :smile:")

    assert terminal.screen() == "[bold]x[/bold] :smile:"


def test_what_executors_do_is_shown_by_their_names():
    terminal = Terminal()
    terminal.tell("executor_started", executor="s:1.1.0", task="Count\nthem.", background=False)
    seen = {"executor": "s:1.1.0", "executor_turn": 1, "executor_step": 1}
    terminal.tell("executor_event", **seen, event="tool_started", told={"name": "add"})
    terminal.tell("executor_event", **seen, event="tool_finished", told={"name": "add"})
    asked = {"name": "{pay}", "approval": 1}
    terminal.tell("executor_event", **seen, event="approval_asked", told=asked)
    terminal.tell("executor_finished", executor="s:1.1.0", outcome="max_steps", steps=1)

    assert terminal.screen() == (
        "hands   s:1.1.0: Count them.\n"
        "...     s:1.1.0: add\n"
        "...     s:1.1.0: {pay} waits for a perso\nn.\n"
        "reports s:1.1.0 max_steps in 1 step\n"
    )


def test_a_recorded_result_is_not_shown_as_done():
    terminal = Terminal()
    told = {"call_id": "c", "name": "pay", "text": "paid", "duration_seconds": 0.0}
    terminal.tell("tool_finished", **told, recorded=True)
    assert terminal.screen() == "recorded pay, as it was\n"
