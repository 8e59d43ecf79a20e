"""Messages that an agent sends to itself later: schedules of its own session."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from everturn.errors import ToolFailed, UsageError
from everturn.inputs import checked_text
from everturn.schedules import Definition, checked_name, seconds_of, when
from everturn.tools import CRON, tool
from everturn_activities.builtin.inside import InsideContext, Schedules
from everturn_activities.cron import coming

PROMPT_CHARACTERS = 20_000


def previewed(
    context: InsideContext,
    action: str,
    name: str = "",
    prompt: str = "",
    cron: str = "",
    every: str = "",
    time_zone: str = "UTC",
    runs_max: int | None = None,
) -> str:
    """What a person reads who is asked for leave."""
    if action != "add":
        return f"{action} {name}"
    try:
        definition = _definition(context, prompt, cron, every, time_zone, runs_max)
    except UsageError as error:
        return str(error)
    often = f", {runs_max} times at most" if runs_max is not None else ", until it is removed"
    return f"Schedule {name} of this session: {when(definition)}{often}. It says: {prompt}"


# Adding the same again changes nothing, and neither does removing what is gone.
@tool(name=CRON, effect="idempotent", quick=True, requires_approval=True, preview=previewed)
async def _cron(
    action: Annotated[
        Literal["add", "list", "remove"], Field(description="A person decides about each 'add'.")
    ],
    context: InsideContext,
    name: Annotated[str, Field(description="The schedule's name, such as daily-report.")] = "",
    prompt: Annotated[
        str,
        Field(
            max_length=PROMPT_CHARACTERS,
            description="What you are to be told then: it starts a turn in this session.",
        ),
    ] = "",
    cron: Annotated[str, Field(description="When, as five fields: '0 9 * * MON-FRI'.")] = "",
    every: Annotated[str, Field(description="Or each so often, such as 30m, 2h, 1d.")] = "",
    time_zone: Annotated[str, Field(description="Whose clocks, such as Europe/Berlin.")] = "UTC",
    runs_max: Annotated[int | None, Field(ge=1, description="After so many times it ends.")] = None,
) -> str:
    """Have yourself reminded: a message to this session at set times, also long after this turn.

    Without `runs_max` it goes on until it is removed.
    """
    schedules = context.services.schedules
    if schedules is None:
        raise ToolFailed("This worker keeps no schedules.")
    try:
        match action:
            case "add":
                given = _definition(context, prompt, cron, every, time_zone, runs_max)
                view, _ = await schedules.add(context.tenant, checked_name(name), given)
                return f"Schedule {name} is set. {coming(view)}"
            case "list":
                return await _listed(schedules, context)
            case "remove":
                await schedules.remove_own(context.tenant, checked_name(name), context.session)
                return f"Schedule {name} is removed."
    except UsageError as error:
        raise ToolFailed(str(error)) from None


cron = replace(_cron, asks_only={"action": "add"})


def _definition(
    context: InsideContext,
    prompt: str,
    cron: str,
    every: str,
    time_zone: str,
    runs_max: int | None,
) -> Definition:
    """Raises UsageError with what the model may mend."""
    try:
        return Definition(
            prompt=checked_text(prompt, "prompt"),
            cron=(cron,) if cron.strip() else (),
            every_seconds=seconds_of(every) if every.strip() else None,
            time_zone=time_zone,
            runs_max=runs_max,
            session=context.session,
            made_by=context.session,
        )
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(said.replace("every_seconds", "every")) from None


async def _listed(schedules: Schedules, context: InsideContext) -> str:
    found = await schedules.schedules(context.tenant, context.session)
    lines = []
    for one in found:
        who = "by you" if one.made_by == context.session else "by a person"
        lines.append(f"{one.name} ({one.status}, set {who}): {when(one)}. {coming(one)}")
        lines.append(f"  {one.prompt}")
    return "\n".join(lines) or "This session has no schedule."
