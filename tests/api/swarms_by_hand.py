"""Items of a swarm that are worked by hand, in place of its shards."""

import asyncio

from by_hand import Runtime

from everturn.session import SessionKey
from everturn.swarms import BeginItem, ItemRef, TakeItems

W = SessionKey("default", "w")


class Hand:
    """Takes items of swarm `w`, and works them as it is told."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._k = 0

    async def take(self, most: int = 1) -> list[ItemRef]:
        """Begin the sessions of the next items."""
        self._k += 1
        taken = await self._runtime.swarms.take(TakeItems("default", "w", "run", self._k, most))
        for item in taken.items:
            begin = BeginItem("default", "w", item, "t/default/w/w/1", "run", None)
            await self._runtime.swarms.open_item(begin)
        return taken.items

    async def work(self, *texts: str) -> None:
        """Work the next items, one a text, to their ends."""
        for item, text in zip(await self.take(len(texts)), texts, strict=True):
            await self._runtime.work(item.session, text)

    async def fail(self, reason: str) -> None:
        (item,) = await self.take()
        await self._runtime.fail(item.session, reason)

    async def work_all(self, bad: int = 0) -> None:
        """Work items as they come, to the end; item number `bad` fails."""
        while (await self._runtime.swarms.swarm(W)).state != "done":
            for item in await self.take(5):
                if item.n == bad:
                    await self._runtime.fail(item.session, "It is bad.")
                else:
                    await self._runtime.work(item.session, f"did {item.n}")
            await self.look()
            await asyncio.sleep(0.02)

    async def look(self) -> None:
        """What the swarm's workflow does: a swarm that is over is done."""
        await self._runtime.swarms.begin(W)
