"""Asking a person."""

from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.tools import ASK_USER, tool

QUESTION_CHARACTERS = 4_000
CHOICES_MAX = 20


@tool(name=ASK_USER, effect="pure", quick=True)
def ask_user(
    question: Annotated[str, Field(min_length=1, max_length=QUESTION_CHARACTERS)],
    choices: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=500)]],
        Field(max_length=CHOICES_MAX, description="Answers to choose from, if there are such."),
    ] = [],  # noqa: B006 - it becomes the schema's default
) -> str:
    """Ask the user a question, and wait for the answer, which may take long.

    Ask where only they can know or decide, and not for what a tool can find out.
    """
    # A person's answer takes the place of this.
    raise ToolFailed("Nobody can be asked here.")
