"""What ends a turn, in which order."""

from dataclasses import dataclass

from everturn.session import OutcomeKind, TurnHead


@dataclass(frozen=True)
class Ended:
    outcome: OutcomeKind
    reason: str | None = None


CANCELLED = Ended("cancelled", "The turn was cancelled.")


def ended(turn: TurnHead) -> Ended | None:
    """Why `turn` takes no further step, or None.

    The order is part of the contract (B8): a reply that asks for nothing more, then
    max steps, then cancelled.
    """
    if turn.failure is not None:
        return Ended("failed", turn.failure)
    match turn.stop:
        case "end_turn":
            return Ended("completed")
        case "max_tokens":
            return Ended("max_tokens", "The model's reply was cut at its token limit.")
        case "refusal":
            return Ended("model_failed", "The provider's content policy ended the reply.")
    if turn.step >= turn.steps_max:
        return Ended("max_steps", f"The turn took {turn.step} steps without a final answer.")
    if turn.cancelled:
        return CANCELLED
    return None
