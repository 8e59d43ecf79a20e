"""What every request of an agent takes of its model's window, counted once for each spec."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import orjson

import everturn.context.window as windows
from everturn.agents import AgentSpec
from everturn.context.manifest import Manifest
from everturn.context.window import WINDOW_TOKENS, Frame
from everturn_activities.gateways.wire import wire_tool

KEPT = 512


class Frames:
    """`count` gives the tokens of a text for a model, `exact` whether that model would count so,
    `window_of` the model's window, if it is known."""

    def __init__(
        self,
        count: Callable[[str, str], int],
        window_of: Callable[[str], int | None],
        exact: Callable[[str], bool],
    ) -> None:
        self._count = count
        self._exact = exact
        self._window_of = window_of
        self._made: OrderedDict[tuple[str, str], Frame] = OrderedDict()

    def of(self, spec: AgentSpec, manifest: Manifest, model: str | None = None) -> Frame:
        """The frame of the agent's requests to `model`, by default its own, with the prompt
        of `manifest`."""
        key = (spec.hash, model or spec.agent.model)
        made = self._made.get(key)
        if made is None:
            made = self._frame(spec, key[1])
        if (made.system, made.ack) != (manifest.tokens, manifest.ack):
            made = replace(made, system=manifest.tokens, ack=manifest.ack)
        self._made[key] = made
        if len(self._made) > KEPT:
            self._made.popitem(last=False)
        return made

    def window(self, spec: AgentSpec, model: str) -> int:
        """What the agent says of its own model's window, else what the table knows."""
        own = spec.agent.window_tokens if model == spec.agent.model else None
        return own or self._window_of(model) or WINDOW_TOKENS

    def _frame(self, spec: AgentSpec, model: str) -> Frame:
        agent = spec.agent
        window = self.window(spec, model)
        return Frame(
            window=window,
            tools=sum(
                self._count(orjson.dumps(wire_tool(tool)).decode(), model) for tool in spec.tools
            ),
            generation=_kept_free(spec, window),
            compaction=agent.compaction,
            tool_result_budget=agent.tool_result_budget,
            history=spec.history,
            estimated=not self._exact(model),
        )


def _kept_free(spec: AgentSpec, window: int) -> int:
    said = spec.history.reserve_generation
    return windows.reserved(window, spec.agent.tokens_max) if said is None else min(said, window)
