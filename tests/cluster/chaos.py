"""A cluster under load while parts of it are killed, and what must hold of it afterwards."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_tools import LOG
from clusters import workspace_of
from forking import forking
from load import Load, script
from local_cluster import Cluster, Topology
from nemesis import Nemesis
from preloaded import Preloaded
from redis.asyncio import Redis
from systems import processes_of
from verdicts import ONCE, Verdicts, lines_of

from everturn.client import Client

TTL_SECONDS = 60
"""The least that the setting takes."""
FINISH_SECONDS = 120.0
CLIENTS = 8
GOVERNOR = "{governor}"

Befalls = Callable[[Nemesis], Awaitable[Iterable[str]]]
"""What a cluster goes through under load; what was wrong with it."""


@dataclass(frozen=True)
class Plan:
    """`clients` under the choices of `seed`, while the cluster goes through `befalls`.

    With `mended`, no request may need more than one retry. With `outlast`, wait until what is
    in Redis has outlived its time. `topology` is what differs from a whole cluster.
    """

    seed: int
    befalls: Befalls
    clients: int = CLIENTS
    mended: bool = False
    outlast: bool = False
    topology: dict[str, Any] = field(default_factory=dict)


@dataclass
class Report:
    """What was done, and each check by its name with what is wrong."""

    figures: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, list[str]] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        return [f"{name}: {what}" for name, found in self.checks.items() for what in found]


async def under_load(folder: Path, plan: Plan, say: Callable[[str], None]) -> Report:
    """Start a cluster in `folder`, do as `plan` says, and judge."""
    workspace_of(folder)
    (folder / "script.json").write_text(json.dumps(script()))
    variables = {
        "EVERTURN_EVENT_TTL_SECONDS": str(TTL_SECONDS),
        "EVERTURN_MODEL": "openai/gpt-5-mini",
    }
    with closing(Preloaded(folder)) as preloaded:
        topology = Topology(
            folder,
            ports=(0, 0),
            script=folder / "script.json",
            model_flags=("--log", str(folder / "model.log"), "--delay-ms", "100"),
            variables=variables,
            # So that some are found dead by the locks of their home, and others by their leases.
            homes=2,
            restarts=False,
            program=forking(preloaded),
        )
        async with Cluster(topology.but(**plan.topology), say) as cluster:
            report = await _judged(cluster, folder, plan, say)
    left = processes_of(folder).items()
    report.checks["no process is left"] = [f"{pid}: {command}" for pid, command in left]
    return report


async def _judged(cluster: Cluster, folder: Path, plan: Plan, say: Callable[[str], None]) -> Report:
    found = cluster.addresses
    assert found is not None
    report = Report({"temporal": found.temporal_kind})
    load = Load(found.apis, folder / "workspace", plan.clients, plan.seed)
    nemesis = Nemesis(cluster, plan.seed, say)
    began = time.monotonic()
    load.start()
    try:
        report.checks["what befell it went well"] = list(await plan.befalls(nemesis))
        _figure(report, load, nemesis, time.monotonic() - began)
        say("waiting for the outcome of all that was said")
    finally:
        late = await load.finish(FINISH_SECONDS)
    await nemesis.look()
    report.checks["all that was said had its outcome in time"] = late
    report.checks["nobody ended unasked"] = nemesis.unasked
    if plan.mended:
        needed = [f"{load.requests['later']} did: {dict(load.refusals)}"]
        report.checks["no request needed more than one retry"] = (
            needed if load.requests["later"] else []
        )
    _keep_told(folder, load)
    logs = Verdicts(lines_of(folder / "model.log"), lines_of(folder / "workspace" / LOG))
    async with Client(found.apis[0], kept_alive=True) as client:
        await logs.judge(client, load.talks)
    report.checks.update(logs.found)
    report.figures["calls of models"] = sum(line["event"] == "received" for line in logs.model)
    report.figures["unknown outcomes"] = _unknown(logs)
    if found.redis_url is not None:
        if plan.outlast:
            say(f"waiting {TTL_SECONDS} s for what is in Redis to go")
            await asyncio.sleep(TTL_SECONDS + 1)
        outlived = await _left_in_redis(found.redis_url, 0 if plan.outlast else TTL_SECONDS)
        report.checks["no key outlives its time in Redis"] = outlived
    return report


def _keep_told(folder: Path, load: Load) -> None:
    """What each watcher was told, for who looks into a failure."""
    for talk in load.talks:
        lines = [json.dumps(event.flat()) + "\n" for event in talk.told]
        (folder / "logs" / f"{talk.session}.jsonl").write_text("".join(lines))


def _figure(report: Report, load: Load, nemesis: Nemesis, seconds: float) -> None:
    told = [event for talk in load.talks for event in talk.told]
    report.figures |= {
        "seconds": round(seconds),
        "turns": load.turns,
        "turns a second": round(load.turns / seconds, 2),
        "events": len(told),
        "newest epoch": max((event.epoch for event in told), default=0),
        "calls begun anew": sum(event.type == "superseded" for event in told),
        "moves of watchers": sum(talk.moves for talk in load.talks),
        "kills": dict(nemesis.kills),
        "requests": dict(load.requests),
        "why again": dict(load.refusals),
    }


async def _left_in_redis(url: str, seconds: int) -> list[str]:
    """Keys that no time ends, and those of event logs that have more than `seconds` left."""
    problems = []
    async with Redis.from_url(url, decode_responses=True) as redis:
        async for key in redis.scan_iter("*", count=1000):
            left = await redis.ttl(key)
            if left == -1:
                problems.append(f"{key} has no time to live")
            elif left > seconds and GOVERNOR not in key:
                problems.append(f"{key} lives on for {left} s")
    return problems


def _unknown(logs: Verdicts) -> int:
    """How many `once` calls had begun and left no effect: their outcome can only be unknown."""
    keys = {"began": set[str](), "effect": set[str]()}
    for line in logs.effects:
        if line["tool"] in ONCE:
            keys[line["what"]].add(line["key"])
    return len(keys["began"] - keys["effect"])
