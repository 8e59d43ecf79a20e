"""What befalls a cluster: kills by a seed, and rolling restarts."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

from local_cluster import Cluster

from everturn.errors import RuntimeUnavailable
from everturn_workers.children import Child

BACK_SECONDS = 90.0
KINDS = ("worker", "api", "postgres", "redis", "temporal")


class Nemesis:
    """Kills and restarts parts of a cluster that does not restart them itself.

    `unasked` tells of those that ended although nobody killed them.
    """

    def __init__(self, cluster: Cluster, seed: int, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._dice = random.Random(f"{seed}-kills")
        self._say = say
        self.kills: Counter[str] = Counter()
        self.unasked: list[str] = []
        self._away: dict[str, asyncio.Task[None]] = {}

    async def kill_for(self, seconds: float) -> None:
        """Kill one part every few seconds, which is started again a moment later."""
        parts = self._cluster.children
        there = [kind for kind in KINDS if any(name.startswith(kind) for name in parts)]
        deck: list[str] = []
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            await asyncio.sleep(self._dice.uniform(1, 4))
            await self.look()
            # Each kind in its turn: by names most kills would be workers'.
            deck = deck or self._dice.sample(there, len(there))
            kind = deck.pop()
            name = self._dice.choice([name for name in parts if name.startswith(kind)])
            away = self._dice.uniform(0, 2)
            if name in self._away:
                # Still on its way back; the dice are thrown all the same, for the seed to hold.
                continue
            self._say(f"kill -9 of {name}, for {away:.1f} s")
            self.kills[kind] += 1
            await self._kill(parts[name])
            self._away[name] = asyncio.create_task(self._come_back(parts[name], away))
        await asyncio.gather(*self._away.values())
        await self.look()

    async def roll(self) -> list[str]:
        """End every worker and every API in good order, one after the other, and start it anew;
        which did not end well."""
        problems = []
        for name, child in self._cluster.children.items():
            if name.startswith(("worker", "api")):
                assert child.process is not None
                began = time.monotonic()
                await child.stop()
                code = child.process.returncode
                self._say(f"{name} ended with code {code} after {time.monotonic() - began:.1f} s")
                if code:
                    problems.append(f"{name} ended with code {code} where it was asked to end")
                await self._restart(child)
        return problems

    async def look(self) -> None:
        """Note who has ended unasked, and start that again."""
        for name, child in self._cluster.children.items():
            if name in self._away:
                continue
            if child.process is not None and child.process.returncode is not None:
                self.unasked.append(f"{name} ended by itself, with code {child.process.returncode}")
                self._say(self.unasked[-1])
                await self._restart(child)

    async def _kill(self, child: Child) -> None:
        assert child.process is not None
        child.process.kill()
        await child.process.wait()

    async def _come_back(self, child: Child, away: float) -> None:
        await asyncio.sleep(away)
        await self._restart(child)
        del self._away[child.name]

    async def _restart(self, child: Child) -> None:
        give_up = time.monotonic() + BACK_SECONDS
        while True:
            try:
                await child.launch()
                await child.ready()
            except RuntimeUnavailable as error:
                # A worker whose servers are away may end; whoever keeps it starts it again.
                self._say(str(error))
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.5)
            else:
                return
