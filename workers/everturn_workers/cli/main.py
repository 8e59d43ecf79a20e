"""The command line: its commands, and what becomes of their errors."""

import os
import sys
from typing import NoReturn

import typer

from everturn.errors import EverturnError, UsageError
from everturn_workers.cli import (
    agents,
    approvals,
    budgets,
    checkpoints,
    config,
    context,
    diff,
    folders,
    forks,
    knowledge,
    mcp,
    memory,
    options,
    processes,
    profiles,
    schedules,
    secrets,
    sessions,
    skills,
    swarms,
    tasks,
    usage,
    webhooks,
    work,
    workers,
)
from everturn_workers.cli.options import PRECEDENCE

DONE, FAILED, USAGE, WAITING, PARTLY, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Exit codes: the turn completed, it failed, the command was wrong, it waits for a person,
some items of a swarm failed, Ctrl-C detached from it."""

app = typer.Typer(
    name="everturn",
    help="Agents whose turns survive any crash. Exit codes: 0 done, 1 failed, 2 usage,"
    f" 3 waiting for a person, 4 a part failed, 130 interrupted. Settings: {PRECEDENCE}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(options.before_command)
processes.add_to(app)
config.add_to(app)
work.add_to(app)
sessions.add_to(app)
context.add_to(app)
agents.add_to(app)
profiles.add_to(app)
skills.add_to(app)
approvals.add_to(app)
secrets.add_to(app)
budgets.add_to(app)
usage.add_to(app)
memory.add_to(app)
knowledge.add_to(app)
schedules.add_to(app)
folders.add_to(app)
forks.add_to(app)
diff.add_to(app)
checkpoints.add_to(app)
mcp.add_to(app)
tasks.add_to(app)
webhooks.add_to(app)
swarms.add_to(app)
workers.add_to(app)


def main() -> NoReturn:
    """Run the command of `sys.argv` and exit with its code.

    What a person can cause ends as one sentence on stderr.
    """
    try:
        code = app(standalone_mode=False)
        # What is buffered must meet a closed pipe here and not at the interpreter's end.
        sys.stdout.flush()
    except UsageError as error:
        code = _refused(str(error), USAGE)
    except EverturnError as error:
        code = _refused(str(error), FAILED)
    except typer.TyperException as error:
        told = error.format_message()
        # Of a group without a command it is the help itself.
        if "\n" not in told:
            told = f"{told.rstrip('.')}; see '{_command(error)} --help'."
        code = _refused(told, USAGE)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read us, such as `head`, has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    raise SystemExit(code)


def _refused(sentence: str, code: int) -> int:
    from everturn_workers.cli.show import printable

    if sentence:
        print(printable(sentence), file=sys.stderr)
    return code


def _command(error: typer.TyperException) -> str:
    """The command whose usage was wrong, as it was typed."""
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context is not None else "everturn"
