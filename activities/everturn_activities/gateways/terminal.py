"""Whether a provider's own end of a reply was seen on the wire.

LiteLLM tells of a stream that was cut as of a reply that ended well, so its word is no
evidence: the bytes are.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

LINE_BYTES_MAX = 16 * 1024 * 1024

_FINAL_TYPES = {"message_stop", "message-end", "response.completed", "response.incomplete"}
_CONVERSE_STOP = b":event-type\x07\x00\x0bmessageStop"
_USAGE = re.compile(rb'[uU]sage|_tokens"|eval_count|TokenCount')
_DONE = re.compile(rb"data:\s*\[DONE\]")
_FINISH = re.compile(rb'(?<!\\)"finish_reason"\s*:\s*"')
_INVOKE_CHUNK = re.compile(rb'"bytes":"([A-Za-z0-9+/=]+)"')


class Wire:
    """Watches the responses of one call; the last one is the one that counts.

    `host` is who was asked, None while nobody was; `status` and `headers` are those of
    the response, `status` None while there is none. `ended`: the terminal marker was
    seen. `told_usage`: the provider counted the tokens itself.
    """

    def __init__(self) -> None:
        self.host: str | None = None
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.ended = False
        self.told_usage = False
        self._reader: _Lines | _Whole | _Frames = _Lines()

    def asking(self, host: str) -> None:
        self.__init__()  # type: ignore[misc]
        self.host = host

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        match headers.get("content-type", "").partition(";")[0].strip():
            case "application/json":
                self._reader = _Whole()
            case "application/vnd.amazon.eventstream":
                self._reader = _Frames()

    def saw(self, chunk: bytes) -> None:
        self.told_usage = self.told_usage or _USAGE.search(chunk) is not None
        if not self.ended:
            self.ended = self._reader.ended_by(chunk)

    @property
    def said_whole(self) -> bool:
        """Whether the response is one chat completion that says something, and no stream."""
        return isinstance(self._reader, _Whole) and self._reader.says_something()

    def saw_eof(self) -> None:
        if not self.ended:
            self.ended = self._reader.ended_by_eof()


class _Lines:
    """Server-sent events and JSON lines. Text of the model never begins a line of them.

    `[DONE]` counts only after a finish reason: LiteLLM invents one where there is none.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._finished = False

    def ended_by(self, chunk: bytes) -> bool:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            self._rest = b""
        return any([self._ended_by(line.strip()) for line in lines])  # noqa: C419 - all are read

    def ended_by_eof(self) -> bool:
        return self._ended_by(self._rest.strip())

    def _ended_by(self, line: bytes) -> bool:
        if _FINISH.search(line):
            self._finished = True
        if _DONE.fullmatch(line):
            return self._finished
        return _is_terminal(line)


class _Whole:
    """A body that is one JSON value: whole when it parses."""

    def __init__(self) -> None:
        self._body = bytearray()

    def ended_by(self, chunk: bytes) -> bool:
        self._body += chunk
        return False

    def ended_by_eof(self) -> bool:
        with suppress(orjson.JSONDecodeError):
            orjson.loads(self._body)
            return True
        # Some servers call JSON lines plain JSON.
        return any(_is_terminal(line.strip()) for line in bytes(self._body).split(b"\n"))

    def says_something(self) -> bool:
        try:
            message = orjson.loads(self._body)["choices"][0]["message"]
            return bool(message.get("content") or message.get("tool_calls"))
        except (ValueError, LookupError, TypeError, AttributeError):
            return False


class _Frames:
    """Amazon's event stream: the event's name in a header, or a base64 chunk of JSON."""

    def __init__(self) -> None:
        self._rest = b""

    def ended_by(self, chunk: bytes) -> bool:
        seen = self._rest + chunk
        self._rest = seen[-64 * 1024 :]
        if _CONVERSE_STOP in seen:
            return True
        for found in _INVOKE_CHUNK.finditer(seen):
            with suppress(binascii.Error):
                if _is_terminal(base64.b64decode(found[1])):
                    return True
        return False

    def ended_by_eof(self) -> bool:
        return False


def _is_terminal(line: bytes) -> bool:
    if line.startswith(b"event:"):
        return line[6:].strip().decode("utf-8", "replace") in _FINAL_TYPES
    line = line.removeprefix(b"data:").strip()
    if not line.startswith(b"{"):
        return False
    try:
        return _says_end(orjson.loads(line))
    except orjson.JSONDecodeError:
        return False


def _says_end(event: Any) -> bool:
    """Ollama, Cohere, Anthropic and the Responses API, and Gemini, in this order."""
    if event.get("done") is True or event.get("is_finished") is True:
        return True
    if event.get("type") in _FINAL_TYPES:
        return True
    candidates = event.get("candidates")
    return isinstance(candidates, list) and any(
        isinstance(candidate, dict) and candidate.get("finishReason") for candidate in candidates
    )
