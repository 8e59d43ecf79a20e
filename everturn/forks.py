"""Forks: sessions that begin with another's transcript up to a step."""

import re
from typing import Literal

from pydantic import Field

from everturn.errors import UsageError
from everturn.folders import FolderKind
from everturn.messages import Frozen

Replay = Literal["turn", "session"]
"""What a fork works again: one turn, or that and all later ones."""
Unrecorded = Literal["refuse", "pure", "run"]
"""What becomes of a call that the replayed turn did not make: it is answered with an error, it
runs where its tool changes nothing, or it runs."""

EDITS_MAX = 100
NUMBER_MAX = 2**31
_STEP = re.compile(r"([1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,8}))?")
_CALL = re.compile(r"([1-9][0-9]{0,8})\.([1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})=(.*)", re.DOTALL)


class EditedResult(Frozen):
    """What a fork has in place of the result of call `index`, counted from 0, of a step."""

    turn: int = Field(ge=1, le=NUMBER_MAX)
    step: int = Field(ge=1, le=NUMBER_MAX)
    index: int = Field(ge=0, le=NUMBER_MAX)
    text: str

    @property
    def place(self) -> str:
        return f"{self.turn}.{self.step}.{self.index}"


class ForkSession(Frozen):
    """Body of `POST /v1/sessions/{id}/fork`; the same `id` again answers with the same session.

    The fork begins behind `step` of `turn`, behind the whole turn where no step is named, and
    behind all that is finished where no turn is. With `replay` that turn, by default the newest,
    or the first of all, is worked again. Settings that are not named are the session's.
    """

    id: str | None = None
    turn: int | None = Field(default=None, ge=1, le=NUMBER_MAX)
    step: int | None = Field(default=None, ge=1, le=NUMBER_MAX)
    agent: str | None = None
    model: str | None = None
    folder: FolderKind | None = None
    edits: tuple[EditedResult, ...] = Field(default=(), max_length=EDITS_MAX)
    message: str | None = None
    replay: Replay | None = None
    unrecorded: Unrecorded = "refuse"


class RewindSession(Frozen):
    """Body of `POST /v1/sessions/{id}/rewind`: what comes behind `step` of `turn`, or behind the
    whole turn, is no longer sent, and files go back to what they were then. The same `id` again
    changes nothing."""

    id: str | None = None
    turn: int = Field(ge=1, le=NUMBER_MAX)
    step: int | None = Field(default=None, ge=1, le=NUMBER_MAX)


class ForkedFrom(Frozen):
    """Where a session comes from: it has the messages of `session` up to a step, or up to the
    end of `turn`. `turns` are those of that session that it works again, where there are any, and
    `unrecorded` is what becomes of their new calls."""

    session: str
    turn: int
    step: int | None = None
    turns: tuple[int, ...] = ()
    unrecorded: Unrecorded | None = None

    @property
    def place(self) -> str:
        return place_text(self.turn, self.step)

    def told(self, origin: str) -> str:
        """What the session does with its `origin`, as the end of a sentence."""
        if self.turns:
            first, last = self.turns[0], self.turns[-1]
            which = f"turn {first}" if first == last else f"turns {first} to {last}"
            return f"works {which} of {origin} again with recorded results"
        what = f"turn {self.turn}" if self.step is None else f"step {self.place}"
        return f"begins with {origin} up to {what}"


def place_text(turn: int, step: int | None) -> str:
    return str(turn) if step is None else f"{turn}.{step}"


def place_from_text(text: str) -> tuple[int, int | None]:
    """`(turn, step)` of TURN or TURN.STEP. Raises UsageError."""
    found = _STEP.fullmatch(text)
    if found is None:
        raise UsageError(
            f"The step {text[:40]!a} is not possible; write TURN.STEP such as 2.1, or TURN."
        )
    return int(found[1]), None if found[2] is None else int(found[2])


def edit_from_text(text: str) -> EditedResult:
    """An edit written as TURN.STEP.INDEX=TEXT. Raises UsageError."""
    found = _CALL.fullmatch(text)
    if found is None:
        raise UsageError(
            f"The edited result {text[:40]!a} is not possible; write TURN.STEP.INDEX=TEXT or"
            " TURN.STEP.INDEX=@FILE, such as 2.1.0=@result.txt; the first call has the index 0."
        )
    return EditedResult(turn=int(found[1]), step=int(found[2]), index=int(found[3]), text=found[4])
