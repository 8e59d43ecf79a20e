"""What a person sees of a turn, and what a program reads of it."""

import sys
import unicodedata
from math import ceil
from typing import IO, Any, Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from everturn.context.untrusted import unframed
from everturn.events import Event
from everturn.reading import ToolReading, Transcript, TurnResult
from everturn.schedules import SENDER
from everturn_workers.cli.figures import shown_cost

ARGUMENTS_CHARACTERS = 100


class Show(Protocol):
    """Is told every event of the turns that it shows, in order."""

    def event(self, event: Event) -> None: ...


class Lines:
    """One event a line, as JSON."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def event(self, event: Event) -> None:
        print_json(event.flat(), self._out)


class Page:
    """A turn for a person: its text on stdout, everything else on stderr.

    On a terminal the text appears as it streams. Elsewhere stdout gets only the final
    text, for a pipe cannot take back what a retry supersedes. With `whole_lines` a line is
    shown once it is finished: whoever else draws on the screen, such as a prompt, would
    overwrite an unfinished one.
    """

    def __init__(self, out: Console, talk: Console, whole_lines: bool = False) -> None:
        self._out = out
        self._talk = talk
        self._streams = out.is_terminal
        self._whole_lines = whole_lines
        self._can_erase = (
            not whole_lines and out.is_terminal and talk.is_terminal and not out.is_dumb_terminal
        )
        self._transcript = Transcript()
        self._started: dict[int, float] = {}
        self._works = False
        self._status = ""
        # How messages that a turn was told of while it ran are named on the page.
        self._sent: dict[str, str] = {}
        # What of the current reply stands on the screen, and in which kind its last piece was.
        self._shown = ""
        self._kind = ""
        # What comes once its line is finished.
        self._unfinished = ""

    def event(self, event: Event) -> None:
        step = self._transcript.steps.get((event.turn, event.step))
        attempt = step.attempt if step is not None else 0
        if not self._transcript.apply(event):
            return
        begun = self._shown or self._unfinished
        if begun and event.attempt > attempt and event.type in _OF_REPLIES:
            self._supersede()
        body = event.body
        match event.type:
            case "turn_started":
                self._started[event.turn] = event.time
                self._works = True
            case "text_delta":
                self._stream("text", body["text"])
            case "thinking_delta":
                self._stream("thinking", body["text"])
            case "step_finished":
                self._break()
            case "tool_started":
                call = self._tool(event)
                self._say(f"{call.name} {_preview(call.arguments)}", "running", "cyan")
            case "tool_output":
                call = self._tool(event)
                lines = body["text"].split("\n")
                self._say(f"{call.name}: {_preview(_newest(lines))}", "says   ", "dim")
            case "tool_finished":
                call = self._tool(event)
                took = _seconds(call.duration_seconds or 0.0)
                if call.state == "failed":
                    said = _preview(unframed(call.text))
                    self._say(f"{call.name} {took}: {said}", "failed ", "red")
                elif body.get("recorded"):
                    self._say(f"{call.name}, as it was", "recorded", "green")
                else:
                    self._say(f"{call.name} {took}", "done   ", "green")
            case "hook_finished":
                self._hook(body)
            case "status":
                self._status = body.get("text", "")
                self._say(self._status, "status ", "yellow")
            case "compaction_started":
                self._say("The older messages are summarised.", "compact", "yellow")
            case "compacted":
                before, after = body["tokens_before"], body["tokens_after"]
                self._say(f"{before:,} tokens became {after:,}.", "compact", "yellow")
            case "compaction_undone":
                self._say("The summarised messages are sent again.", "compact", "yellow")
            case "memory_consolidated":
                before, after = body["facts_before"], body["facts_after"]
                self._say(
                    f"{before} facts of the {body['scope']} became {after}.", "memory ", "yellow"
                )
            case "message_accepted" if body["message_id"].startswith(SENDER):
                quoted = self._sent[body["message_id"]] = f'"{_preview(body.get("text", ""))}"'
                name = body["message_id"].removeprefix(SENDER).partition(":")[0]
                self._say(f"{name} says {quoted}", "schedule", "cyan")
            case "message_accepted" if event.turn or self._works:
                quoted = self._sent[body["message_id"]] = f'"{_preview(body.get("text", ""))}"'
                self._say(body.get("note") or f"{quoted} {_WILL[body['mode']]}", "message", "cyan")
            case "message_admitted" if (sent := self._sent.get(body["message_id"])) is not None:
                self._say(f"{sent} joins at step {event.step}.", "message", "cyan")
            case "message_rolled_back":
                said = body.get("text") or body["message_id"]
                name = self._sent.get(body["message_id"], f'"{_preview(said)}"')
                self._say(f"{name} is rolled back.", "message", "yellow")
            case "cancel_accepted":
                self._say("The turn is asked to end.", "cancel ", "yellow")
            case "budget_asked" | "budget_answered":
                self._say(body["text"], "budget ", "yellow")
            case "approval_asked" if body.get("kind") == "question":
                self._say("The agent asks, and waits for an answer.", "asks   ", "yellow")
            case "approval_asked":
                text = f"{body['name']} {_preview(body['arguments'])} waits for a person's leave."
                self._say(text, "asks   ", "yellow")
            case "approval_answered":
                self._say(body["text"], "leave  ", "yellow")
            case "executor_started":
                self._say(f"{body['executor']}: {_preview(body['task'])}", "hands  ", "cyan")
            case "executor_event" if body["event"] in _OF_EXECUTORS:
                what, style = _OF_EXECUTORS[body["event"]]
                self._say(f"{body['executor']}: {what.format(**body['told'])}", "...    ", style)
            case "executor_finished":
                told = f"{body['executor']} {body['outcome']} in {_count(body['steps'], 'step')}"
                self._say(told, "reports", "green" if body["outcome"] == "completed" else "red")
            case "snapshot":
                self._supersede()
            case "gap":
                self._say("Older events were trimmed away.", "gap    ", "yellow")
            case "turn_finished":
                self._finish(event)

    def _stream(self, kind: str, text: str) -> None:
        if kind == "thinking" and not (self._streams and self._talk.is_terminal):
            return
        if not self._streams:
            return
        if self._kind not in ("", kind):
            self._break_line()
        self._kind = kind
        text = printable(text)
        if self._whole_lines:
            lines, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
            text = lines + newline
        if text:
            self._put(text)

    def _put(self, text: str) -> None:
        self._shown += text
        if self._kind == "thinking":
            self._talk.print(Text(text, style="dim"), end="", soft_wrap=True)
        else:
            self._out.print(Text(text), end="", soft_wrap=True)
            self._out.file.flush()

    def _supersede(self) -> None:
        """Take back what an older attempt at this reply has shown."""
        self._unfinished = ""
        if not self._shown:
            return
        rows = _rows(self._shown, self._out.width)
        if self._can_erase and rows < self._out.height:
            up = f"\x1b[{rows - 1}A" if rows > 1 else ""
            self._out.file.write(f"\r{up}\x1b[J")
            self._out.file.flush()
        else:
            self._break_line()
            self._talk.print(Text("[the reply broke off; it begins again]", style="yellow"))
        self._shown, self._kind = "", ""

    def _tool(self, event: Event) -> ToolReading:
        return self._transcript.steps[(event.turn, event.step)].tools[event.body["call_id"]]

    def _say(self, text: str, state: str, style: str) -> None:
        self._break()
        line = Text.assemble((state, style), " ", printable(text).replace("\n", " "))
        self._talk.print(line, soft_wrap=True)

    def _hook(self, body: dict[str, Any]) -> None:
        named = f" of {body['name']}" if body.get("name") else ""
        text = f"{body['moment']}{named}: {body['hook']}"
        if body["exit_code"] == 0:
            self._say(f"{text} {_seconds(body['duration_seconds'])}", "hook   ", "dim")
        else:
            style = "red" if body["blocked"] else "yellow"
            state = "blocks " if body["blocked"] else "hook   "
            self._say(f"{text}: {_preview(body['text'])}", state, style)

    def _finish(self, event: Event) -> None:
        self._works = False
        result = self._transcript.results[event.turn]
        self._break()
        if not self._streams and result.text:
            self._out.print(Text(printable(result.text)), soft_wrap=True)
        # A refusal was told as it came.
        if result.reason not in (None, self._status):
            self._say(result.reason, result.outcome, "yellow")
        took = event.time - self._started.get(event.turn, event.time)
        self._talk.print(Text(usage_line(result, took), style="dim"), soft_wrap=True)

    def _break(self) -> None:
        """End the reply on the screen: from here on it stays."""
        self._break_line()
        self._shown, self._kind = "", ""

    def _break_line(self) -> None:
        if self._unfinished:
            unfinished, self._unfinished = self._unfinished, ""
            self._put(unfinished + "\n")
        elif self._shown and not self._shown.endswith("\n"):
            self._shown += "\n"
            self._out.print()


_WILL = {
    "queue": "waits for the next turn.",
    "steer": "waits for the next step.",
    "interrupt": "interrupts the turn.",
    "rollback": "rolls the turn back.",
}
_OF_EXECUTORS = {
    "tool_started": ("{name}", "dim"),
    "approval_asked": ("{name} waits for a person.", "yellow"),
    "budget_asked": ("{text}", "yellow"),
}
"""What of an executor's events is shown on its parent's page."""
_OF_REPLIES = ("superseded", "text_delta", "thinking_delta", "tool_call_delta", "step_started")


def _newest(lines: list[str]) -> str:
    """The last line that says anything."""
    return next((line for line in reversed(lines) if line.strip()), "")


def consoles() -> tuple[Console, Console]:
    """stdout and stderr. Rich honours NO_COLOR and TERM."""
    return (
        Console(file=sys.stdout, highlight=False, markup=False, emoji=False),
        Console(file=sys.stderr, highlight=False, markup=False, emoji=False),
    )


def show(json: bool) -> Show:
    return Lines(sys.stdout) if json else Page(*consoles())


def print_json(value: object, out: IO[str] | None = None) -> None:
    import orjson

    print(orjson.dumps(value).decode(), file=out or sys.stdout, flush=True)


def printable(text: str) -> str:
    """`text` without what could steer a terminal: a model's words are not to be trusted."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")
        else "\ufffd"
        for character in text
    )


def usage_line(result: TurnResult, seconds: float) -> str:
    known = result.cost_usd is not None
    cost = shown_cost(result.cost_usd or 0.0, result.unpriced_calls) if known else "cost unknown"
    usage = result.usage
    return (
        f"{result.outcome}: {_count(result.steps, 'step')}, {usage.input_tokens:,} tokens in,"
        f" {usage.output_tokens:,} out, {cost}, {_seconds(seconds)}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _preview(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= ARGUMENTS_CHARACTERS else text[: ARGUMENTS_CHARACTERS - 3] + "..."


def _rows(text: str, width: int) -> int:
    """How many rows of a terminal `text` takes."""
    return sum(max(1, ceil(cell_len(line) / width)) for line in text.split("\n"))
