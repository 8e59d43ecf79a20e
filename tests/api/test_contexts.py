"""What a step's request was composed of, over HTTP."""

import pytest
from composed import compose

from everturn.errors import UnknownSession, UsageError


async def test_the_newest_steps_context_is_told_layer_by_layer(client, runtime):
    await client.create_session("s")
    await compose(runtime, "s", "01", "02")

    view = await client.context("s")

    assert (view.turn, view.step, view.agent, view.profile) == (1, 2, "clerk", "office")
    assert [(layer.id, layer.text) for layer in view.layers] == [
        ("role", "You are a clerk."),
        ("rules", "Be kind.\nBe brief."),
        ("line", "--- below ---"),
        ("now", "It is 12:02."),
    ]
    assert [layer.cached for layer in view.layers] == [True, True, True, False]
    assert [layer.tokens for layer in view.layers] == [4, 4, 3, 3]
    sections = view.sections
    assert (sections.system, sections.generation, sections.window) == (14, 100, 1000)
    assert (view.history_messages, view.memory_messages, sections.memory) == (0, 1, 1)
    assert (view.level, view.compacts_at) == ("none", 0.9)


async def test_an_older_step_is_told_as_it_was(client, runtime):
    await client.create_session("s")
    await compose(runtime, "s", "01", "02")
    first, second = [await client.context("s", 1, step) for step in (1, 2)]
    assert first.layers[-1].text == "It is 12:01."
    assert [one.digest == two.digest for one, two in zip(first.layers, second.layers)] == [  # noqa: B905
        *(True, True, True, False)
    ]


async def test_what_there_is_not_is_named(client, runtime):
    with pytest.raises(UnknownSession, match="'nope'"):
        await client.context("nope")
    await client.create_session("s")
    with pytest.raises(UsageError, match="'s' has taken no step yet; send it a message"):
        await client.context("s")
    await compose(runtime, "s", "01")
    with pytest.raises(UsageError, match=r"has no step 7 of turn 1; 'everturn sessions show s'"):
        await client.context("s", 1, 7)
