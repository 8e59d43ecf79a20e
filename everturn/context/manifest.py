"""Manifests: which texts a step's prompt is composed of, by digest."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Written(NamedTuple):
    """A layer that has something to tell: the digest of its text, and what that takes."""

    id: str
    digest: str
    tokens: int


@dataclass(frozen=True)
class Manifest:
    """The written layers in their order. `joints` is what the separators between them take,
    `ack` what the answer to a context message does."""

    layers: tuple[Written, ...] = ()
    joints: int = 0
    ack: int = 0

    @property
    def tokens(self) -> int:
        """What the prompt takes, without its ack."""
        return sum(layer.tokens for layer in self.layers) + self.joints

    @cached_property
    def body(self) -> str:
        """The manifest as it is stored."""
        return json.dumps({"layers": self.layers, "joints": self.joints, "ack": self.ack})

    @cached_property
    def digest(self) -> str:
        return digest_of(self.body)

    @classmethod
    def read(cls, body: str) -> "Manifest":
        made = json.loads(body)
        layers: Iterable[list[str | int]] = made["layers"]
        return cls(tuple(Written(*layer) for layer in layers), made["joints"], made["ack"])  # type: ignore[arg-type]


def digest_of(text: str) -> str:
    """Equal for equal texts, and only for those: SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()
