"""everturn sessions compact."""

from everturn.session import SessionKey
from everturn_activities.store import SessionSettings


async def test_a_compaction_is_asked_for_and_one_that_never_was_cannot_be_undone(commands, runtime):
    await runtime.store.create_session(
        SessionKey("default", "s"), SessionSettings(str(runtime.workspace), str(runtime.workspace))
    )

    asked = await commands("sessions", "compact", "s")
    undone = await commands("sessions", "compact", "s", "--undo")

    assert (asked.code, asked.out) == (0, "")
    assert "summarised before the session's next step" in asked.err
    assert undone.code == 2
    assert "'s' has no compaction that could be undone" in undone.err
