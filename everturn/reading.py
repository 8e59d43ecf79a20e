"""Reading a session's events: what stands on the page once superseded text is dropped."""

from dataclasses import dataclass, field
from typing import Any, Literal

from everturn.events import Event
from everturn.session import OutcomeKind
from everturn.views import UsageView

ToolState = Literal["asked", "running", "done", "failed"]


@dataclass
class ToolReading:
    """A tool call as far as it is known; `arguments` is JSON text, whole once the step ended.

    `output` is what the attempt under way has said so far, `text` the beginning of its result.
    """

    call_id: str
    name: str
    arguments: str = ""
    state: ToolState = "asked"
    text: str = ""
    duration_seconds: float | None = None
    attempt: int = 0
    output: str = ""


@dataclass
class StepReading:
    """A step as far as it is known. `attempt` is the model call's that the text came from."""

    turn: int
    step: int
    attempt: int = 0
    text: str = ""
    thinking: str = ""
    model: str | None = None
    finished: bool = False
    tools: dict[str, ToolReading] = field(default_factory=dict)

    def restart(self, attempt: int) -> None:
        """Drop what an older attempt at the model call streamed."""
        self.attempt = attempt
        self.text = ""
        self.thinking = ""
        self.tools = {}


@dataclass(frozen=True)
class TurnResult:
    """How a turn ended. `text` is the final message; `cost_usd` is of the calls whose price is
    known, of which `unpriced_calls` are not, and None where nothing was told of it."""

    turn: int
    outcome: OutcomeKind
    reason: str | None = None
    text: str = ""
    usage: UsageView = field(default_factory=UsageView)
    cost_usd: float | None = None
    unpriced_calls: int = 0
    steps: int = 0

    @classmethod
    def from_event(cls, event: Event) -> "TurnResult":
        """What a `turn_finished` event says."""
        body = event.body
        known = {
            name: count
            for name, count in (body.get("usage") or {}).items()
            if name in UsageView.model_fields
        }
        return cls(
            turn=event.turn,
            outcome=body["outcome"],
            reason=body.get("reason"),
            text=body.get("text") or "",
            usage=UsageView(**known),
            cost_usd=body.get("cost_usd"),
            unpriced_calls=body.get("unpriced_calls", 0),
            steps=body.get("steps", 0),
        )


class Transcript:
    """Events in, current text of each step out.

    An event that was seen before changes nothing. A snapshot drops what is known of its turn and
    of later ones, which are told anew. A delta of a newer attempt drops the
    older attempt's text, whether or not `superseded` was seen; a delta of an older attempt
    is dropped itself (U3).
    """

    def __init__(self) -> None:
        self.steps: dict[tuple[int, int], StepReading] = {}
        self.results: dict[int, TurnResult] = {}
        self._last = (0, 0)

    def apply(self, event: Event) -> bool:
        """Take in `event`; False where it changes nothing on the page."""
        here = (event.epoch, event.seq)
        if here <= self._last:
            return False
        self._last = here
        match event.type:
            case "text_delta" | "thinking_delta" | "tool_call_delta":
                return self._delta(event)
            case "superseded":
                return self._supersede(event)
            case "step_started":
                self._step(event).model = event.body.get("model")
            case "step_finished":
                self._finish(event)
            case "tool_output":
                return self._output(event)
            case "tool_started" | "tool_finished":
                self._tool(event)
            case "snapshot":
                self._begin_anew(event.turn)
            case "turn_finished":
                self.results[event.turn] = TurnResult.from_event(event)
        return True

    def text(self, turn: int) -> str:
        """The turn's answer: its final text, or the newest text so far."""
        if turn in self.results:
            return self.results[turn].text
        written = [
            step.text for (of, _), step in sorted(self.steps.items()) if of == turn and step.text
        ]
        return written[-1] if written else ""

    def _begin_anew(self, turn: int) -> None:
        self.steps = {of: step for of, step in self.steps.items() if of[0] < turn}
        self.results = {of: result for of, result in self.results.items() if of < turn}

    def _step(self, event: Event) -> StepReading:
        key = (event.turn, event.step)
        if key not in self.steps:
            self.steps[key] = StepReading(event.turn, event.step)
        return self.steps[key]

    def _delta(self, event: Event) -> bool:
        step = self._step(event)
        if step.finished or event.attempt < step.attempt:
            return False
        if event.attempt > step.attempt:
            step.restart(event.attempt)
        text = event.body.get("text", "")
        if event.type == "text_delta":
            step.text += text
        elif event.type == "thinking_delta":
            step.thinking += text
        else:
            self._call(step, event.body).arguments += text
        return True

    def _supersede(self, event: Event) -> bool:
        step = self._step(event)
        # A tool's attempts are counted on their own and stream no text.
        if event.body.get("kind") == "tool" or step.finished or event.attempt <= step.attempt:
            return False
        step.restart(event.attempt)
        return True

    def _finish(self, event: Event) -> None:
        step = self._step(event)
        step.text = event.body.get("text", step.text)
        step.finished = True

    def _tool(self, event: Event) -> None:
        call = self._call(self._step(event), event.body)
        if event.type == "tool_started":
            call.state = "running"
            call.attempt, call.output = event.attempt, ""
            call.arguments = str(event.body.get("arguments", call.arguments))
        else:
            call.state = "failed" if event.body.get("failed") else "done"
            call.text = event.body.get("text", "")
            call.duration_seconds = event.body.get("duration_seconds")

    def _output(self, event: Event) -> bool:
        call = self._call(self._step(event), event.body)
        if event.attempt < call.attempt or call.state in ("done", "failed"):
            return False
        call.output += event.body.get("text", "")
        return True

    def _call(self, step: StepReading, body: dict[str, Any]) -> ToolReading:
        call_id = body["call_id"]
        if call_id not in step.tools:
            step.tools[call_id] = ToolReading(call_id, body.get("name") or "")
        return step.tools[call_id]
