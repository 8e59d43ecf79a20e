"""What a step is composed of: gathered for as long as it stands, recorded, composed again."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from stories import SPEC, Open, Story

from everturn.agents import AgentSpec
from everturn.context.compose import compose
from everturn.context.conversation import Conversation
from everturn.context.layers import Item
from everturn.profile import Layer, Profile, Recipe
from everturn.session import ContextHead, PrepareStep, TurnHead
from everturn_activities.gathering import Gatherer
from everturn_activities.sources import Asked
from everturn_activities.sources.plain import PLAIN


class Files:
    """A source whose answers a test edits; `asked` has the layers that it was asked for."""

    def __init__(self) -> None:
        self.says = {"session": "S", "turn": "T", "step": "P"}
        self.asked: list[str] = []

    async def __call__(self, asked: Asked) -> Sequence[Item]:
        self.asked.append(asked.layer.id)
        text = self.says[asked.layer.id]
        if text.startswith("!"):
            asked.warn(text[1:])
            return ()
        return ({"text": text},)


def spec(*scopes: str, agent: str = "default", **layer: str) -> AgentSpec:
    """An agent whose prompt has a layer for each of `scopes`."""
    layers = tuple(
        Layer.model_validate({"id": scope, "source": "files", "scope": scope, **layer})
        for scope in scopes
    )
    profile = Profile(name="tests", recipe=Recipe(layers=layers, separator="|"))
    return SPEC.model_copy(
        update={"profile": profile, "agent": SPEC.agent.model_copy(update={"name": agent})}
    )


ALL = spec("session", "turn", "step")


class Process:
    """One worker's gatherer over a store."""

    def __init__(self, story: Story, files: Files) -> None:
        self.story = story
        self.gatherer = Gatherer(
            story.store, {**PLAIN, "files": files}, lambda text, _: len(text), story.clock
        )

    async def prepare(self, turn: TurnHead, step: int, agent: AgentSpec = ALL) -> ContextHead:
        key = self.story.key
        made = await self.gatherer.gather(key, turn.turn, step, agent)
        layers = self.gatherer.unrecorded(key, agent, made)
        request = PrepareStep(*key, turn.turn, step, turn.epoch)
        context = await self.story.store.prepare_step(request, "inline", "m", None, layers)
        self.gatherer.recorded(key, layers, context)
        return context

    async def system(self, context: ContextHead, agent: AgentSpec = ALL) -> str:
        prompt = await self.gatherer.snapshot(context.layers)
        return compose(agent, prompt.texts, Conversation()).system


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
async def elsewhere(opened: Open, tmp_path: Path, files: Files) -> AsyncIterator[Process]:
    """Another process on the same store."""
    async with opened(tmp_path) as story:
        yield Process(story, files)


async def turn_of(story: Story, run: str = "run-1") -> TurnHead:
    await story.send()
    return await story.begun(run)


async def next_turn(story: Story, turn: TurnHead) -> TurnHead:
    await story.finish(turn, f"run-{turn.turn}")
    return await turn_of(story, f"run-{turn.turn + 1}")


async def blobs(story: Story) -> list[str]:
    return await story.store._database.read(  # type: ignore[attr-defined]
        lambda connection: [
            row.body for row in connection.exec_driver_sql("SELECT body FROM blobs").all()
        ]
    )


async def test_the_secrets_of_a_workspace_are_known_before_its_texts_are_read(
    story: Story, files: Files
) -> None:
    known: list[AgentSpec] = []
    gatherer = Gatherer(
        story.store,
        {**PLAIN, "files": files},
        lambda text, _: len(text),
        clean=lambda text: text.replace("S", "[secret]") if known else text,
        know=known.append,
    )
    made = await gatherer.gather(story.key, 1, 1, ALL)
    assert made.texts["session"] == "[secret]"
    await gatherer.gather(story.key, 1, 1, ALL)
    assert known == [ALL]


