"""Gathering: the texts that a step's prompt is composed of, each for as long as it stands.

A text is written once for the session, the turn or the step that its layer's scope names,
and recorded with the step. A step that is made again, in whichever process, is composed of
what is recorded, whatever its sources say by then.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import time

from everturn.agents import Agent, AgentSpec
from everturn.context.layers import render
from everturn.context.manifest import Manifest, Written, digest_of
from everturn.errors import EverturnError
from everturn.messages import without_lone_surrogates
from everturn.profile import Layer
from everturn.session import ContextHead, SessionKey
from everturn_activities.bounded import Bounded
from everturn_activities.sources import Asked, Sources
from everturn_activities.store import Snapshot, StepLayers, Store
from everturn_activities.tokens import MESSAGE_TOKENS

TURNS_KEPT = 512
SNAPSHOTS_KEPT = 512
DIGESTS_KEPT = 16_384
CHARACTERS_KEPT = 64_000_000
"""Of each of what is kept; equal texts are one string."""

INLINE_CHARACTERS_MAX = 20_000
"""A longer text is counted in a thread, so that other steps go on."""

WARNING_CHARACTERS_MAX = 500

log = logging.getLogger(__name__)


@dataclass
class _Standing:
    """The texts of a turn that stand for all of its steps, by layer, since they were gathered
    for `step` and once that is `recorded`. `steps` has those of the newest step. `pins` are
    texts of the session that are not recorded yet."""

    turn: int
    texts: dict[str, str]
    step: int
    recorded: bool = False
    steps: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    made: Snapshot | None = None
    told: set[str] = field(default_factory=set)
    untold: list[str] = field(default_factory=list)


class Gatherer:
    """`count` gives the tokens of a text for a model; `left_out` what a turn is told of settings
    that its agent's model has not. `clean` takes out of a layer what no model may be told."""

    def __init__(
        self,
        store: Store,
        sources: Sources,
        count: Callable[[str, str], int],
        clock: Callable[[], float] = time,
        left_out: Callable[[Agent], str | None] = lambda agent: None,
        clean: Callable[[str], str] = str,
        know: Callable[[AgentSpec], None] = lambda spec: None,
    ) -> None:
        self._store = store
        self._sources = sources
        self._count = count
        self._clock = clock
        self._left_out = left_out
        self._clean = clean
        self._know = know
        self._turns: Bounded[SessionKey, _Standing] = Bounded(TURNS_KEPT, CHARACTERS_KEPT)
        self._snapshots: Bounded[str, Snapshot] = Bounded(SNAPSHOTS_KEPT, CHARACTERS_KEPT)
        self._texts: Bounded[str, tuple[str, str]] = Bounded(DIGESTS_KEPT, CHARACTERS_KEPT)
        self._tokens: Bounded[tuple[str, str], int] = Bounded(DIGESTS_KEPT, 0)
        self._stored: Bounded[str, bool] = Bounded(DIGESTS_KEPT, 0)

    async def gather(self, key: SessionKey, turn: int, step: int, spec: AgentSpec) -> Snapshot:
        """What a step that is prepared now is composed of."""
        standing = self._turns.get(key)
        if (
            standing is None
            or standing.turn != turn
            # Another process may have prepared that step.
            or not (standing.recorded or standing.step == step)
        ):
            standing = await self._stand(key, turn, step, spec)
        recipe = spec.profile.recipe
        if standing.made is not None and not recipe.by_step:
            return standing.made
        changed = standing.made is None
        for layer in recipe.layers:
            if layer.scope == "step":
                text = await self._write(key, turn, step, spec, layer, standing)
                changed = changed or standing.steps.get(layer.id) != text
                standing.steps[layer.id] = text
            elif layer.id not in standing.texts:
                text = await self._write(key, turn, step, spec, layer, standing)
                standing.texts[layer.id] = text
                if layer.scope == "session":
                    standing.pins[layer.id] = text
        if changed or standing.made is None:
            standing.made = await self._snapshot(spec, {**standing.texts, **standing.steps})
            weight = sum(map(len, standing.made.texts.values()))
            self._turns.put(key, standing, weight)
        return standing.made

    def unrecorded(self, key: SessionKey, spec: AgentSpec, made: Snapshot) -> StepLayers:
        """What the transaction that prepares the step writes of it, besides its digest."""
        manifest = made.manifest
        standing = self._turns.get(key)
        pins = standing.pins if standing is not None else {}
        untold = standing.untold if standing is not None else []
        if not pins and not untold and self._stored.get(manifest.digest):
            return StepLayers(manifest.digest)
        bodies = {layer.digest: made.texts[layer.id] for layer in manifest.layers}
        bodies[manifest.digest] = manifest.body
        bodies |= {digest_of(text): text for text in pins.values() if text}
        pinned = {
            _pin(layer): digest_of(pins[layer.id]) if pins[layer.id] else ""
            for layer in spec.profile.recipe.pinned
            if layer.id in pins
        }
        return StepLayers(
            manifest.digest,
            {digest: body for digest, body in bodies.items() if not self._stored.get(digest)},
            spec.agent.name,
            pinned,
            tuple(untold),
        )

    def recorded(self, key: SessionKey, layers: StepLayers, context: ContextHead) -> None:
        """Take note of what is stored now. A step that was prepared before says of which texts;
        those stand for its turn."""
        if context.layers != layers.digest:
            self._turns.pop(key)
            return
        for digest in layers.bodies:
            self._stored.put(digest, True)
        standing = self._turns.get(key)
        if standing is not None and standing.turn == context.turn:
            standing.recorded = True
            standing.pins = {}
            standing.untold = []

    async def snapshot(self, digest: str) -> Snapshot:
        """What a prepared step is composed of."""
        known = self._snapshots.get(digest)
        if known is None:
            known = await self._store.snapshot(digest) if digest else Snapshot()
            self._keep(known)
        return known

    async def of_step(self, key: SessionKey, turn: int, step: int) -> Snapshot:
        """What a step is composed of, if it is prepared."""
        context = await self._store.prepared(key, turn, step)
        return await self.snapshot(context.layers if context is not None else "")

    async def _stand(self, key: SessionKey, turn: int, step: int, spec: AgentSpec) -> _Standing:
        """What stands for the turn already: since its first step, or since the session's."""
        # Texts are taken from files that may hold what no prompt may.
        self._know(spec)
        texts: dict[str, str] = {}
        before = await self._store.prepared(key, turn, step - 1) if step > 1 else None
        recipe = spec.profile.recipe
        if before is not None and before.layers:
            made = await self.snapshot(before.layers)
            texts = {
                layer.id: made.texts.get(layer.id, "")
                for layer in recipe.layers
                if layer.scope != "step"
            }
        elif recipe.pinned:
            pinned = await self._store.session_layers(key, spec.agent.name)
            texts = {
                layer.id: self._known(pinned[_pin(layer)])[0]
                for layer in recipe.pinned
                if _pin(layer) in pinned
            }
        standing = _Standing(turn, texts, step)
        if step == 1 and (note := self._left_out(spec.agent)) is not None:
            standing.untold.append(note)
        self._turns.put(key, standing)
        return standing

    async def _write(
        self,
        key: SessionKey,
        turn: int,
        step: int,
        spec: AgentSpec,
        layer: Layer,
        standing: _Standing,
    ) -> str:
        def warn(text: str) -> None:
            text = text[:WARNING_CHARACTERS_MAX]
            if text not in standing.told:
                standing.told.add(text)
                standing.untold.append(text)

        source = self._sources.get(layer.source)
        if source is None:
            warn(f"Layer {layer.id!r} has an unknown source, {layer.source!r}, and is left out.")
            return ""
        try:
            asked = Asked(spec, key, turn, step, self._clock(), layer, warn)
            text = self._clean(render(layer, await source(asked)))
        except (EverturnError, OSError) as error:
            warn(f"Layer {layer.id!r} is left out: {error}")
            return ""
        return without_lone_surrogates(text) if not text.isascii() else text

    async def _snapshot(self, spec: AgentSpec, texts: Mapping[str, str]) -> Snapshot:
        recipe, model = spec.profile.recipe, spec.agent.model
        written = []
        for layer in recipe.layers:
            text = texts.get(layer.id, "")
            if text:
                digest = self._known(text)[1]
                written.append(Written(layer.id, digest, await self._counted(text, digest, model)))
        separator = await self._counted(recipe.separator, recipe.separator, model)
        ack = await self._counted(recipe.ack, recipe.ack, model)
        paired = recipe.mode == "pair"
        manifest = Manifest(
            tuple(written),
            separator * max(0, len(written) - 1) + paired * MESSAGE_TOKENS,
            ack + MESSAGE_TOKENS if paired else 0,
        )
        made = Snapshot(manifest, {layer.id: self._known(texts[layer.id])[0] for layer in written})
        self._keep(made)
        return made

    async def _counted(self, text: str, digest: str, model: str) -> int:
        known = self._tokens.get((digest, model))
        if known is None:
            if len(text) > INLINE_CHARACTERS_MAX:
                known = await asyncio.to_thread(self._count, text, model)
            else:
                known = self._count(text, model)
            self._tokens.put((digest, model), known)
        return known

    def _known(self, text: str) -> tuple[str, str]:
        """`text` as the one string that this process keeps of it, and its digest."""
        known = self._texts.get(text)
        if known is None:
            known = (text, digest_of(text))
            self._texts.put(text, known, len(text))
        return known

    def _keep(self, made: Snapshot) -> None:
        weight = sum(map(len, made.texts.values()))
        self._snapshots.put(made.manifest.digest, made, weight)


def _pin(layer: Layer) -> str:
    """What a session's text is kept under: a layer that is written otherwise is another."""
    return f"{layer.id}/{digest_of(layer.model_dump_json())[:16]}"
