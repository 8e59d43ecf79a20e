"""SIGKILL of the worker that makes a session's own folder: the next makes it whole."""

from pathlib import Path

import pytest
from systems import Plan, StartSystem, prompt, until

FILES = 3000


@pytest.mark.long
async def test_a_folder_that_its_worker_left_half_made_is_made_anew_and_worked_in(
    start_system: StartSystem,
):
    system = await start_system({"own": Plan(steps=(("add",), ()))})
    (system.workspace / "many").mkdir()
    for n in range(FILES):
        (system.workspace / "many" / f"{n}.txt").write_text(f"{n}")
    view = await system.client.create_session("own", workspace=str(system.workspace), folder="copy")
    assert view.own_dir is not None
    own = Path(view.own_dir)
    await system.client.send("own", prompt("own"), id="to-own")
    turn = system.watch("own")

    await until(lambda: (own / "many").is_dir() and any((own / "many").iterdir()))
    await system.kill("worker")
    half = len(list((own / "many").iterdir()))
    assert half < FILES
    (own / "many" / "left.txt").write_text("of the first attempt")
    await system.restart("worker")
    events = await turn.finished()

    assert events[-1].body["outcome"] == "completed"
    assert sorted(path.name for path in (own / "many").iterdir()) == sorted(
        f"{n}.txt" for n in range(FILES)
    )
    # The tool worked there, and not where the session's folder is a copy of.
    assert (own / "effects.log").exists()
    assert not system.effects_log.exists()
