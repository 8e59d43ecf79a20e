"""`everturn up` as people run it: whatever is killed comes back, and turns go on."""

import os
import signal

from systems import Plan, StartSystem, until

from everturn_workers.up_record import running

PLANS = {
    "stream": Plan(held=frozenset({2})),
    "tools": Plan(gated=frozenset({"charged", "slow"})),
    "later": Plan(held=frozenset({3})),
}


async def test_turns_survive_the_kill_of_all_children_and_of_up_itself(start_system: StartSystem):
    system = await start_system(PLANS, parts=("model", "up"))
    turns = [await system.send("stream"), await system.send("tools")]
    await system.held("stream.2")
    await system.waits_in_tool("tools.charged", "tools.slow")

    up = running(system.home)
    assert up is not None
    for pid in up.children.values():
        os.kill(pid, signal.SIGKILL)
    await system.release("stream.2", "tools.charged", "tools.slow")
    for turn in turns:
        assert (await system.evidence(turn)).problems() == []

    last = await system.send("later")
    await system.held("later.3")
    await system.up.kill()
    await until(lambda: running(system.home) is None)
    await system.release("later.3")
    await system.start_up()
    evidence = await system.evidence(last)
    assert evidence.problems() == []
    assert evidence.completed() == [1, 1, 1]
    assert await system.up.stop(30) == 0
