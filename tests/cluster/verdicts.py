"""What must hold of a cluster after whatever befell it, each under a name.

The endpoint and the tools wrote down what reached them, and each watcher what it was told: none
of that is in a store of ours.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load import Talk

from everturn.client import Client
from everturn.events import DELTAS, Event
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn.reading import Transcript
from everturn.views import MessageView, TurnView, UsageRow
from everturn_activities.gateways.scripted import place_of
from everturn_activities.tools import UNKNOWN_OUTCOME

ONCE = ("charge", "pay")
ACTS = ("stamp", "post", *ONCE)


@dataclass
class Verdicts:
    """Of all that went on: each check by its name, with what is wrong, or nothing."""

    model: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    found: dict[str, list[str]] = field(default_factory=dict)

    async def judge(self, client: Client, talks: Sequence[Talk]) -> None:
        usage = {row.key: row for row in await client.usage(by="session")}
        for talk in talks:
            messages = [message async for message in _messages(client, talk.session)]
            turns = await client.turns(talk.session)
            self._note("every accepted message has one outcome", talk,
                       outcomes(talk, messages, turns))  # fmt: skip
            self._note("every turn completed", talk, completions(turns))
            row = usage.get(talk.session, UsageRow(key=talk.session))
            self._note("the endpoint's log equals the ledger", talk,
                       self.ledger(messages, turns, row))  # fmt: skip
            self._note("nothing that is done was asked for again", talk,
                       self.repeats(talk, messages))  # fmt: skip
            self._note("no effect that must be single is there twice", talk,
                       self.single_effects(talk.session, messages))  # fmt: skip
            self._note("streams have no gap", talk, gaps(talk.told))
            whole = await _log(client, talk.session, turns)
            self._note("watchers were told all that lasts", talk, missed(talk.told, whole))
            self._note("streams tell what is stored", talk, differences(talk.told, messages))

    def _note(self, name: str, talk: Talk, problems: Iterator[str]) -> None:
        self.found.setdefault(name, []).extend(f"{talk.session}: {what}" for what in problems)

    def _lines(self, key: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.model if (line["key"], line["event"]) == (key, event)]

    def ledger(
        self, messages: list[MessageView], turns: list[TurnView], row: UsageRow
    ) -> Iterator[str]:
        """Each stored reply was told once as it is counted; what the endpoint was asked beside is
        counted as lost, and no more than that."""
        steps = {(step.turn, step.step): step for turn in turns for step in turn.steps}
        asked = 0
        for view, key in _keyed(messages):
            step = steps[view.turn, view.step]
            received = len(self._lines(key, "received"))
            completed = self._lines(key, "completed")
            asked += received
            where = f"turn {view.turn} step {view.step}"
            if not completed:
                yield f"{where} is stored and was never told whole"
            elif completed[-1]["usage"]["prompt_tokens"] != step.usage.input_tokens:
                yield f"{where} counts {step.usage.input_tokens} tokens asked"
            if received > step.attempts:
                yield f"{where} was asked {received} times in {step.attempts} attempts"
        replies = len(list(_keyed(messages)))
        if row.model_calls != replies:
            yield f"{row.model_calls} replies counted, {replies} stored"
        attempts = sum(step.attempts for step in steps.values())
        if not asked - replies <= row.lost_attempts <= attempts - replies:
            yield (
                f"{row.lost_attempts} attempts counted as lost: the endpoint was asked {asked}"
                f" times, {attempts} attempts were begun, {replies} replies are stored"
            )

    def repeats(self, talk: Talk, messages: list[MessageView]) -> Iterator[str]:
        done = {
            (event.turn, event.step): event.time
            for event in reversed(talk.told)
            if event.type == "step_finished"
        }
        for view, key in _keyed(messages):
            end = done.get((view.turn, view.step))
            late = [line for line in self._lines(key, "received") if end and line["time"] > end]
            if late:
                yield f"turn {view.turn} step {view.step} was asked for after it was done"

    def single_effects(self, session: str, messages: list[MessageView]) -> Iterator[str]:
        mine = [line for line in self.effects if line["session"] == session]
        counts = Counter((line["tool"], line["key"], line["what"]) for line in mine)
        for (tool, key, what), count in counts.items():
            if tool in ONCE and count > 1:
                yield f"{tool} {key[:8]} {what} {count} times"
        results = [r for view in messages if isinstance(view.message, ToolMessage)
                   for r in view.message.results]  # fmt: skip
        for tool in ACTS:
            had = {key for name, key, what in counts if (name, what) == (tool, "effect")}
            told = [r for r in results if r.name == tool]
            unknown = sum(UNKNOWN_OUTCOME in r.text for r in told)
            sure = sum(f"{tool} is done" in r.text for r in told)
            if sure + unknown != len(told):
                others = {r.text for r in told if "is done" not in r.text} - {UNKNOWN_OUTCOME}
                yield f"{tool} gave {sorted(others)}"
            if not sure <= len(had) <= len(told):
                yield f"{tool} had {len(had)} effects, {sure} results and {unknown} unknown"


def outcomes(talk: Talk, messages: list[MessageView], turns: list[TurnView]) -> Iterator[str]:
    ended = {turn.turn for turn in turns if turn.outcome is not None}
    stored = Counter(
        view.message.said for view in messages if isinstance(view.message, UserMessage)
    )
    turn_of = {
        view.message.said: view.turn for view in messages if isinstance(view.message, UserMessage)
    }
    for said in talk.said:
        count = stored.pop(said.text, 0)
        if count > 1 or (said.accepted and not count):
            yield f"{said.id} is in the transcript {count} times"
        elif count and turn_of[said.text] not in ended:
            yield f"{said.id} has no outcome"
    for text in stored:
        yield f"nobody said {text!r}"
    ends = [event for event in talk.told if event.type == "turn_finished"]
    told = Counter((event.epoch, event.turn) for event in ends)
    for (epoch, turn), count in told.items():
        if count > 1:
            yield f"turn {turn} was told to end {count} times in epoch {epoch}"
    for turn in ended - {turn for _, turn in told}:
        yield f"turn {turn} was never told to end"


def completions(turns: list[TurnView]) -> Iterator[str]:
    for turn in turns:
        if turn.outcome != "completed":
            yield f"turn {turn.turn} is {turn.outcome} ({turn.reason})"


def gaps(told: Sequence[Event]) -> Iterator[str]:
    """Numbers follow each other within an epoch. A later one begins at 1 or with a snapshot; who
    came by a position of the store's, which is an odd epoch, goes on in Redis's behind it."""
    last = (1, 0)
    for event in told:
        epoch, seq = last
        if event.type == "gap":
            yield f"told of a gap {event.body} after {epoch}.{seq}"
        elif event.epoch == epoch:
            if event.seq != seq + 1:
                yield f"{event.cursor} came after {epoch}.{seq}"
        elif event.epoch < epoch or not (
            event.seq == 1 or event.type == "snapshot" or epoch % 2 == 1
        ):
            yield f"{event.cursor} came after {epoch}.{seq}"
        last = (event.epoch, event.seq)


def missed(told: Sequence[Event], whole: Sequence[Event]) -> Iterator[str]:
    """What the log says to who reads it afterwards and a watcher was never told."""
    heard = {(event.type, event.turn, event.step, event.time) for event in told}
    for event in whole:
        passing = event.type in DELTAS or event.type in ("snapshot", "status", "gap")
        if not passing and (event.type, event.turn, event.step, event.time) not in heard:
            yield f"never told of {event.type} of turn {event.turn} step {event.step}"


def differences(told: Sequence[Event], messages: list[MessageView]) -> Iterator[str]:
    """Where the texts on a watcher's page are not those that are stored."""
    page = Transcript()
    for event in told:
        page.apply(event)
    for view in messages:
        if isinstance(view.message, AssistantMessage):
            step = page.steps.get((view.turn, view.step))
            seen = step.text if step else None
            if seen != view.message.text:
                yield f"turn {view.turn} step {view.step} told {seen!r} of {view.message.text!r}"


def _keyed(messages: list[MessageView]) -> Iterator[tuple[MessageView, str]]:
    """Stored replies with the endpoint's name for the call that each answers."""
    asked: list[dict[str, Any]] = []
    for view in messages:
        if isinstance(view.message, UserMessage):
            asked.append({"role": "user", "content": view.message.said})
        elif isinstance(view.message, AssistantMessage):
            yield view, place_of(asked).key
            asked.append({"role": "assistant"})


async def _messages(client: Client, session: str) -> Any:
    after: int | None = 0
    while after is not None:
        page = await client.messages(session, after=after)
        for view in page.messages:
            yield view
        after = page.after


async def _log(client: Client, session: str, turns: list[TurnView]) -> list[Event]:
    """The session's log as it stands, up to the end of its last turn."""
    if not turns:
        return []
    return [event async for event in client.events(session, until_turn=turns[-1].turn)]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log in JSON."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]
