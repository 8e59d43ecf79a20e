"""Looking things up in the folders that a person has added as knowledge."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed, UsageError
from everturn.tools import tool
from everturn.views import PassageView
from everturn_activities.builtin.inside import InsideContext

PASSAGES_MAX = 20


@tool(effect="pure", searches=True, timeout_seconds=60.0)
async def knowledge_query(
    query: Annotated[str, Field(min_length=1, description="What to look for, in a few words.")],
    context: InsideContext,
    knowledge: Annotated[
        str | None, Field(description="In which knowledge, by its name; by default in all.")
    ] = None,
    limit: Annotated[int, Field(ge=1, le=PASSAGES_MAX, description="Passages at most.")] = 5,
) -> str:
    """Search the indexed documents for passages; each comes with its file and lines."""
    library = context.services.library
    if library is None:
        raise ToolFailed("This worker has no index of knowledge.")
    try:
        answer = await library.query(
            context.tenant, context.spec.workspace, query, limit, knowledge
        )
    except UsageError as error:
        raise ToolFailed(str(error)) from None
    parts = [_written(passage, context.working_dir) for passage in answer.passages]
    if not parts:
        parts = ["No passage matches; try other words."]
    return "\n\n".join([*parts, *(f"[{note}]" for note in answer.notes)])


def _written(passage: PassageView, working_dir: Path) -> str:
    """The passage below its place: a path that read_file takes, where the file can be read."""
    place = f"{passage.base}: {passage.path}"
    with suppress(ValueError):
        place = str((Path(passage.folder) / passage.path).relative_to(working_dir))
    under = f" under {passage.heading}" if passage.heading else ""
    return f"{place} lines {passage.first}-{passage.last}{under}\n{passage.text}"
