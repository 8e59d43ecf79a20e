"""Agents that are there without a file; a file of the same name takes their place."""

from collections.abc import Mapping
from typing import Any

DEFAULT_AGENT = "default"

PRESETS: Mapping[str, Mapping[str, Any]] = {
    DEFAULT_AGENT: {"description": "Works on the files of the working folder."},
    "build": {
        "description": "Implements: reads, writes, edits and runs what the task needs.",
        "color": "green",
        "prompt": (
            "You implement what you are asked for. Read what is there before you change it, make"
            " the smallest change that does the whole task, and check it by running what can be"
            " run. End with what you changed, and what you could not do."
        ),
    },
    "plan": {
        "description": "Reads and analyses, and plans without changing anything.",
        "color": "blue",
        "access": "read-only",
        "steps_max": 20,
        "prompt": (
            "You analyse and plan, and change nothing. Read until you know what the task touches."
            " End with a plan: the steps in their order, the files that each changes, and what"
            " could go wrong. Say which of it you saw, and which you assume."
        ),
    },
    "explore": {
        "description": "Finds things fast: where something stands, and what it says.",
        "color": "cyan",
        "access": "search-only",
        "steps_max": 15,
        "prompt": (
            "You find things. Search broadly at first, then read only what answers the question."
            " End with what you found: paths, lines, and the words that stand there. Say what you"
            " looked for and did not find."
        ),
    },
}
