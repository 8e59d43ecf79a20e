"""What follows a model call that failed: whether it is tried again, when, and with which model."""

import logging
import traceback

from everturn.agents import Agent
from everturn.errors import (
    ModelError,
    ModelRefused,
    ModelStalled,
    ModelUnavailable,
    ModelUnreachable,
    UnknownModel,
)
from everturn_activities.store import CallFailure

UNREACHABLE_MAX = 4
"""About four seconds of trying: an address where nothing answers is rather wrong than busy."""
SWITCH_AFTER = 2
"""Tries of a model that is overloaded or away, where a fallback stands ready."""
SWITCH_PAUSE_SECONDS = 5.0
"""A provider that asks for a longer pause is not waited for, where a fallback stands ready."""
RETRY_AFTER_SECONDS_MAX = 3600.0
PAUSE_SECONDS_MAX = 30.0

log = logging.getLogger(__name__)


def judged(error: Exception, agent: Agent, next_model: str | None) -> CallFailure:
    """How often a call that failed with `error` is made of one model, and who is next.

    A refusal is not the next model's to mend: a wrong key or request is told to a person.
    """
    if isinstance(error, ModelRefused | UnknownModel):
        return CallFailure(str(error), tries_max=1, refused=True)
    if isinstance(error, ModelStalled):
        return CallFailure(str(error), agent.stall_retries + 1, next_model, stalled=True)
    tries_max = agent.retries_max + 1
    reason = str(error)
    if isinstance(error, ModelUnreachable):
        tries_max = min(tries_max, UNREACHABLE_MAX)
    elif not isinstance(error, ModelError):
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("%s in a gateway at\n%s", type(error).__name__, where)
        reason = f"The gateway failed with {type(error).__name__}; the worker's log tells where."
    asked = asked_seconds(error) or 0.0
    if asked > RETRY_AFTER_SECONDS_MAX:
        tries_max = 1
        reason += f" It asks to wait longer than {RETRY_AFTER_SECONDS_MAX:g} s."
    if next_model is not None:
        tries_max = 1 if asked > SWITCH_PAUSE_SECONDS else min(tries_max, SWITCH_AFTER)
    return CallFailure(reason, tries_max, next_model)


def pause_seconds(error: Exception, agent: Agent, tries: int) -> float:
    """How long to wait before the next of a model's `tries`: as long as the provider asks,
    else twice as long each time."""
    return pause_after(error, agent.retry_seconds, tries)


def pause_after(error: Exception, first_seconds: float, tries: int) -> float:
    """The same, where nobody has asked otherwise, from `first_seconds` on."""
    asked = asked_seconds(error)
    if asked is not None:
        return min(asked, RETRY_AFTER_SECONDS_MAX)
    doubled = first_seconds * 2.0 ** min(tries - 1, 16)
    return min(doubled, max(PAUSE_SECONDS_MAX, first_seconds))


def asked_seconds(error: Exception) -> float | None:
    return error.retry_after_seconds if isinstance(error, ModelUnavailable) else None
