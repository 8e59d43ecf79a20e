"""What every request of an agent takes of its model's window, counted once for each spec."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import orjson

import everturn.context.window as windows
from everturn.agents import AgentSpec, ToolSpec
from everturn.context.compose import Context
from everturn.context.manifest import Manifest
from everturn.context.window import WINDOW_TOKENS, Frame
from everturn.errors import ContextOverflow
from everturn.session import ContextHead
from everturn_activities import tokens
from everturn_activities.gateways.wire import wire_tool

KEPT = 512


def demand_room(context: ContextHead, composed: Context) -> None:
    """Raise ContextOverflow where a request exceeds its model's window by the model's own count.

    Stored messages are measured with one encoding for all models: near for those whose own is
    not known, while one that is known and other counts some languages at twice as much.
    """
    if context.sections is None or not tokens.has_other_encoding(composed.model):
        return
    model, sections = composed.model, context.sections
    counted = tokens.count_text(composed.system, model)
    counted += sum(tokens.count_message(message, model) for message in composed.messages)
    counted += sum(_count_tool(tool, model) for tool in composed.tools)
    if counted + sections.generation > sections.window:
        raise ContextOverflow(
            f"The request takes {counted:,} tokens as {model} counts, beside"
            f" {sections.generation:,} for the reply, and its window has {sections.window:,}."
        )


def _count_tool(tool: ToolSpec, model: str) -> int:
    return tokens.count_text(orjson.dumps(wire_tool(tool)).decode(), model)


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
