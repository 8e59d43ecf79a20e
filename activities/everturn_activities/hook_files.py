"""The files that hooks are made of: an agent that could write them would decide what runs."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from everturn.hooks import Hook, Hooks
from everturn_activities.sandbox import INSIDE

_RUNS_A_FILE = re.compile(
    r"(?:ba|da|z|k|a)?sh|(?:python|pypy|node|perl|ruby|php|lua|deno|bun)[0-9.]*|\.|source"
)
_TEXT = ("-c", "-e", "-r", "-p", "--eval", "--print")
_RUNS_ANOTHER = frozenset(
    {"command", "env", "exec", "nice", "nohup", "setsid", "stdbuf", "sudo", "time", "timeout"}
    | {"!", "{", "do", "elif", "else", "if", "then", "until", "while"}
)


def hook_files(hooks: Hooks, working_dir: Path) -> tuple[Path, ...]:
    """The programs and scripts of the working folder that commands of hooks name.

    Links do not count, for commands could not run beside one that is protected; and what a
    program reads by itself cannot be known.
    """
    root = working_dir.resolve()
    found: dict[Path, None] = {}
    for hook in hooks.all:

        def place(word: str, hook: Hook = hook) -> Path:
            return Path(os.path.normpath(_place(root, hook, word)))

        for word in _run_by(hook.command, lambda word: place(word).is_file()):
            path = place(word)
            if not path.is_relative_to(root) or path.resolve() != path:
                continue
            # One that is not there yet must not be put there by an agent.
            if path.is_file() or ("/" in word and not path.exists()):
                found[path] = None
    return tuple(found)


def _run_by(command: Sequence[str], is_file: Callable[[str], bool]) -> Iterator[str]:
    """What a command line runs that may be a file."""
    another = False
    for at, program in enumerate(command):
        name = os.path.basename(program)
        if name in _RUNS_ANOTHER:
            another = True
        elif "=" in program or (another and (program[:1].isdigit() or program.startswith("-"))):
            # `env A=1 timeout -k 5 10s program`: what is set and asked for comes first.
            continue
        else:
            yield program
            if _RUNS_A_FILE.fullmatch(name):
                yield from _scripts(name, command[at + 1 :], is_file)
            return


def _scripts(program: str, words: Sequence[str], is_file: Callable[[str], bool]) -> Iterator[str]:
    """What an interpreter is told to run; words before that may belong to its options."""
    of_shell, option = program.endswith("sh"), ""
    for word in words:
        if of_shell and re.fullmatch(r"-[a-zA-Z]*c", option):
            yield from _run_by_text(word, is_file)
            return
        if option in _TEXT and not of_shell:
            # A text in a language that is not looked into.
            return
        if option == "-m":
            module = word.replace(".", "/")
            yield from filter(is_file, (f"{module}.py", f"{module}/__main__.py"))
            return
        if word.startswith("-"):
            option = word
            continue
        yield word
        if is_file(word) or "/" in word:
            return


def _run_by_text(text: str, is_file: Callable[[str], bool]) -> Iterator[str]:
    """The same of each command of a text for `sh`."""
    lexer = shlex.shlex(text.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    # A quote without its end: sh will say so.
    with suppress(ValueError):
        for word in lexer:
            if set(word) <= set("();|&"):
                commands.append([])
            else:
                commands[-1].append(word)
    folder = ""
    for command in commands:
        if command[:1] == ["cd"] and len(command) == 2:
            folder = os.path.join(folder, command[1])
            continue

        def is_there(word: str, folder: str = folder) -> bool:
            return is_file(os.path.join(folder, word))

        for word in _run_by(command, is_there):
            # A program's bare name is looked for elsewhere.
            if "/" in word or is_there(word):
                yield os.path.join(folder, word)


def _place(root: Path, hook: Hook, word: str) -> Path:
    inside = f"{INSIDE}/"
    if word.startswith(inside):
        return root / word.removeprefix(inside)
    return root / (hook.cwd or "") / word
