"""Following a turn to its end."""

from contextlib import aclosing

from everturn.client import Client, took_up
from everturn.reading import TurnResult
from everturn.views import AcceptedView
from everturn_workers.cli.show import Show


async def follow_message(
    client: Client, session: str, accepted: AcceptedView, show: Show, every_event: bool
) -> TurnResult:
    """Show the turn that works an accepted message, and return how it ended.

    `every_event` shows what happens before that turn begins too.
    """
    turn: int | None = None
    # Of a message that was accepted before, the turn may be over already.
    after = "0" if accepted.duplicate else accepted.cursor
    async with aclosing(client.events(session, after)) as events:
        async for event in events:
            if took_up(event, accepted.id):
                turn = event.turn
            if every_event or event.turn == turn:
                show.event(event)
            if event.type == "turn_finished" and event.turn == turn:
                return TurnResult.from_event(event)
    raise AssertionError("A stream without an end has ended.")


async def follow_turn(
    client: Client, session: str, turn: int, show: Show, after: str | None
) -> TurnResult:
    """Show a turn from its beginning, or everything after the cursor, until the turn ended."""
    result = None
    async for event in client.events(session, after or "0", until_turn=turn):
        if after is not None or event.turn == turn:
            show.event(event)
        if event.type == "turn_finished" and event.turn == turn:
            result = TurnResult.from_event(event)
    if result is not None:
        return result
    # The cursor lies behind the turn's end.
    ended = (await client.turns(session, first=turn))[0]
    assert ended.outcome is not None
    return TurnResult(turn=turn, outcome=ended.outcome, reason=ended.reason)