async def test_each_text_stands_for_the_scope_of_its_layer(story: Story, files: Files) -> None:
    here = Process(story, files)
    turn = await turn_of(story)
    assert await here.system(await here.prepare(turn, 1)) == "S|T|P"

    files.says = {"session": "S2", "turn": "T2", "step": "P2"}
    assert await here.system(await here.prepare(turn, 2)) == "S|T|P2"

    turn = await next_turn(story, turn)
    assert await here.system(await here.prepare(turn, 1)) == "S|T2|P2"
    assert files.asked == ["session", "turn", "step", "step", "turn", "step"]


async def test_what_stands_does_so_in_another_process(
    story: Story, files: Files, elsewhere: Process
) -> None:
    turn = await turn_of(story)
    await Process(story, files).prepare(turn, 1)

    files.says = {"session": "S2", "turn": "T2", "step": "P2"}
    assert await elsewhere.system(await elsewhere.prepare(turn, 2)) == "S|T|P2"

    turn = await next_turn(story, turn)
    files.says = {"session": "S3", "turn": "T3", "step": "P3"}
    assert await elsewhere.system(await elsewhere.prepare(turn, 1)) == "S|T3|P3"


async def test_a_step_composed_again_after_a_restart_is_byte_equal(
    story: Story, files: Files, elsewhere: Process
) -> None:
    """U6"""
    here = Process(story, files)
    files.says["step"] = "12:00\n\ud800 \u00e9"
    turn = await turn_of(story)
    context = await here.prepare(turn, 1)
    sent = await here.system(context)

    files.says = {"session": "S2", "turn": "T2", "step": "12:01"}
    again = await elsewhere.prepare(turn, 1)

    assert again.layers == context.layers
    assert await elsewhere.system(again) == sent
    sent.encode()


async def test_the_texts_of_a_step_that_another_process_prepared_stand_for_its_turn(
    story: Story, files: Files, elsewhere: Process
) -> None:
    turn = await turn_of(story)
    here = Process(story, files)
    # Here the step is gathered, and another process is faster to record it.
    await here.gatherer.gather(story.key, turn.turn, 1, ALL)
    files.says = {"session": "S2", "turn": "T2", "step": "P2"}
    await elsewhere.prepare(turn, 1)

    for step in (1, 2):
        assert await here.system(await here.prepare(turn, step)) == "S2|T2|P2"


async def test_what_was_gathered_and_never_recorded_does_not_stand(
    story: Story, files: Files, elsewhere: Process
) -> None:
    turn = await turn_of(story)
    here = Process(story, files)
    await here.gatherer.gather(story.key, turn.turn, 1, ALL)
    files.says["turn"] = "T2"
    await elsewhere.prepare(turn, 1)

    assert await here.system(await here.prepare(turn, 2)) == "S|T2|P"


async def test_a_session_keeps_its_text_for_each_agent(story: Story, files: Files) -> None:
    here = Process(story, files)
    turn = await turn_of(story)
    await here.prepare(turn, 1)
    files.says["session"] = "S2"
    other = spec("session", "turn", "step", agent="other")
    turn = await next_turn(story, turn)
    assert await here.system(await here.prepare(turn, 1, other)) == "S2|T|P"
    turn = await next_turn(story, turn)
    assert await here.system(await here.prepare(turn, 1)) == "S|T|P"


async def test_a_layer_that_is_written_otherwise_is_gathered_anew(
    story: Story, files: Files
) -> None:
    here = Process(story, files)
    turn = await turn_of(story)
    await here.prepare(turn, 1)
    files.says["session"] = "S2"
    edited = spec("session", "turn", "step", item="<{text}>")
    turn = await next_turn(story, turn)
    assert await here.system(await here.prepare(turn, 1, edited), edited) == "<S2>|<T>|<P>"


