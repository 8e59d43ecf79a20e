"""A turn whose steps are composed of layers, for what looks at them."""

from collections.abc import Sequence

from by_hand import Runtime

from everturn.agents import Agent, AgentSpec
from everturn.context.layers import Item
from everturn.messages import user_text
from everturn.profile import Layer, Profile, Recipe
from everturn.session import ContextHead, PrepareStep, SessionKey, TurnHead
from everturn_activities.frames import Frames
from everturn_activities.gathering import Gatherer
from everturn_activities.sources import Asked
from everturn_activities.sources.plain import PLAIN
from everturn_activities.store import Inbound

LAYERS = (
    Layer(id="role", source="agent_prompt"),
    Layer(id="rules", source="text", text="Be kind.\nBe brief."),
    Layer(id="line", source="boundary", text="--- below ---"),
    Layer(id="now", source="minutes", scope="step"),
)
SPEC = AgentSpec(
    agent=Agent(name="clerk", prompt="You are a clerk.", window_tokens=1000, tokens_max=100),
    profile=Profile(name="office", recipe=Recipe(layers=LAYERS)),
    workspace="/",
    working_dir="/",
)


async def compose(runtime: Runtime, session: str, *minutes: str) -> tuple[TurnHead, ContextHead]:
    """A turn with a step for each of `minutes`, which its last layer tells; and its last step."""
    said = iter(minutes)

    async def now(asked: Asked) -> Sequence[Item]:
        return ({"text": f"It is 12:{next(said)}."},)

    key = SessionKey("default", session)
    gatherer = Gatherer(runtime.store, {**PLAIN, "minutes": now}, lambda text, _: len(text.split()))
    frames = Frames(lambda text, _: len(text.split()), lambda _: None, lambda _: True)
    await runtime.store.accept(key, Inbound(f"m{minutes[0]}", "message", user_text("hello")))
    turn = await runtime.begin(session, SPEC)
    for step in range(1, len(minutes) + 1):
        made = await gatherer.gather(key, turn.turn, step, SPEC)
        layers = gatherer.unrecorded(key, SPEC, made)
        request = PrepareStep(*key, turn.turn, step, turn.epoch)
        frame = frames.of(SPEC, made.manifest)
        context = await runtime.store.prepare_step(request, "inline", "openai/test", frame, layers)
        gatherer.recorded(key, layers, context)
    return turn, context
