"""Executors: turns on sessions of their own, to which a turn hands work."""

import hashlib

from pydantic import Field

from everturn.inputs import ID_CHARACTERS_MAX
from everturn.messages import Frozen
from everturn.session import OutcomeKind
from everturn.tools import Access

REPORT_BYTES = 4_000
"""Of what an executor reports, in its parent's context: the whole can be read on."""


class ExecutorRules(Frozen):
    """What an executor's turns are held to, beside what its own agent says.

    `level` is one more than its parent's. It sees none of the tools `minus_tools`, has at most
    the `access` of its parent, and takes `steps_max` steps at most.
    """

    level: int = Field(ge=1)
    access: Access = "full"
    minus_tools: tuple[str, ...] = ()
    steps_max: int | None = None


class Delegation(Frozen):
    """A call of `delegate`, as it was checked: `executor` is the session that works it.

    `tail` is how many of the parent's last messages a new executor is shown first. `reads_on`:
    the parent has a tool that shows the rest of a report that is cut.
    """

    index: int
    executor: str
    task: str
    agent: str
    rules: ExecutorRules
    model: str | None = None
    background: bool = False
    tail: int = 0
    reads_on: bool = False


class ExecutorReport(Frozen):
    """What came of a task: `text` is the executor's answer, or the last that it said."""

    outcome: OutcomeKind
    reason: str | None = None
    text: str = ""
    steps: int = 0
    cost_usd: float | None = None

    @property
    def done(self) -> bool:
        return self.outcome == "completed"


def executor_name(parent: str, turn: int, step: int, index: int) -> str:
    """The session of the executor that a call begins: the same for every attempt of it."""
    call = f":{turn}.{step}.{index}"
    if len(parent) + len(call) > ID_CHARACTERS_MAX:
        parent = hashlib.sha256(parent.encode()).hexdigest()[:16]
    return parent + call


def works_on(executor: str) -> str:
    """What a call is answered whose executor is not waited for."""
    return (
        f"Executor {executor} works on it in the background. Its report comes as a message;"
        " do not wait for it."
    )


def came_back(executor: str, report: ExecutorReport) -> str:
    """What the parent's model is told of a task that ended."""
    if report.done:
        return f"Executor {executor} has done its work:\n\n{report.text or '(It said nothing.)'}"
    because = f": {report.reason.rstrip('.')}." if report.reason else "."
    said = f" It had said:\n\n{report.text}" if report.text else ""
    return f"Executor {executor} ended as {report.outcome}{because}{said}"


def narrower(one: Access, other: Access) -> Access:
    """What both allow."""
    order: tuple[Access, ...] = ("search-only", "read-only", "full")
    return min(one, other, key=order.index)
