"""Two homes on one store: what a session with a folder of its own does, it does where that is."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from harness import SECONDS, Bench, OneGateway, bench, calls, says, scripted
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment
from test_executors import tasks
from test_leave import agent, approve

from everturn.agents import Agent, AgentSpec
from everturn.messages import user_text
from everturn.session import BeginTurn, FinishTurn, PrepareStep, RunTools, SessionKey, TurnHead
from everturn_activities import own_folders
from everturn_activities.store import Inbound, SessionSettings, Wake
from everturn_activities.tools import ToolActivities
from everturn_activities.workspaces import Workspaces
from everturn_workers.assembly import Assembly
from everturn_workers.home import home_id, prepare
from everturn_workers.queues import queues
from everturn_workers.runtime import open_runtime
from everturn_workers.temporal import connect

WRITES = calls("write_file", path="made.txt", content="by the agent")
HOOKED = (
    "---\nhooks: {agent_spawn: [{command: 'true'}], turn_end: [{command: 'true'}],"
    " pre_tool_use: [{command: 'true', matcher: echo}],"
    " post_tool_use: [{command: 'true', matcher: echo}]}\n---\nBe brief."
)
AWAY = (
    "What the session works in is at the home with the id {home}, and no worker of that home takes"
    " work; this waits until one does. Start 'everturn worker' on that home folder; or cancel the"
    " turn, and give up what is there by 'everturn folders remove s --force'."
)


@dataclass(frozen=True)
class Homes:
    """`here` works turns and calls models, `there` runs tools, as on a machine of its own."""

    here: Bench
    there: Bench

    @property
    def id(self) -> str:
        return home_id(self.there.settings.home)

    async def session(self, name: str = "s") -> SessionKey:
        """One with a copy of the workspace, as an API on the home `here` opens it."""
        key, folder = self.here.key(name), str(self.here.workspace)
        own = own_folders.own_path(self.here.settings.home, key, "copy", self.here.workspace)
        settings = SessionSettings(folder, folder, folder="copy", own_dir=str(own))
        await self.here.runtime.store.create_session(key, settings)
        return key

    async def own(self, key: SessionKey) -> Path:
        own = (await self.here.runtime.store.folder(key)).own_dir
        assert own is not None
        return Path(own)

    async def told(self, key: SessionKey) -> list[str]:
        found = await self.here.events(key)
        return [event.body["text"] for event in found if event.type == "status"]

    async def ended(self, workflow_id: str) -> None:
        """Wait until the workflow has begun, and ended."""
        async with asyncio.timeout(SECONDS):
            while True:
                with suppress(RPCError):
                    await self.here.client.get_workflow_handle(workflow_id).result()
                    return
                await asyncio.sleep(0.05)

    async def queues(self, key: SessionKey, part: str = "") -> set[tuple[str, str]]:
        """What the session's newest run gave to queues, and to which home's."""
        handle = self.here.client.get_workflow_handle(f"{key.workflow_id}{part}")
        found = set()
        async for event in handle.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                given = event.activity_task_scheduled_event_attributes
                queue = given.task_queue.name.partition("@")[2]
                found.add((given.activity_type.name, queue))
        return found


@pytest.fixture
async def homes(server_address: str, tmp_path: Path, workspace: Path) -> AsyncIterator[Homes]:
    one, other = prepare(tmp_path / "one"), prepare(tmp_path / "other")
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with bench(server_address, one, workspace, database_url=store) as here:
        settings = here.settings.model_copy(update={"home": other})
        async with open_runtime(settings) as runtime:
            # Two workers of one client would not be taken for two processes.
            client = await connect(settings)
            yield Homes(here, replace(here, settings=settings, runtime=runtime, client=client))


async def test_a_turn_that_is_worked_elsewhere_comes_to_its_folder_at_the_home_that_has_it(
    homes: Homes,
):
    (homes.here.workspace / "agents").mkdir()
    (homes.here.workspace / "agents" / "default.md").write_text(HOOKED)
    key = await homes.session()
    script = (WRITES, calls("echo", text="hello"), says("done"))
    async with (
        homes.there.worker(scripted(), roles="tools"),
        homes.here.worker(scripted(*script), roles="turns,models"),
    ):
        await homes.here.send(key, "go")
        end = (await homes.here.until(key, "turn_finished"))[-1]
        await homes.here.closed(key)
        await homes.ended(f"{key.workflow_id}/end/1")

    assert end.body["outcome"] == "completed"
    own = await homes.own(key)
    assert own.is_relative_to(homes.there.settings.home)
    assert (own / "made.txt").read_text() == "by the agent"
    assert not (homes.here.settings.home / "folders").exists()
    given = await homes.queues(key)
    assert ("begin_step_at_home", homes.id) in given
    assert {queue for name, queue in given if name != "call_model"} == {homes.id}
    assert {name for name, _ in given} >= {"run_hooks", "before_calls", "after_calls"}
    assert await homes.queues(key, "/end/1") == {("end_hooks", homes.id)}


async def made_there(homes: Homes) -> SessionKey:
    """A session whose folder was made at the home `there`, which nobody works now, and which
    has had a turn."""
    key, store = await homes.session(), homes.here.runtime.store
    own = own_folders.own_path(homes.there.settings.home, key, "copy", homes.here.workspace)
    await store.claim_folder(key, homes.id, str(own))
    own.mkdir(parents=True)
    (own / "made.txt").write_text("by the agent")
    await store.accept(key, Inbound("m", "message", user_text("go"), "queue"))
    spec = AgentSpec(agent=Agent(), workspace=str(homes.here.workspace), working_dir=str(own))
    begun = await store.begin_turn(BeginTurn(*key, key.workflow_id, "by hand", None), spec)
    assert isinstance(begun, TurnHead)
    await store.folder_made(key, begun.turn, begun.epoch)
    ending = FinishTurn(*key, key.workflow_id, "by hand", begun.turn, begun.epoch, 0, "cancelled")
    await store.finish_turn(ending)
    return key


async def test_a_folder_that_nobody_could_make_as_the_turn_began_is_of_the_home_that_makes_it(
    homes: Homes,
):
    key = await homes.session()
    model = scripted(WRITES, says("done"))
    async with homes.there.worker(model, roles="turns,models"):
        await homes.here.send(key, "go")
        await homes.here.until(key, "turn_started")
        async with asyncio.timeout(SECONDS):
            while ("prepare_folder", "") not in await homes.queues(key):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        async with homes.here.worker(scripted(), roles="tools"):
            end = (await homes.here.until(key, "turn_finished"))[-1]
            await homes.here.closed(key)
    assert end.body["outcome"] == "completed"
    assert (await homes.own(key) / "made.txt").read_text() == "by the agent"
    home = home_id(homes.here.settings.home)
    assert (await homes.here.runtime.store.folder(key)).home == home
    given = {queue for name, queue in await homes.queues(key) if name == "run_tools"}
    assert given <= {home}
    assert ("begin_step_at_home", home) in await homes.queues(key)


async def test_a_step_that_began_inline_makes_no_call_at_a_home_that_only_runs_tools(homes: Homes):
    key, store = await made_there(homes), homes.here.runtime.store
    await store.accept(key, Inbound("m2", "message", user_text("again"), "queue"))
    spec = await store.spec(key, 1)
    begun = await store.begin_turn(BeginTurn(*key, key.workflow_id, "by hand, too", None), spec)
    assert isinstance(begun, TurnHead)
    await store.prepare_step(PrepareStep(*key, 2, 1, begun.epoch), "inline", spec.agent.model)
    async with (
        homes.there.worker(scripted(says("by tools")), roles="tools"),
        homes.here.worker(scripted(says("done")), roles="turns,models"),
    ):
        await homes.here.waker.wake(Wake(key, None, 0))
        end = (await homes.here.until(key, "turn_finished", turn=2))[-1]
        await homes.here.closed(key)
    assert end.body["text"] == "done"


async def test_a_turn_whose_home_nobody_works_says_so_and_goes_on_once_somebody_does(homes: Homes):
    key = await made_there(homes)
    model = scripted(calls("read_file", path="made.txt"), says("done"))
    async with homes.here.worker(model):
        await homes.here.send(key, "again")
        waits = (await homes.here.until(key, "status", turn=2))[-1]
        assert waits.body["text"] == AWAY.format(home=homes.id)
        async with homes.there.worker(scripted(), roles="tools"):
            end = (await homes.here.until(key, "turn_finished", turn=2))[-1]
            await homes.here.closed(key)
    assert (end.body["outcome"], end.body["text"]) == ("completed", "done")
    assert await homes.told(key) == [AWAY.format(home=homes.id)]


async def test_a_turn_that_waits_for_its_home_is_cancelled_at_once_and_its_folder_given_up(
    homes: Homes,
):
    key = await made_there(homes)
    lost = await homes.own(key)
    async with homes.here.worker(scripted(WRITES, says("done"))):
        await homes.here.send(key, "again")
        await homes.here.until(key, "status", turn=2)
        await homes.here.cancel(key)
        end = (await homes.here.until(key, "turn_finished", turn=2))[-1]
        assert end.body["outcome"] == "cancelled"

        await homes.here.runtime.store.release_folder(key)
        await homes.here.send(key, "anew")
        end = (await homes.here.until(key, "turn_finished", turn=3))[-1]
        await homes.here.closed(key)
    assert end.body["outcome"] == "completed"
    made = await homes.own(key)
    assert made.is_relative_to(homes.here.settings.home)
    assert (made / "made.txt").exists()
    assert lost.is_dir()


async def test_a_step_that_is_worked_at_its_home_is_cancelled_in_its_midst(homes: Homes):
    key = await made_there(homes)
    model = scripted(says("thinking", hold="mid"))
    async with homes.here.worker(scripted(), placement="inline"):
        await homes.here.send(key, "again")
        await homes.here.until(key, "turn_started", turn=2)
        async with asyncio.timeout(SECONDS):
            while ("begin_step_at_home", homes.id) not in await homes.queues(key):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        # Its worker calls models, so the step's call is made within the step.
        async with homes.there.worker(model, placement="inline"):
            await model.reached("mid")
            await homes.here.cancel(key)
            end = (await homes.here.until(key, "turn_finished", turn=2))[-1]
            await homes.here.closed(key)
    assert end.body["outcome"] == "cancelled"
    assert await homes.queues(key) == {("begin_step_at_home", homes.id)}


async def test_a_folder_that_is_gone_from_its_home_ends_the_turn_with_why(homes: Homes):
    key = await made_there(homes)
    own = await homes.own(key)
    # So that the worker that begins the turn could not tell.
    shutil.rmtree(own)
    async with (
        homes.there.worker(scripted(), roles="tools"),
        homes.here.worker(scripted(says("done")), roles="turns,models"),
    ):
        await homes.here.send(key, "again")
        end = (await homes.here.until(key, "turn_finished", turn=2))[-1]
        await homes.here.closed(key)
    assert end.body["outcome"] == "failed"
    assert end.body["reason"].startswith(f"The session's own folder {own} is gone;")
    assert await homes.queues(key) == {("begin_step_at_home", homes.id)}


async def test_inline_tools_of_another_home_are_sent_on_and_not_run():
    async def no_store(*_: object) -> None:
        raise AssertionError

    tools = ToolActivities(no_store, no_store, no_store, no_store, "w", no_store)  # type: ignore[arg-type]
    inline = ActivityEnvironment()
    inline.info = replace(inline.info, is_local=True)
    asked = RunTools("t", "s", 1, 1, 1, [0], home="another")
    assert (await inline.run(tools.run_tools, asked)).elsewhere
    with pytest.raises(AttributeError):  # What is sent is run, so it asks the store.
        await ActivityEnvironment().run(tools.run_tools, asked)


async def test_inline_tools_of_a_turn_that_moves_in_mid_step_run_at_their_home(homes: Homes):
    agent(homes.here.workspace, "{tools: [write_file]}")
    key = await homes.session()
    async with homes.here.worker(scripted(WRITES), placement="inline"):
        await homes.here.send(key, "go")
        await homes.here.until(key, "approval_asked")
    await approve(homes.here, key)
    async with (
        homes.here.worker(scripted(), roles="tools"),
        homes.there.worker(scripted(WRITES, says("done")), roles="turns,models"),
    ):
        end = (await homes.here.until(key, "turn_finished"))[-1]
        await homes.here.closed(key)
    assert end.body["outcome"] == "completed"
    assert (await homes.own(key) / "made.txt").read_text() == "by the agent"
    assert ("run_tools", home_id(homes.here.settings.home)) in await homes.queues(key)


async def test_who_only_runs_tools_calls_no_model_however_quick_it_is(homes: Homes):
    key = await made_there(homes)
    model = scripted(says("from elsewhere"))
    async with (
        homes.there.worker(scripted(says("from here")), roles="tools", placement="inline"),
        homes.here.worker(model, roles="turns,models"),
    ):
        await homes.here.send(key, "again")
        end = (await homes.here.until(key, "turn_finished", turn=2))[-1]
        await homes.here.closed(key)
    assert end.body["text"] == "from elsewhere"
    assert await homes.queues(key) == {("begin_step_at_home", homes.id), ("call_model", "")}


@pytest.mark.parametrize("shared", [False, True])
async def test_only_where_homes_share_a_store_does_a_worker_have_a_queue_of_its_home(
    made: Bench, homes: Homes, shared: bool
):
    one = homes.here if shared else made

    async def named() -> str:
        return "of-its-own"

    async def lives(_: str) -> bool:
        return True

    work = Assembly(
        *(one.runtime, one.settings, OneGateway(scripted()), Workspaces(), Workspaces(), None),
        *(one.waker, "worker", lives, named, "home"),
    )
    found = {queue.name for queue in queues(work, one.settings, "home", 0)}
    assert (one.settings.own_queue("home") in found) is shared


async def test_where_the_home_is_the_workers_own_nothing_is_asked_of_others(homes: Homes):
    key = await homes.session()
    model = scripted(WRITES, calls("add", a=1, b=2), says("done"))
    async with homes.here.worker(model, placement="inline"):
        await homes.here.send(key, "go")
        await homes.here.until(key, "turn_finished")
        await homes.here.closed(key)
    assert (await homes.own(key)).is_relative_to(homes.here.settings.home)
    # As on one home: the folder is made by an activity, and steps are worked inline.
    (made,) = await homes.queues(key)
    assert made == ("prepare_folder", home_id(homes.here.settings.home))


async def test_executors_work_in_the_folder_of_their_parent_at_its_home(homes: Homes):
    key = await homes.session()
    model = scripted(
        WRITES,
        tasks("Read it."),
        says("done"),
        by_last_user={"^Read it": [calls("read_file", path="made.txt"), says("read")]},
    )
    async with (
        homes.there.worker(scripted(), roles="tools"),
        # Uncached, the first workflow task of the executor times out: two seconds more.
        homes.here.worker(model, workflows_cached=100, roles="turns,models"),
    ):
        await homes.here.send(key, "go")
        await homes.here.until(key, "turn_finished")
        await homes.here.closed(key)
    child = SessionKey(key.tenant, "s:1.2.0")
    texts = [str(message) for message in await homes.here.transcript(child)]
    assert any("by the agent" in text for text in texts)
    assert {queue for name, queue in await homes.queues(child) if name != "call_model"} == {
        homes.id
    }


async def test_files_of_a_rolled_back_turn_are_put_back_at_the_home_that_has_them(homes: Homes):
    key = await homes.session()
    model = scripted(WRITES, says("thinking", hold="mid"), by_last_user={"instead": [says("new")]})
    async with (
        homes.there.worker(scripted(), roles="tools"),
        homes.here.worker(model, roles="turns,models"),
    ):
        await homes.here.send(key, "go")
        await model.reached("mid")
        made = await homes.own(key) / "made.txt"
        assert made.exists()
        await homes.here.send(key, "instead", mode="rollback")
        await homes.here.until(key, "turn_finished", turn=2)
        await homes.here.closed(key)
    assert not made.exists()
    assert await homes.told(key) == ["Turn 1 was rolled back. Put back as they were: made.txt."]


async def test_files_that_only_another_home_could_put_back_are_told_and_not_passed_over(
    homes: Homes,
):
    key = await homes.here.session()
    model = scripted(says("hello"), by_last_user={"write": [WRITES, says("done")]})
    async with (
        homes.there.worker(scripted(), roles="tools"),
        homes.here.worker(model, roles="turns,models", placement="queued"),
    ):
        for turn, text in enumerate(("go", "write"), 1):
            await homes.here.send(key, text)
            await homes.here.until(key, "turn_finished", turn)
        await homes.here.closed(key)
    await homes.here.runtime.store.forks.rewind(key, 1, None)

    async with homes.here.worker(scripted(says("new"))):
        await homes.here.send(key, "anew")
        await homes.here.until(key, "turn_finished", 3)
        await homes.here.closed(key)
    assert await homes.told(key) == [
        f"Turn 2 was rolled back. What workers of the home {homes.id} did to files is recorded"
        " there, and still stands as they left it."
    ]
    assert (homes.here.workspace / "made.txt").exists()
