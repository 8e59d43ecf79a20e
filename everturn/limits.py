"""What ends a turn, in which order."""

from dataclasses import dataclass

from everturn.errors import UNUSABLE_FOLDER
from everturn.session import Blocking, ContextHead, OutcomeKind, TurnHead


@dataclass(frozen=True)
class Ended:
    outcome: OutcomeKind
    reason: str | None = None
    passing: bool = False
    """Time may repair what ended it."""


CANCELLED = Ended("cancelled", "The turn was cancelled.")
WITHOUT_FOLDER = Ended("failed", UNUSABLE_FOLDER)


def fault(error: str) -> Ended:
    """The end of a turn that a fault of ours keeps from going on."""
    said = f"Everturn itself failed at it again and again: {error}"
    return Ended("failed", said, passing=True)


def overfull(context: ContextHead) -> Ended:
    """The end of a turn whose next request exceeds the window, and nothing of it can be cut."""
    assert context.sections is not None
    return Ended(
        "failed",
        f"The request takes about {context.sections.request:,} tokens, the model's window has"
        f" {context.sections.window:,}, and nothing more of the conversation can be summarised;"
        " begin a new session, or set window_tokens or a model with a larger window.",
    )


def blocked(how: Blocking) -> Ended | None:
    """Why a turn ends whose next call no budget lets begin, or None where it waits.

    The reason, with the budget and its figures, stands in the store.
    """
    match how:
        case "over":
            return Ended("budget_exceeded")
        case "unpriced":
            return Ended("failed")
        case "waits" | "asked":
            return None


def ended(turn: TurnHead) -> Ended | None:
    """Why `turn` takes no further step, or None.

    The order is part of the contract (B8): a failure, a reply that asks for nothing more,
    then max steps, then cancelled. A budget is asked where the next call begins.
    """
    if turn.failure is not None:
        return Ended("failed", turn.failure)
    given_up = turn.recoveries > turn.recoveries_max
    match turn.stop:
        case "end_turn" | "response":
            return Ended("completed")
        case "denied":
            # Who denied what, and why, stands in the store.
            return Ended("ended_by_denial")
        case "max_tokens" if given_up:
            return Ended("max_tokens", _cut(turn.recoveries))
        case "empty" if given_up:
            return Ended("model_failed", f"The model answered with nothing {_times(turn)}.")
        case "unfit" if given_up:
            return Ended(
                "model_failed",
                f"The model's answer did not fit the agent's output schema {_times(turn)}.",
            )
        case "refusal":
            return Ended("model_failed", "The provider's content policy ended the reply.")
    if turn.step >= turn.steps_max:
        return Ended("max_steps", f"The turn took {turn.step} steps without a final answer.")
    if turn.cancelled:
        return CANCELLED
    return None


def _cut(replies: int) -> str:
    if replies == 1:
        return "The model's reply was cut at its token limit."
    return f"The model's reply was cut at its token limit {replies} times in a row."


def _times(turn: TurnHead) -> str:
    return "once" if turn.recoveries == 1 else f"{turn.recoveries} times in a row"
