"""What must hold of a turn, whatever was killed: read from logs that no store of ours wrote.

The model endpoint and the tools write down what reached them and when; what a watcher saw
says when each call was done. Nothing may reach them for a call that is done.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from everturn.events import Event
from everturn.messages import AssistantMessage, ToolMessage, UserMessage
from everturn_activities.gateways.scripted import place_of
from everturn_activities.tools import UNKNOWN_OUTCOME

Messages = Sequence[tuple[int, UserMessage | AssistantMessage | ToolMessage]]


@dataclass
class Evidence:
    """`steps` are the tools that each reply calls; `events` is the session's whole log,
    `watched` what a watcher saw while it was written; `messages` are the stored ones with
    their steps; `model` and `effects` the outer logs.
    """

    session: str
    prompt: str
    final: str
    steps: Sequence[Sequence[str]]
    events: list[Event]
    watched: list[Event]
    messages: Messages
    model: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    found: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What is broken, in words; nothing where all holds."""
        self._the_turn_ended()
        self._the_stream_is_whole()
        self._text_is_told_as_stored()
        self._nothing_done_was_asked_again()
        self._effects_are_single()
        return [f"{self.session}: {what}" for what in self.found]

    def unknown(self) -> bool:
        """Whether the model was told that the outcome of a call is not known."""
        return any(result.text == UNKNOWN_OUTCOME for result in self._results())

    def completed(self) -> list[int]:
        """How often the endpoint finished each of the turn's replies."""
        counts = Counter(line["key"] for line in self.model if line["event"] == "completed")
        return [counts[key] for key in self._keys()]

    def _demand(self, holds: object, what: str) -> None:
        if not holds:
            self.found.append(what)

    def _of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.type == kind]

    def _keys(self) -> list[str]:
        """The endpoint's names for the model calls of the turn."""
        asked: list[dict[str, Any]] = [{"role": "user", "content": self.prompt}]
        said: dict[str, Any] = {"role": "assistant"}
        return [place_of(asked + [said] * step).key for step in range(len(self.steps))]

    def _the_turn_ended(self) -> None:
        ends = self._of("turn_finished")
        self._demand(len(ends) == 1, f"it ended {len(ends)} times")
        for end in ends:
            self._demand(end.body["outcome"] == "completed", f"outcome {end.body['outcome']}")
            self._demand(end.body["text"] == self.final, f"final text {end.body['text']!r}")
        last = self.messages[-1][1] if self.messages else None
        text = last.text if isinstance(last, AssistantMessage) else None
        self._demand(text == self.final, f"last stored message {text!r}")
        roles = [message.role for _, message in self.messages]
        expected = ["user"]
        for names in self.steps:
            expected += ["assistant", "tool"] if names else ["assistant"]
        self._demand(roles == expected, f"stored messages {roles}")

    def _the_stream_is_whole(self) -> None:
        numbers = [event.seq for event in self.events]
        self._demand(numbers == list(range(1, len(numbers) + 1)), f"numbers {numbers}")
        self._demand({event.epoch for event in self.events} == {1}, "a new epoch")
        end = next((n for n, e in enumerate(self.events) if e.type == "turn_finished"), None)
        if end is not None:
            self._demand(self.watched == self.events[: end + 1], "the watcher saw something else")

    def _text_is_told_as_stored(self) -> None:
        told: dict[int, str] = defaultdict(str)
        asked: dict[str, str] = defaultdict(str)
        attempts: dict[int, int] = defaultdict(lambda: 1)
        calls_of: dict[int, set[str]] = defaultdict(set)
        for event in self.events:
            step = event.step
            if event.type == "superseded":
                newer = event.attempt > attempts[step]
                self._demand(newer, f"step {step} superseded by attempt {event.attempt}")
                attempts[step], told[step] = event.attempt, ""
                for call in calls_of.pop(step, set()):
                    asked.pop(call)
            elif event.type in ("text_delta", "tool_call_delta"):
                current = event.attempt == attempts[step]
                self._demand(current, f"a delta of attempt {event.attempt} in step {step}")
                if event.type == "text_delta":
                    told[step] += event.body["text"]
                else:
                    calls_of[step].add(event.body["call_id"])
                    asked[event.body["call_id"]] += event.body["text"]
        for step, message in self.messages:
            if isinstance(message, AssistantMessage):
                self._demand(told[step] == message.text, f"step {step} told {told[step]!r}")
                for call in message.tool_calls:
                    same = json.loads(asked.get(call.id) or "null") == call.arguments
                    self._demand(same, f"call {call.id} told {asked.get(call.id)!r}")

    def _nothing_done_was_asked_again(self) -> None:
        done = {event.step: event.time for event in self._of("step_finished")}
        for step, key in enumerate(self._keys(), start=1):
            mine = [line for line in self.model if line["key"] == key]
            asked = [line["time"] for line in mine if line["event"] == "received"]
            self._demand(asked, f"the model was never asked for step {step}")
            late = [time for time in asked if time > done.get(step, 0.0)]
            self._demand(not late, f"the model was asked for step {step} after it was done")
            finished = [event for event in self._of("step_finished") if event.step == step]
            self._demand(len(finished) == 1, f"step {step} finished {len(finished)} times")

    def _effects_are_single(self) -> None:
        """By step and place: one result a call, no `once` effect twice, none after the result."""
        ended = self._of("tool_finished")
        places = Counter((event.step, event.body["index"]) for event in ended)
        calls = [(s, i) for s, names in enumerate(self.steps, 1) for i in range(len(names))]
        expected = dict.fromkeys(calls, 1)
        self._demand(places == expected, f"tool results {dict(places)}")
        mine = [line for line in self.effects if line["session"] == self.session]
        tools = {name for names in self.steps for name in names}
        for what in ("began", "effect"):
            charges = _count(mine, "charge", what)
            self._demand(charges <= 1, f"charge {what} {charges} times")
        if "slow" in tools:
            self._demand(_count(mine, "slow", "effect") >= 1, "slow had no effect")
        if "charge" in tools:
            self._demand(self.unknown() or _count(mine, "charge", "effect") == 1, "charge was lost")
        for line in mine:
            times = [e.time for e in ended if e.body["name"] == line["tool"]]
            late = line["what"] == "began" and times and line["time"] > max(times)
            self._demand(not late, f"{line['tool']} began after it was done")

    def _results(self) -> Iterable[Any]:
        for _, message in self.messages:
            if isinstance(message, ToolMessage):
                yield from message.results


def _count(lines: list[dict[str, Any]], tool: str, what: str) -> int:
    return sum(line["tool"] == tool and line["what"] == what for line in lines)
