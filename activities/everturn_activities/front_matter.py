"""Front matter: the keys above a Markdown text, as YAML between `---` or TOML between `+++`."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

BYTES_MAX = 64 * 1024
_DEPTH_MAX = 20

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BEGINS = re.compile(r"(---|\+\+\+)[ \t]*\r?\n")
_ENDS = {
    "---": re.compile(r"^---[ \t]*\r?$\n?", re.MULTILINE),
    "+++": re.compile(r"^\+\+\+[ \t]*\r?$\n?", re.MULTILINE),
}


class FrontMatterError(Exception):
    """What is wrong with a front matter, as the end of a sentence, and in which line."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True)
class FrontMatter:
    """`raw` has the lines of the file up to the front matter's end, so that lines agree."""

    keys: dict[str, Any]
    body: str
    raw: str


def parse(text: str) -> FrontMatter:
    """The front matter of `text` and what stands below it. Raises FrontMatterError."""
    begins = _BEGINS.match(text)
    if begins is None:
        return FrontMatter({}, text.strip(), "")
    mark = begins[1]
    ends = _ENDS[mark].search(text, begins.end())
    if ends is None:
        raise FrontMatterError(
            f"begins a front matter in line 1 that no line '{mark}' ends; add one"
        )
    raw = text[begins.end() : ends.start()]
    if len(raw.encode("utf-8", "replace")) > BYTES_MAX:
        raise FrontMatterError(
            f"has a front matter of more than {BYTES_MAX:,} bytes; shorten it", 1
        )
    keys = _yaml(raw) if mark == "---" else _toml(raw)
    return FrontMatter(keys, text[ends.end() :].strip(), "\n" + raw)


def _yaml(raw: str) -> dict[str, Any]:
    try:
        _demand_plain(raw)
        keys = yaml.load(raw, _Loader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        text = f"is not valid YAML: {error.problem}; mend it, and put values with a colon in quotes"
        raise FrontMatterError(text, mark.line + 2 if mark is not None else None) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        first = (str(error).splitlines() or ["nested too deeply"])[0]
        raise FrontMatterError(f"has no valid YAML front matter: {first}; mend it") from None
    if keys is None:
        return {}
    if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys):
        raise FrontMatterError("must be keys and values, such as 'name: value'", 2)
    return keys


def _demand_plain(raw: str) -> None:
    """Refuse aliases, which a few lines of could stand for gigabytes, and endless nesting."""
    depth = 0
    events: Iterator[Any] = yaml.parse(raw, _Loader)
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise FrontMatterError(
                f"uses the YAML alias '*{event.anchor}', and aliases are not read; write the"
                " value itself",
                _line(event),
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEPTH_MAX:
                raise FrontMatterError(
                    f"nests its front matter deeper than {_DEPTH_MAX} levels; flatten it",
                    _line(event),
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(event: yaml.Event) -> int | None:
    return None if event.start_mark is None else int(event.start_mark.line) + 2


def _toml(raw: str) -> dict[str, Any]:
    try:
        return tomllib.loads(raw)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at line (\d+)", str(error))
        line = int(found[1]) + 1 if found else None
        text = str(error).split(" (at ")[0]
        raise FrontMatterError(f"is not valid TOML: {text}; mend it there", line) from None
    except RecursionError:
        raise FrontMatterError("nests its front matter too deeply; flatten it") from None
