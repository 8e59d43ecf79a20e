"""What a person is asked about a call whose outcome nobody saw, and what the answer says."""

import json
from datetime import timedelta
from typing import Any

from temporalio.exceptions import ApplicationError

from everturn.agents import AgentSpec
from everturn.session import RunTools, SessionKey
from everturn_activities.capped import capped
from everturn_activities.store import Answer, AskPerson, Store, ToolInterrupted

HAPPENED, AGAIN, UNKNOWN = "happened", "run again", "unknown"
ARGUMENTS_BYTES = 1_000
LOOK_SECONDS = 3.0
"""How long after a person's answer it is read at the latest; until then no slot is held."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"outcome": {"type": "string", "enum": [HAPPENED, AGAIN, UNKNOWN]}},
    "required": ["outcome"],
    "additionalProperties": False,
}
TOOK_EFFECT = (
    "The process that ran this call ended before it could report, and a person says that it took"
    " effect. What it answered is lost; it was not run again."
)


async def outcome_of(
    store: Store, request: RunTools, key: SessionKey, spec: AgentSpec, begun: ToolInterrupted
) -> str:
    """What a person says became of an attempt: HAPPENED, AGAIN or UNKNOWN.

    Raises until somebody answers, so that the call is looked at again and waits in no slot.
    """
    asked = AskPerson(
        turn=request.turn,
        step=request.step,
        index=begun.call.index,
        # Those of the call itself count up from 1. Each attempt is a question of its own.
        part=-begun.attempt,
        name=begun.call.name,
        question=_question(begun),
        schema=_SCHEMA,
        expires_seconds=spec.agent.approvals.expires_seconds,
    )
    answer = await store.answer_of(key, await store.ask_person(key, asked))
    if answer.state == "open":
        raise ApplicationError(
            f"A person is asked what became of call {begun.call.index}.",
            type="OutcomeAsked",
            next_retry_delay=timedelta(seconds=LOOK_SECONDS),
        )
    return _said(answer)


def _said(answer: Answer) -> str:
    # Who refuses to answer, or does not in time, does not know.
    return str((answer.content or {}).get("outcome", UNKNOWN))


def _question(begun: ToolInterrupted) -> str:
    arguments = capped(json.dumps(begun.call.arguments, ensure_ascii=False), ARGUMENTS_BYTES)
    return (
        f"The process that ran a call of {begun.call.name} ended before it could report, so the"
        f" call may or may not have taken effect. Its arguments: {arguments}\n"
        f"Find out, and answer '{HAPPENED}', '{AGAIN}' where it did not happen and is to be run"
        f" once more, or '{UNKNOWN}'."
    )
