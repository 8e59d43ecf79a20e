"""Following a turn to its end."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from everturn.client import Client, took_up
from everturn.events import Event
from everturn.reading import TurnResult
from everturn.views import AcceptedView, ApprovalView, SessionView
from everturn_workers.cli.deciding import how_to_decide
from everturn_workers.cli.show import Show


class WaitsForPerson(Exception):  # noqa: N818 - a state of the turn, not a fault
    """The turn asks something that only a person can answer."""


Decide = Callable[[Client, ApprovalView], Awaitable[None]]
"""Asks the person at the terminal about a call that waits for leave, and sends the answer."""


async def _attend_to_questions(
    client: Client, session: str, event: Event, decide: Decide | None
) -> None:
    kind, body = event.type, event.body
    if kind == "executor_event":
        # What an executor asks, however deep below, is for who watches here.
        session, kind, body = body["executor"], body["event"], body["told"]
    if kind == "approval_asked":
        for one in await client.approvals(session):
            if one.approval == body["approval"]:
                if decide is None:
                    raise WaitsForPerson(how_to_decide(one))
                await decide(client, one)
    if kind == "budget_asked":
        asked = (await client.session(session)).asked
        if any(ask.approval == body["approval"] for ask in asked):
            raise WaitsForPerson(how_to_answer(session, asked[0].unit))


def how_to_answer(session: str, unit: str) -> str:
    """What to type in a shell."""
    return (
        f"The turn waits for an answer: 'everturn budget raise {session} --{unit} LIMIT', or"
        f" 'everturn budget deny {session}'."
    )


async def follow_message(
    client: Client,
    session: str,
    accepted: AcceptedView,
    show: Show,
    every_event: bool,
    decide: Decide | None = None,
) -> TurnResult:
    """Show the turn that works an accepted message, and return how it ended.

    `every_event` shows what happens before that turn begins too. Raises WaitsForPerson where
    the turn asks what nobody here can answer.
    """
    turn: int | None = None
    async with aclosing(client.events(session, accepted.cursor)) as events:
        async for event in events:
            if event.type == "gap":
                break
            if took_up(event, accepted.id):
                turn = event.turn
            if every_event or _concerns(event, turn):
                show.event(event)
            if event.type == "turn_finished" and event.turn == turn:
                return TurnResult.from_event(event)
            if event.turn == turn:
                await _attend_to_questions(client, session, event, decide)
    # The turn's beginning or end may be in what was trimmed away; the store has it for the cursor
    # of who is accepted, and no turn is trimmed that goes on.
    show.event(event)
    return await follow_message(client, session, accepted, show, every_event, decide)


def _concerns(event: Event, turn: int | None) -> bool:
    """Whether `event` is one of the open turn's, or of what arrives meanwhile for a later one."""
    return turn is not None and event.turn in (0, turn)


async def beginning(client: Client, session: SessionView, turn: int) -> str:
    """The cursor that the turn's events come after: what was before it can be very long."""
    if turn > session.turn:
        return session.cursor
    return (await client.turns(session.id, first=turn))[0].cursor


async def follow_turn(
    client: Client,
    session: SessionView,
    turn: int,
    show: Show,
    after: str | None,
    decide: Decide | None = None,
) -> TurnResult:
    """Show a turn from its beginning, or everything after the cursor, until the turn ended."""
    result = None
    start = await beginning(client, session, turn) if after is None else after
    async with aclosing(client.events(session.id, start, until_turn=turn)) as events:
        async for event in events:
            if after is not None or _concerns(event, turn):
                show.event(event)
            if event.type == "turn_finished" and event.turn == turn:
                result = TurnResult.from_event(event)
            if event.turn == turn:
                await _attend_to_questions(client, session.id, event, decide)
    if result is not None:
        return result
    # The cursor lies behind the turn's end.
    ended = (await client.turns(session.id, first=turn))[0]
    assert ended.outcome is not None
    return TurnResult(turn=turn, outcome=ended.outcome, reason=ended.reason)
