"""Where the items of layers come from."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from everturn.agents import AgentSpec
from everturn.context.layers import Item
from everturn.profile import Layer
from everturn.session import SessionKey


@dataclass(frozen=True)
class Asked:
    """For which step of whom a layer is gathered. `at` is when the step was prepared, in seconds
    since 1970; `warn` tells watchers of what could not be used, and why."""

    spec: AgentSpec
    key: SessionKey
    turn: int
    step: int
    at: float
    layer: Layer
    warn: Callable[[str], None]


Source = Callable[[Asked], Awaitable[Sequence[Item]]]
"""Gives a layer's items, none where it has nothing to tell; keeps what has not changed.

It is asked once for each time that its layer's scope begins, so a step's layers are asked for
each step. What it cannot read it warns of, and gives the rest.
"""

Sources = Mapping[str, Source]
"""The sources that there are, by the names that layers know them by."""
