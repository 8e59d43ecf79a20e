"""The README's table of settings, made of their descriptions: `make settings`."""

import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from everturn_workers.cli.main import app
from everturn_workers.settings import secret_names
from everturn_workers.settings_secrets import FILE, PREFIX
from everturn_workers.settings_shown import described

BEGIN, END = "<!-- settings: made by `make settings` -->\n", "<!-- end of settings -->\n"


def table() -> str:
    """The rows in Markdown, as they stand between the marks."""
    lines = ["| Variable | Flag | Default | |", "|---|---|---|---|"]
    known = _flags(get_command(app))
    secrets = {PREFIX + name.upper() for name in secret_names()}
    for variable, default, meaning in described():
        flag = f"--{variable.removeprefix(PREFIX).lower().replace('_', '-')}"
        flag = f" `{flag}` |" if flag in known else " |"
        shown = f"`{variable}`" + (f", `{FILE}`" if variable in secrets else "")
        lines.append(f"| {shown} |{flag} {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def _flags(command: Any) -> set[str]:
    """The flags of a command, and of those below it."""
    below = getattr(command, "commands", {}).values()
    own = {flag for option in command.params for flag in option.opts}
    return own.union(*map(_flags, below))


def with_table(text: str) -> str:
    """`text` with the table as it should be between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    readme = Path(sys.argv[1])
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
