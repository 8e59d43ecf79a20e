"""Clients of a cluster: each speaks in a session of its own, over whichever API answers."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from everturn.client import Client
from everturn.errors import RuntimeUnavailable
from everturn.events import Event

T = TypeVar("T")

STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "talk": ((),),
    "add": (("add", "add"), ()),
    "act": (("stamp", "post"), ("charge",), ()),
    "pay": (("pay",), ()),
    "run": (("run_command",), ()),
}
"""What a message may ask for: the tools that each reply to it calls."""
ARGUMENTS = {"add": {"a": 2, "b": 3}, "run_command": {"command": "sleep 0.3; echo done"}}
TALK = " ".join(f"word {number}" for number in range(20))


def script() -> dict[str, object]:
    """What the endpoint says to each; it takes its time, so that kills find it speaking."""
    chosen = {}
    for kind, steps in STEPS.items():
        chosen[f"^{kind}"] = [
            {
                "text": f"I call {' and '.join(names)} now." if names else TALK,
                "token_ms": 30,
                "calls": [{"name": n, "arguments": ARGUMENTS.get(n, {})} for n in names],
            }
            for names in steps
        ]
    return {"by_last_user": chosen}


@dataclass
class Said:
    """A message that a client has sent: when it was accepted, and after how many tries."""

    id: str
    text: str
    tries: int = 0
    accepted: bool = False


@dataclass
class Talk:
    """A client's session: what it said, and all that its watcher was told, in that order."""

    session: str
    said: list[Said] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)
    moves: int = 0
    """How often its watcher went on at another API."""

    def ended(self) -> set[int]:
        """The turns that its watcher was told the end of; each new epoch tells some again."""
        return {event.turn for event in self.told if _ends(event)}


class Load:
    """`count` clients of the APIs at `urls`, whose choices are those of `seed`.

    A request that fails is sent once more, elsewhere, under the same id; `unmended` counts
    those that fail then, too. They are tried on until the cluster takes them.
    """

    def __init__(self, urls: Sequence[str], workspace: Path, count: int, seed: int) -> None:
        self._urls = urls
        self._seed = seed
        self._workspace = workspace
        self._dice = [random.Random(f"{seed}-{number}") for number in range(count)]
        self.talks = [Talk(f"talk-{number}") for number in range(count)]
        self.requests: Counter[str] = Counter()
        """By `at once`, `by one retry` and `later`."""
        self.refusals: Counter[str] = Counter()
        """Why requests had to be sent again, in words."""
        self._stopping = False
        self._clients = [Client(url, patience_seconds=0) for url in urls]
        self._running: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for number in range(len(self.talks)):
            self._running.append(asyncio.create_task(self._talks(number)))

    async def finish(self, seconds: float) -> list[str]:
        """Say nothing new, and wait until all that was said has its outcome; sessions without."""
        self._stopping = True
        _, pending = await asyncio.wait(self._running, timeout=seconds)
        left = [t.session for t, task in zip(self.talks, self._running, strict=True)
                if task in pending]  # fmt: skip
        for task in (*self._running, *self._watching):
            task.cancel()
        ended = await asyncio.gather(*self._running, *self._watching, return_exceptions=True)
        for client in self._clients:
            await client.close()
        for error in ended:
            if isinstance(error, Exception):
                raise error
        return left

    @property
    def turns(self) -> int:
        """How many have ended so far, as watchers were told."""
        return sum(len(talk.ended()) for talk in self.talks)

    async def _talks(self, number: int) -> None:
        talk, dice = self.talks[number], self._dice[number]
        await self._sent(
            number,
            lambda client: client.create_session(talk.session, workspace=str(self._workspace)),
        )
        watching = asyncio.create_task(self._watches(talk, number))
        self._watching.append(watching)
        while not self._stopping:
            # Now and then before the answer to the last: it waits for a turn, and may share one.
            for _ in range(dice.choice((1, 1, 1, 2))):
                await self._says(number, dice.choice(tuple(STEPS)))
            await self._is_answered(talk, watching)
            await asyncio.sleep(dice.uniform(0, 0.5))

    async def _says(self, number: int, kind: str) -> None:
        talk = self.talks[number]
        count = len(talk.said) + 1
        said = Said(f"{talk.session}-{count}", f"{kind} as number {count} of {talk.session}")
        talk.said.append(said)

        async def send(client: Client) -> None:
            said.tries += 1
            await client.send(talk.session, said.text, id=said.id)

        await self._sent(number, send)
        said.accepted = True

    async def _sent(self, number: int, request: Callable[[Client], Awaitable[object]]) -> None:
        """Send it, once more elsewhere where that fails, and then until it is taken."""
        tried = 0
        while True:
            client = self._clients[(number + tried) % len(self._clients)]
            try:
                await request(client)
            except RuntimeUnavailable as error:
                self.refusals[_reason(error)] += 1
            else:
                self.requests[("at once", "by one retry", "later")[min(tried, 2)]] += 1
                return
            tried += 1
            if tried > 1:
                await asyncio.sleep(0.2)

    async def _is_answered(self, talk: Talk, watching: asyncio.Task[None]) -> None:
        """Wait until the watcher was told that the turn of each message has ended."""
        while not {said.id for said in talk.said} <= answered(talk.told):
            if watching.done():
                watching.result()
            await asyncio.sleep(0.02)

    async def _watches(self, talk: Talk, number: int) -> None:
        """Follow the session for ever, moving to another API when one goes, and at times anyway."""
        dice = random.Random(f"{self._seed}-watcher-{number}")
        where = number
        while True:
            client = Client(self._urls[where % len(self._urls)], patience_seconds=0)
            with suppress(RuntimeUnavailable, TimeoutError):
                async with client, asyncio.timeout(dice.uniform(1, 8)):
                    after = talk.told[-1].cursor if talk.told else "0"
                    async with aclosing(client.events(talk.session, after)) as events:
                        async for event in events:
                            talk.told.append(event)
            where += 1
            talk.moves += 1
            await asyncio.sleep(0.05)


def answered(told: Sequence[Event]) -> set[str]:
    """The messages whose turn has ended, by what watchers were told."""
    turn_of: dict[str, int] = {}
    ended = set()
    for event in told:
        if event.type == "turn_started":
            turn_of.update(dict.fromkeys(event.body.get("messages", ()), event.turn))
        elif event.type == "message_admitted":
            turn_of[event.body["message_id"]] = event.turn
        elif _ends(event):
            ended.add(event.turn)
    return {message for message, turn in turn_of.items() if turn in ended}


def _ends(event: Event) -> bool:
    return event.type == "turn_finished"


def _reason(error: RuntimeUnavailable) -> str:
    """Its sentence without the address, for counting."""
    return re.sub(r"http://\S+", "an API", str(error))
