"""Settings as they may be shown: what is in force, masked, and where each comes from."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from everturn_workers.settings import Settings, Unset, sources
from everturn_workers.settings_secrets import masked, masked_url, variable

DEFAULT = "the default"


@dataclass(frozen=True)
class Shown:
    """`value` is JSON of the setting, masked; None where it is not set, `unset` says what holds."""

    name: str
    value: Any
    unset: str | None
    sources: tuple[str, ...]

    @property
    def text(self) -> str:
        if self.value is None:
            return f"({self.unset or 'none'})"
        return self.value if isinstance(self.value, str) else json.dumps(self.value)


def shown(settings: Settings, **flags: object) -> list[Shown]:
    """Every setting, in the order in which they are defined."""
    places = sources(**flags)
    plain = settings.model_dump(mode="json")
    found = []
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            told: Any = masked(name, value.get_secret_value())
        elif isinstance(value, str) and name.endswith("_url"):
            told = masked_url(value)
        else:
            told = plain[name]
        found.append(Shown(name, told, unset(name), tuple(places[name]) or (DEFAULT,)))
    return found


def unset(name: str) -> str | None:
    """What holds where the setting is not set, where words say it better than its default."""
    marks = Settings.model_fields[name].metadata
    return next((mark.words for mark in marks if isinstance(mark, Unset)), None)


def described() -> list[tuple[str, str, str]]:
    """Of every setting its variable, its default in words, and what it is."""
    rows = []
    for name, field in Settings.model_fields.items():
        words = unset(name)
        if words is None:
            default = field.get_default(call_default_factory=True)
            words = "none" if default is None or field.examples else f"`{_plain(default)}`"
        rows.append((variable(name), words, field.description or ""))
    return rows


def _plain(value: object) -> str:
    """As it is written in a variable."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
