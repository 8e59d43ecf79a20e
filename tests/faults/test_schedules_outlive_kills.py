"""A schedule whose times pass while everything is dead: made up for as its overlap says, once."""

import json
import time
from pathlib import Path

from preloaded import Preloaded
from systems import System, until, until_async

from everturn.schedules import NewSchedule, RunView
from everturn_activities.cron import name_of

SECONDS = 3


async def runs(system: System, name: str) -> list[RunView]:
    return sorted((await system.client.schedules.get(name)).runs, key=lambda run: run.at)


async def test_times_that_pass_while_everything_is_dead_are_made_up_for_once(
    tmp_path: Path, temporal: Path, preloaded: Preloaded
) -> None:
    """Of those under `skip` the newest stands for all; under `queue` each is worked."""
    variables = {"EVERTURN_SCHEDULE_SECONDS_MIN": "1"}
    system = System(tmp_path, temporal, preloaded, {}, "inline", variables)
    (system.folder / "script.json").write_text(json.dumps({"replies": [{"text": "Done."}]}))
    try:
        await system.start()
        begun: dict[str, float] = {}
        for name, overlap in (("newest", "skip"), ("each", "queue")):
            await system.client.create_session(name, workspace=str(system.workspace))
            given = {"name": name, "prompt": "Go.", "session": name, "overlap": overlap}
            body = NewSchedule.model_validate({**given, "every_seconds": SECONDS})
            begun[name] = (await system.client.schedules.add(body)).next[0]
        for part in ("temporal", "worker", "api"):
            await system.kill(part)
        died_at = time.time()

        await until(lambda: time.time() > died_at + 2 * SECONDS + 0.5)
        for part in ("temporal", "worker", "api"):
            await system.restart(part)

        def passed(name: str) -> list[float]:
            """The schedule's times from then on."""
            return [at for n in range(99) if (at := begun[name] + n * SECONDS) > died_at]

        async def made_up_for() -> list[RunView] | None:
            found = [run for run in await runs(system, "newest") if run.at >= passed("newest")[0]]
            return found if any(run.state == "sent" for run in found) else None

        found = await until_async(made_up_for)
        states = [run.state for run in found]
        assert states[: states.index("sent")] == ["missed"] * states.index("sent")
        assert states.index("sent") >= 1

        wanted = {f"schedule:each:{name_of(at)}" for at in passed("each")[:2]}

        async def queued() -> bool:
            return wanted <= set(await taken(system, "each"))

        await until_async(queued)
        for name in ("newest", "each"):
            await system.client.schedules.remove(name)
            ids = await taken(system, name)
            page = await system.client.messages(name, limit=500)
            said = [one for one in page.messages if one.message.role == "user"]
            assert len(said) == len(ids) == len(set(ids))
    finally:
        await system.end()


async def taken(system: System, name: str) -> list[str]:
    """The ids of the messages that turns of the session have taken up, as its watchers were
    told; once its newest turn has ended."""
    turn = (await system.client.session(name)).turn
    if not turn:
        return []
    told = [event async for event in system.client.events(name, until_turn=turn)]
    return [m for one in told if one.type == "turn_started" for m in one.body["messages"]]
