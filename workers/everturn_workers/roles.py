"""What a worker does: the classes of work that it takes."""

from typing import Literal, get_args

from everturn.errors import UsageError

Role = Literal["turns", "models", "tools"]
"""`turns`: the workflows, what is inline of their steps, and the duties that make up for crashes.
`models`: calls of models that are not inline. `tools`: calls of tools, hooks, folders and MCP
servers."""

ROLES: tuple[Role, ...] = get_args(Role)


def read_roles(text: str) -> frozenset[Role]:
    """The roles in a list with commas. Raises UsageError for a name that is none, or an empty
    list."""
    named = {name.strip() for name in text.split(",") if name.strip()}
    roles = frozenset(role for role in ROLES if role in named)
    if not roles or named - roles:
        wrong = ", ".join(sorted(named - roles)) or "nothing"
        raise UsageError(
            f"The roles of a worker are {', '.join(ROLES)}, or some of them with commas between;"
            f" {wrong} is none of them: mend --roles or EVERTURN_ROLES."
        )
    return roles
