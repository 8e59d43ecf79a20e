"""Handing a piece of work to an executor: another agent with a context of its own."""

from typing import Annotated

from pydantic import Field

from everturn.tools import DELEGATE, tool


@tool(name=DELEGATE)
def delegate(
    task: Annotated[
        str,
        Field(
            min_length=1,
            max_length=100_000,
            description="All that it must know: it sees nothing of this conversation.",
        ),
    ],
    agent: Annotated[
        str | None, Field(description="Which agent it is; without it, one like you.")
    ] = None,
    executor: Annotated[
        str | None, Field(description="An executor of yours that is to go on, by its name.")
    ] = None,
    background: Annotated[
        bool, Field(description="Do not wait: its report comes later as a message.")
    ] = False,
) -> str:
    """Hand a piece of work to an executor, and get its report.

    Several calls in one reply are worked side by side.
    """
    # No worker runs it: the loop hands its calls to sessions (`begin_executors`).
    raise NotImplementedError
