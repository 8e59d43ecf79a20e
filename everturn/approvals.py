"""Approvals: which tool calls a person decides about, and what is said to them and to questions."""

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field, model_validator

from everturn.messages import Frozen

Decision = Literal["approve", "grant", "deny", "answer"]
ApprovalState = Literal["open", "approved", "denied", "answered", "expired", "closed"]
AskKind = Literal["approval", "question"]
"""Whether a call may run, or what a person says to a question."""

ANSWER_CHARACTERS = 50_000

# What could end one command and begin another, or a line. A pattern's `*` stops at each.
_WILD = r"[^\x00-\x1f\x7f;&|`$<>(){}\\]*"


class Approvals(Frozen):
    """When a person is asked before a call runs, and what follows from the answer.

    `tools` are names, or patterns such as `mcp_*`, of tools that are asked about beside those
    that ask by themselves. A question that nobody answered for `expires_seconds` counts as
    denied. After a denial the other calls of the step still run; then the turn goes on, and
    the model reads the reason, or ends as `ended_by_denial`. With `on_unknown = "ask"` a person
    is asked what became of a `once` call whose worker was lost, and may have it run again; else
    the model is told that nobody knows.
    """

    tools: tuple[str, ...] = ()
    expires_seconds: float | None = Field(default=None, gt=0)
    on_denial: Literal["go_on", "end"] = "go_on"
    on_unknown: Literal["tell", "ask"] = "tell"

    def name(self, tool: str) -> bool:
        """Whether calls of `tool` are asked about by these rules."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)


class ToolVerdict(Frozen):
    """What a person says to a question, or to one about a tool call.

    `digest` is that of the call as it was shown: a verdict on any other is refused.
    `arguments` are run in place of the model's. A grant also lets later calls of the tool in
    the session pass, whose arguments fit `pattern`: a text for each argument that matters, in
    which `*` stands for any characters on one line but those that a shell reads as its own.
    An `answer` is a text, or the `content` that a question with a schema asks for; a call is
    never approved by one.
    """

    approval: int = Field(ge=1)
    verdict: Decision
    digest: str | None = None
    arguments: dict[str, Any] | None = None
    pattern: dict[str, str] | None = None
    reason: str = Field(default="", max_length=2000)
    answer: str | None = Field(default=None, min_length=1, max_length=ANSWER_CHARACTERS)
    content: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> "ToolVerdict":
        says = self.answer is not None or self.content is not None
        if says != (self.verdict == "answer"):
            raise ValueError("an answer, and nothing else, has a text or a content")
        if says:
            if self.arguments is not None or self.pattern is not None:
                raise ValueError("an answer names no arguments and no pattern")
            return self
        if self.verdict == "deny" and (self.arguments is not None or self.pattern is not None):
            raise ValueError("a denial names no arguments and no pattern")
        if self.verdict != "deny" and self.digest is None:
            raise ValueError(
                "an approval names the digest of the call that it is for, as the question told it"
            )
        if self.pattern is not None and self.verdict != "grant":
            raise ValueError("only a grant names a pattern")
        return self


def digest_of(tool: str, arguments: dict[str, Any]) -> str:
    """SHA-256, in hex, of the call that is decided about."""
    text = json.dumps([tool, arguments], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def covers(pattern: Mapping[str, str], arguments: Mapping[str, Any]) -> bool:
    """Whether a granted pattern lets a call with these arguments pass."""
    return all(
        name in arguments and _fits(wanted, arguments[name]) for name, wanted in pattern.items()
    )


def _fits(wanted: str, given: Any) -> bool:
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    if text == wanted:
        return True
    # `docs/*` is meant to stay in docs.
    if "*" not in wanted or ".." in text.split("/"):
        return False
    pattern = _WILD.join(re.escape(piece) for piece in wanted.split("*"))
    return re.fullmatch(pattern, text) is not None
