"""Code: what a file defines, and where a name is defined and used, by its syntax."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["definition", "reference"]


@dataclass(frozen=True)
class Symbol:
    """A name in a file. `what` is function, class and so on, or how the name is used; `line`
    counts from 1, `last` is where a definition ends, `within` names what it stands in."""

    name: str
    kind: Kind
    what: str
    line: int
    last: int
    within: str = ""
