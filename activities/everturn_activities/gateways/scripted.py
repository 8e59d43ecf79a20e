"""A model that answers from a script, for tests and demonstrations."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal

import orjson
from pydantic import Field, ValidationError

from everturn.context.compose import Context
from everturn.context.nudges import CUT, EMPTY, UNFIT
from everturn.errors import UsageError
from everturn.messages import Frozen
from everturn_activities.gateways import Delta, Reply, Usage
from everturn_activities.gateways.accumulate import Accumulator
from everturn_activities.gateways.failures import Called, cut, from_answer, stalled
from everturn_activities.gateways.wire import RESULTS_HEADING, wire_messages

DIMENSIONS = 256
_WORD = re.compile(r"\s*\S+\s*|\s+")


class ScriptedCall(Frozen):
    """`raw` is sent instead of `arguments`, such as JSON that is broken."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw: str | None = None


class ScriptedReply(Frozen):
    """One reply and its faults.

    `status` answers with that HTTP status; `cut_after` and `stall_after` end or silence
    the stream after so many pieces. These faults meet the first `times` requests for
    this place in the conversation. `hold` names a place midway at which the stream waits
    to be released.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: Literal["stop", "length", "content_filter", "tool_calls"] | None = None
    token_ms: float = Field(default=0, ge=0)
    hold: str | None = None
    status: int | None = None
    retry_after: float | None = None
    times: int = 1
    cut_after: int | None = None
    stall_after: int | None = None
    error_body: dict[str, Any] | None = None

    @property
    def faulty(self) -> bool:
        return not (self.status is None and self.cut_after is None and self.stall_after is None)

    @property
    def sound(self) -> "ScriptedReply":
        """The reply without its faults."""
        return self.model_copy(update={"status": None, "cut_after": None, "stall_after": None})

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


class Script(Frozen):
    """Replies by place in the turn; `by_last_user` picks other lists by what the user said.

    Patterns are tried in order; the first one found in the last user text wins. One of
    `by_last_result` that is found in the results that a conversation ends with wins over all.
    `meanings` are words that mean another one: texts of one meaning have vectors alike.
    """

    replies: tuple[ScriptedReply, ...] = ()
    by_last_user: dict[str, tuple[ScriptedReply, ...]] = Field(default_factory=dict)
    by_last_result: dict[str, ScriptedReply] = Field(default_factory=dict)
    meanings: dict[str, str] = Field(default_factory=dict)

    def vector(self, text: str) -> list[float]:
        """As an embedding model would: each word adds its meaning in a direction of its own."""
        vector = [0.0] * DIMENSIONS
        for word in re.findall(r"\w+", text.casefold()):
            meaning = self.meanings.get(word, word)
            digest = hashlib.blake2b(meaning.encode(), digest_size=8).digest()
            vector[int.from_bytes(digest, "big") % DIMENSIONS] += 1.0
        return vector

    def reply(self, place: "Place") -> ScriptedReply | None:
        """The reply at `place`, or None where the script ends earlier."""
        for pattern, reply in self.by_last_result.items():
            if place.last_result and re.search(pattern, place.last_result):
                return reply
        replies = self.replies
        for pattern, chosen in self.by_last_user.items():
            if re.search(pattern, place.last_user):
                replies = chosen
                break
        return replies[place.position] if place.position < len(replies) else None


class Place(Frozen):
    """Where a conversation stands.

    `position` counts the replies since the last message that a user wrote, so that a
    retry and another worker hear the same answer. `key` names this one model call: equal
    for its repetitions, different for every other.
    """

    key: str
    position: int
    last_user: str
    last_result: str = ""


def read_script(text: str | bytes) -> Script:
    """Raises UsageError where `text` is no script."""
    try:
        return Script.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the file"
        raise UsageError(f"The script is wrong at {where}: {first['msg']}.") from None


def place_of(messages: Sequence[Mapping[str, Any]]) -> Place:
    """The place of a conversation in the Chat Completions format."""
    said = hashlib.blake2b(digest_size=12)
    assistants = position = 0
    last_user = last_result = ""
    for message in messages:
        role = message.get("role")
        if role != "tool":
            last_result = ""
        if role == "assistant":
            assistants += 1
            position += 1
        elif role == "user":
            text = _user_text(message.get("content"))
            if text == EMPTY:
                # It stands for the reply of nothing that it follows.
                assistants += 1
                position += 1
            elif text not in (CUT, UNFIT) and not text.startswith(RESULTS_HEADING):
                said.update(text.encode("utf-8", "replace") + b"\0")
                position, last_user = 0, text
            else:
                last_result = text
        elif role == "tool":
            last_result += f"{message.get('content')}\n"
    said.update(str(assistants).encode())
    return Place.model_construct(
        key=said.hexdigest(), position=position, last_user=last_user, last_result=last_result
    )


def pieces_of(text: str) -> list[str]:
    """`text` word by word."""
    return _WORD.findall(text)


def call_id(key: str, index: int) -> str:
    return f"call_{key[:16]}_{index}"


def says(text: str, **more: Any) -> ScriptedReply:
    return ScriptedReply(text=text, **more)


def calls(name: str, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(calls=(ScriptedCall(name=name, arguments=arguments),))


class ScriptedGateway:
    """A gateway in process. `requests` holds every context that it was asked with."""

    def __init__(self, *script: Script | ScriptedReply) -> None:
        replies = tuple(item for item in script if isinstance(item, ScriptedReply))
        whole = [item for item in script if isinstance(item, Script)]
        self._script = whole[0] if whole else Script(replies=replies)
        self._asked: dict[str, int] = {}
        self._reached: dict[str, asyncio.Event] = {}
        self._released: dict[str, asyncio.Event] = {}
        self.requests: list[Context] = []

    async def reached(self, name: str) -> None:
        """Wait until some stream has come to `name`."""
        await self._reached.setdefault(name, asyncio.Event()).wait()

    def release(self, name: str) -> None:
        """Let every stream pass that waits, or will wait, at `name`."""
        self._released.setdefault(name, asyncio.Event()).set()

    async def stream(self, context: Context) -> AsyncGenerator[Delta | Reply]:
        self.requests.append(context)
        called = Called(context.model, "the script")
        place = place_of(
            [
                wire
                for message in context.messages
                for wire in wire_messages(message, context.tool_role)
            ]
        )
        reply = self._script.reply(place)
        if reply is None:
            raise from_answer(called, 400, {"message": f"No reply at {place.position}."})
        asked = self._asked[place.key] = self._asked.get(place.key, 0) + 1
        if asked > reply.times:
            reply = reply.sound
        if reply.status is not None:
            headers = {} if reply.retry_after is None else {"retry-after": str(reply.retry_after)}
            raise from_answer(called, reply.status, reply.error_body, headers)
        growing = Accumulator()
        deltas = _deltas(growing, reply, place.key)
        for number, delta in enumerate(deltas):
            if number == reply.cut_after:
                raise cut(called, "before the reply was finished")
            if number == reply.stall_after:
                await asyncio.sleep(context.stall_seconds)
                raise stalled(called, context.stall_seconds)
            if reply.hold is not None and number == len(deltas) // 2:
                await self._pass(reply.hold)
            if reply.token_ms:
                await asyncio.sleep(reply.token_ms / 1000)
            yield delta
        stop = growing.stop(reply.finish_reason)
        usage = Usage(input_tokens=10 * len(context.messages), output_tokens=len(deltas))
        yield Reply(growing.message(stop), stop, usage, context.model)

    async def close(self) -> None:
        for event in self._released.values():
            event.set()

    async def _pass(self, name: str) -> None:
        self._reached.setdefault(name, asyncio.Event()).set()
        await self._released.setdefault(name, asyncio.Event()).wait()


def _deltas(growing: Accumulator, reply: ScriptedReply, key: str) -> list[Delta]:
    told: list[Delta | None] = [
        growing.thinking(piece, "reasoning_content") for piece in pieces_of(reply.thinking)
    ]
    told += [growing.text(piece) for piece in pieces_of(reply.text)]
    for index, call in enumerate(reply.calls):
        arguments = call.raw if call.raw is not None else orjson.dumps(call.arguments).decode()
        told.append(growing.call(index, call_id(key, index), call.name, arguments))
    return [delta for delta in told if delta is not None]


def _user_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
