"""A memory is made smaller by one paid call, whenever its worker dies."""

import json
from pathlib import Path

import pytest
from preloaded import Preloaded
from systems import System, until_async

KILLING = str(Path(__file__).with_name("killing_consolidator.py"))
CONSOLIDATES = "Above are the facts that an agent keeps"
FACTS = [
    {"name": "memory_save", "arguments": {"text": f"Fact {n}: {'word ' * 20}"}} for n in "abcdef"
]
SMALLER = [{"text": "All six facts in one.", "from": [1, 2, 3, 4, 5, 6]}]
SCRIPT = {
    "replies": [{"calls": FACTS}, {"text": "Noted."}],
    "by_last_user": {
        CONSOLIDATES: [{"text": json.dumps(SMALLER)}],
        "Hello": [{"text": "Hello."}],
    },
}


@pytest.mark.parametrize(
    ("side", "asked"), [("after", 1), pytest.param("before", 2, marks=pytest.mark.long)]
)
async def test_R17_a_worker_that_is_killed_in_a_consolidation_pays_once(
    tmp_path: Path, temporal: Path, preloaded: Preloaded, side: str, asked: int
) -> None:
    """A reply that was not committed is asked for again; one that was never is."""
    system = System(tmp_path, temporal, preloaded, {}, "inline", {})
    (system.folder / "script.json").write_text(json.dumps(SCRIPT))
    try:
        await system.start(("model", "api"))
        with (system.workspace / "everturn.toml").open("a") as settings:
            settings.write('\n[memory]\nscopes = ["session"]\nconsolidate_tokens = 100\n')
        environment = {**system.worker.environment, "EVERTURN_TEST_CONSOLIDATION": side}
        killed = system.program("killed", (KILLING,), environment)
        await killed.launch()
        await killed.ready()
        await system.client.create_session("s", workspace=str(system.workspace))
        await system.client.send("s", "Remember all this.", id="m")
        await killed.ended(30)
        await system.worker.launch()
        await system.worker.ready()

        async def smaller() -> bool:
            facts = await system.client.facts("session", session="s")
            return [fact.n for fact in facts] == [7]

        await until_async(smaller)
        (fact,) = await system.client.facts("session", session="s")
        assert fact.text == "All six facts in one."
        assert [(source.session, source.turn, source.step) for source in fact.sources] == [
            ("s", 1, 1)
        ]
        # Nothing is due any more: a message of another turn is all that a model is asked.
        await system.client.send("s", "Hello.", id="m2")
        events = [event async for event in system.client.events("s", until_turn=2)]
        assert events[-1].body["outcome"] == "completed"
        done = [line for line in system.model_calls() if line["event"] == "completed"]
        assert len(done) == 2 + asked + 1
    finally:
        await system.end()
