"""A `once` tool whose worker was lost in the middle: never started again, never passed over."""

import pytest
from harness import Bench, calls, eventually, says, scripted
from lost_calls import interrupted, result

from everturn.session import SessionKey
from everturn_activities import tools
from everturn_activities.store import AskPerson
from everturn_workers.locks import WorkerLock


async def test_the_outcome_of_a_call_whose_worker_died_is_unknown_and_it_is_not_run(
    made: Bench,
) -> None:
    gateway = scripted(calls("effect"), says("I will find out"))
    async with made.worker(gateway) as instance:
        key = await interrupted(made, "effect", f"{instance.split('-')[0]}-dead")
        await made.send(key, "go")
        events = await made.until(key, "turn_finished")
    failed, text = result(events)
    assert failed
    assert "outcome of this call is unknown" in text
    assert not (made.workspace / "effects.log").exists()


@pytest.mark.parametrize(
    ("went_through", "failed", "said"),
    [(True, False, "it went through"), (False, True, "before it had any effect")],
)
async def test_the_tools_own_probe_tells_what_became_of_a_call(
    made: Bench, went_through: bool, failed: bool, said: str
) -> None:
    if went_through:
        (made.workspace / "went.through").touch()
    gateway = scripted(calls("transfer"), says("fine"))
    async with made.worker(gateway) as instance:
        key = await interrupted(made, "transfer", f"{instance.split('-')[0]}-dead")
        await made.send(key, "go")
        events = await made.until(key, "turn_finished")
    assert result(events)[0] is failed
    assert said in result(events)[1]
    assert not (made.workspace / "transfers.log").exists()


@pytest.mark.parametrize("asks", [False, True])
async def test_a_call_of_a_living_worker_is_waited_for(
    made: Bench, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """And one that asks a person in its midst for longer than its time, which stands still."""
    if asks:
        monkeypatch.setattr(tools, "OWNER_GRACE_SECONDS", -1e9)
    gateway = scripted(calls("effect"), says("done"))
    run_dir = made.settings.home / "run"
    async with made.worker(gateway) as instance:
        owner = f"{instance.split('-')[0]}-alive"
        with WorkerLock(run_dir, owner):
            key = await interrupted(made, "effect", owner)
            if asks:
                asked_by_another(made, key)
            await made.send(key, "go")
            await made.until(key, "tool_started")
            handle = made.client.get_workflow_handle(key.workflow_id)

            async def refused() -> bool:
                pending = (await handle.describe()).raw_description.pending_activities
                return any("OwnerAlive" in p.last_failure.message
                           or p.last_failure.application_failure_info.type == "OwnerAlive"
                           for p in pending)  # fmt: skip

            while not await refused():
                pass
            assert not [e for e in await made.events(key) if e.type == "tool_finished"]
        events = await made.until(key, "turn_finished")
    assert "unknown" in result(events)[1]
    await eventually(lambda: not (made.workspace / "effects.log").exists())


def asked_by_another(made: Bench, key: SessionKey) -> None:
    store = made.runtime.store
    begin = store.begin_tool

    async def begun_and_asked(*given: object, **more: object) -> object:
        begun = await begin(*given, **more)  # type: ignore[arg-type]
        await store.ask_person(key, AskPerson(1, 1, 0, 1, "effect", "How much?"))
        return begun

    store.begin_tool = begun_and_asked  # type: ignore[method-assign]


async def test_a_once_call_with_wrong_arguments_leaves_no_intent(made: Bench) -> None:
    gateway = scripted(calls("effect", seconds="soon"), says("sorry"))
    key = await made.session()
    async with made.worker(gateway):
        await made.send(key, "go")
        await made.until(key, "turn_finished")

    (call,) = await made.runtime.store.tool_calls(key, 1, 1)
    assert (call.attempt, call.worker) == (0, None)
    assert call.result is not None
    assert "do not fit" in call.result.text
