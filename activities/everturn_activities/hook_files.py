"""The files that hooks are made of: an agent that could write them would decide what runs."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from everturn.hooks import Hook, Hooks
from everturn_activities.sandbox import INSIDE

_RUNS_A_FILE = frozenset({"sh", "bash", "dash", "python", "python3", "node", "perl", "ruby"})


def hook_files(hooks: Hooks, working_dir: Path) -> tuple[Path, ...]:
    """The programs and scripts of the working folder that commands of hooks name.

    Links do not count, for commands could not run beside one that is protected; and what a
    program reads by itself cannot be known.
    """
    root = working_dir.resolve()
    found: dict[Path, None] = {}
    for hook in hooks.all:
        for word in _run_by(hook.command):
            path = Path(os.path.normpath(_place(root, hook, word)))
            if not path.is_relative_to(root) or path.resolve() != path:
                continue
            # One that is not there yet must not be put there by an agent.
            if path.is_file() or ("/" in word and not path.exists()):
                found[path] = None
    return tuple(found)


def _run_by(command: Sequence[str]) -> Iterator[str]:
    """What a command line runs that may be a file."""
    words = iter(command)
    for program in words:
        # `env A=1 program` sets a variable first.
        if program == "env" or "=" in program:
            continue
        yield program
        if os.path.basename(program) in _RUNS_A_FILE:
            option = ""
            for word in words:
                if not word.startswith("-"):
                    yield from _run_by_text(word) if option == "-c" else (word,)
                    return
                option = word
        return


def _run_by_text(text: str) -> Iterator[str]:
    """The same of each command of a text for `sh`."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    try:
        for word in lexer:
            if not set(word) <= set("();|&"):
                command.append(word)
                continue
            yield from _run_by(command)
            command = []
    except ValueError:
        # A quote without its end: sh will say so.
        return
    yield from _run_by(command)


def _place(root: Path, hook: Hook, word: str) -> Path:
    inside = f"{INSIDE}/"
    if word.startswith(inside):
        return root / word.removeprefix(inside)
    return root / (hook.cwd or "") / word
