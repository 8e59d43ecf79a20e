"""A reply as it grows: deltas in, parts of a message out."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from everturn.messages import (
    AssistantMessage,
    Text,
    Thinking,
    ToolCall,
    without_lone_surrogates,
)
from everturn_activities.gateways import TextDelta, ThinkingDelta, ToolCallDelta
from everturn_activities.gateways.wire import EXTRA_CONTENT, REASONING_DETAILS

Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal"]

_STOPS: dict[str, Stop] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
}

NAME_CHARACTERS_MAX = 200


@dataclass(slots=True)
class _Prose:
    kind: Literal["text", "thinking"]
    pieces: list[str]
    field: str | None = None
    signature: str | None = None
    encrypted: str | None = None

    @property
    def open(self) -> bool:
        return self.signature is None and self.encrypted is None


@dataclass(slots=True)
class _Call:
    """`given` is the id as the endpoint gave it, which may be another call's, too."""

    ordinal: int
    id: str
    given: str
    name: str
    pieces: list[str]
    extra_content: Any = None


class Accumulator:
    """Text, thinking and tool calls of one reply, each kept apart, in order of appearance."""

    def __init__(self) -> None:
        self._parts: list[_Prose | _Call] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._details: dict[object, dict[str, Any]] = {}
        self._half = {"text": "", "thinking": ""}
        self.refused = False

    def text(self, piece: str) -> TextDelta | None:
        piece = self._whole_characters("text", piece)
        if not piece:
            return None
        self._prose("text", None).pieces.append(piece)
        return TextDelta(piece)

    def thinking(self, piece: str, field: str | None) -> ThinkingDelta | None:
        """`field` is remembered as the part's id, so that the thought goes back where it came."""
        piece = self._whole_characters("thinking", piece)
        if not piece:
            return None
        self._prose("thinking", field).pieces.append(piece)
        return ThinkingDelta(piece)

    def signature(self, signature: str) -> None:
        """The proof of the thought that is under way; it ends that thought."""
        last = self._parts[-1] if self._parts else None
        if not (isinstance(last, _Prose) and last.kind == "thinking"):
            last = self._prose("thinking", None)
        last.signature = (last.signature or "") + signature

    def encrypted(self, data: str) -> None:
        """A thought that the provider shows only as cipher text."""
        self._parts.append(_Prose("thinking", [], encrypted=data))

    def detail(self, item: Mapping[str, Any]) -> None:
        """A piece of an item of OpenRouter's `reasoning_details`; strings of one item add up."""
        key = (item.get("index", len(self._details)), item.get("type"))
        kept = self._details.setdefault(key, {})
        for name, value in item.items():
            if name in ("text", "summary", "data") and isinstance(value, str):
                kept[name] = kept.get(name, "") + value
            elif value is not None:
                kept[name] = value

    def call(
        self, index: int | None, call_id: str | None, name: str | None, piece: str
    ) -> ToolCallDelta:
        """A piece of a call. Some endpoints send no index, or the same for every call."""
        call = self._by_index.get(index) if index is not None else None
        if index is None and not call_id and self._calls:
            call = self._calls[-1]
        if call is None or (call_id and call.pieces and call_id != call.given):
            own = call_id or f"call_{secrets.token_hex(8)}"
            if any(own == other.id for other in self._calls):
                # Each result names its call, so providers refuse an id that stands twice.
                own = f"{own}_{secrets.token_hex(4)}"
            call = _Call(len(self._calls), own, call_id or own, "", [])
            self._calls.append(call)
            self._parts.append(call)
        if index is not None:
            self._by_index[index] = call
        if name and not call.name:
            # No tool is called so; a database refuses to look for what is very long.
            call.name = without_lone_surrogates(name)[:NAME_CHARACTERS_MAX]
        piece = without_lone_surrogates(piece)
        call.pieces.append(piece)
        return ToolCallDelta(call.ordinal, call.id, call.name, piece)

    def extra_content(self, value: object) -> None:
        """What the endpoint attached to the latest call and wants back with it."""
        self._calls[-1].extra_content = value

    def stop(self, finish_reason: str) -> Stop:
        if self.refused:
            return "refusal"
        return _STOPS.get(finish_reason, "tool_use" if self._calls else "end_turn")

    def message(self, stop: Stop) -> AssistantMessage:
        """The whole message. Calls stay only where they will run: none goes unanswered."""
        parts: list[Text | Thinking | ToolCall] = self._detailed()
        for part in self._parts:
            if isinstance(part, _Prose):
                if part.kind == "text":
                    parts.append(Text.model_construct(text="".join(part.pieces)))
                elif not (self._details and part.field):
                    parts.append(_thinking(part))
            elif stop == "tool_use":
                if part.extra_content is not None:
                    parts.append(
                        Thinking(
                            encrypted=orjson.dumps(part.extra_content).decode(),
                            id=EXTRA_CONTENT + part.id,
                        )
                    )
                parts.append(tool_call(part.id, part.name, "".join(part.pieces)))
        return AssistantMessage.model_construct(parts=tuple(parts))

    @property
    def pieces(self) -> list[str]:
        """All that the model wrote, to be counted where the provider told no usage."""
        return [piece for part in self._parts for piece in part.pieces]

    def _prose(self, kind: Literal["text", "thinking"], field: str | None) -> _Prose:
        """The part under way where it is of this kind, else a new one.

        A thought that has its signature or is cipher text is over.
        """
        last = self._parts[-1] if self._parts else None
        if (
            isinstance(last, _Prose)
            and last.kind == kind
            and not (last.signature or last.encrypted)
        ):
            return last
        part = _Prose(kind, [], field)
        self._parts.append(part)
        return part

    def _whole_characters(self, kind: str, piece: str) -> str:
        """`piece` without lone surrogates; a half at its end waits for the other half."""
        if self._half[kind]:
            piece, self._half[kind] = self._half[kind] + piece, ""
        if piece.isascii():
            return piece
        if "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half[kind] = piece[:-1], piece[-1]
        try:
            piece.encode()
        except UnicodeEncodeError:
            joined = piece.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return without_lone_surrogates(joined)
        return piece

    def _detailed(self) -> list[Text | Thinking | ToolCall]:
        parts: list[Text | Thinking | ToolCall] = []
        for item in self._details.values():
            text = item.pop("text", None) or item.pop("summary", None) or ""
            parts.append(
                Thinking(
                    text=without_lone_surrogates(text),
                    signature=item.get("signature"),
                    encrypted=orjson.dumps(item).decode(),
                    id=REASONING_DETAILS,
                )
            )
        return parts


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """The call, its arguments parsed strictly: what is not a JSON object is malformed.

    No text at all means no arguments: that is how several providers write a call without.
    """
    if not arguments.strip():
        return ToolCall.model_construct(id=call_id, name=name, arguments={}, malformed=None)
    try:
        value = loads(arguments)
        if "\\ud" in arguments.lower():
            whole = without_lone_surrogates(json.dumps(value, ensure_ascii=False))
            value = orjson.loads(whole)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return ToolCall.model_construct(id=call_id, name=name, arguments={}, malformed=arguments)
    return ToolCall.model_construct(id=call_id, name=name, arguments=value, malformed=None)


def loads(text: str | bytes) -> Any:
    """Strict JSON. Escapes that are lone surrogates pass: models do write them.

    Strings may then hold such surrogates only where orjson refused the text; they are
    kept as they are in deltas, whose other half may follow, so callers normalise.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        escaped = b"\\ud" if isinstance(text, bytes) else "\\ud"
        if escaped not in text.lower():  # type: ignore[operator]
            raise
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _thinking(part: _Prose) -> Thinking:
    return Thinking.model_construct(
        text="".join(part.pieces),
        signature=part.signature,
        encrypted=part.encrypted,
        id=part.field,
    )