async def test_what_has_not_changed_is_stored_once(story: Story, files: Files) -> None:
    here = Process(story, files)
    turn = await turn_of(story)
    for step in (1, 2, 3):
        await here.prepare(turn, step)
    assert sorted(map(len, await blobs(story)))[:3] == [1, 1, 1]
    assert len(await blobs(story)) == 4

    files.says["step"] = "P2"
    await here.prepare(turn, 4)
    assert len(await blobs(story)) == 6


async def test_a_step_of_which_nothing_changed_asks_no_source_and_reads_nothing(
    story: Story, files: Files
) -> None:
    here = Process(story, files)
    agent = spec("session", "turn")
    turn = await turn_of(story)
    await here.prepare(turn, 1, agent)
    files.asked.clear()
    reads = counted(here)

    await here.prepare(turn, 2, agent)

    assert files.asked == []
    assert reads == []


def counted(process: Process) -> list[str]:
    """The reads of the store from now on, by name."""
    store, seen = process.story.store, []
    for name in ("prepared", "snapshot", "session_layers"):

        async def read(*given: object, name: str = name) -> object:
            seen.append(name)
            return await getattr(type(store), name)(store, *given)

        setattr(store, name, read)
    return seen


async def test_K6_a_layer_that_has_nothing_to_tell_is_in_no_manifest(
    story: Story, files: Files, elsewhere: Process
) -> None:
    files.says |= {"session": "", "turn": " \n"}
    turn = await turn_of(story)
    here = Process(story, files)
    assert await here.system(await here.prepare(turn, 1)) == "P"
    # And it has been asked: another process does not ask again.
    files.says |= {"session": "S", "turn": "T"}
    assert await elsewhere.system(await elsewhere.prepare(turn, 2)) == "P"


async def test_a_warning_is_told_once_in_its_turn(
    story: Story, files: Files, elsewhere: Process
) -> None:
    files.says["step"] = "!notes.md is not UTF-8, and is left out."
    turn = await turn_of(story)
    here = Process(story, files)
    for step in (1, 2):
        await here.prepare(turn, step)
    await elsewhere.prepare(turn, 3)
    (told,) = await story.told("status")
    assert told.body["text"] == "notes.md is not UTF-8, and is left out."
    assert (told.turn, told.step) == (1, 1)

    turn = await next_turn(story, turn)
    await here.prepare(turn, 1)
    assert len(await story.told("status")) == 2


async def test_a_layer_of_an_unknown_source_is_left_out_with_a_warning(
    story: Story, files: Files
) -> None:
    here = Process(story, files)
    agent = spec("session", "turn", source="nowhere")
    context = await here.prepare(await turn_of(story), 1, agent)
    assert await here.system(context, agent) == ""
    told = await story.told("status")
    assert "Layer 'turn' has an unknown source, 'nowhere'" in told[1].body["text"]


async def test_a_file_that_cannot_be_read_leaves_its_layer_out(story: Story) -> None:
    async def broken(asked: Asked) -> Sequence[Item]:
        raise PermissionError(13, "Permission denied", "SOUL.md")

    gatherer = Gatherer(story.store, {"files": broken}, lambda text, _: 1)
    turn = await turn_of(story)
    agent = spec("turn")
    made = await gatherer.gather(story.key, turn.turn, 1, agent)
    assert made.texts == {}
    (warning,) = gatherer.unrecorded(story.key, agent, made).warnings
    assert "SOUL.md" in warning


async def test_T13_what_a_model_cannot_have_is_told_at_the_beginning_of_the_turn(
    story: Story, files: Files
) -> None:
    here = Process(story, files)
    here.gatherer = Gatherer(
        story.store,
        {**PLAIN, "files": files},
        lambda text, _: 1,
        left_out=lambda agent: "No top_k.",
    )
    turn = await turn_of(story)
    for step in (1, 2):
        await here.prepare(turn, step)
    (told,) = await story.told("status")
    assert (told.body["text"], told.step) == ("No top_k.", 1)
