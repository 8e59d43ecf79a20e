"""The routes of knowledge: which folders are searched, and what is found in them."""

import asyncio
import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request

from everturn.errors import UsageError
from everturn.inputs import checked_id, checked_text
from everturn.views import KnowledgePage, KnowledgeView, NewKnowledge, PassagePage, Removed
from everturn_workers.doors.parts import Parts, authorize, folder, workspace_of

Workspace = Annotated[str | None, Query(alias="workspace")]


def add_knowledge(routes: APIRouter, parts: Parts) -> None:
    library = parts.library

    async def workspace(named: str | None) -> str:
        return str(await asyncio.to_thread(workspace_of, parts, named))

    @routes.post("/knowledge", status_code=202)
    async def add_folder(request: Request, body: NewKnowledge) -> KnowledgeView:
        """Have a folder searched; it is read from now on, and again when it changes."""
        place = await asyncio.to_thread(lambda: folder("folder", Path(body.folder)).resolve())
        name = checked_id(body.name or name_of(place), "name of knowledge")
        return await library.add(
            authorize(request), await workspace(body.workspace), name, str(place)
        )

    @routes.get("/knowledge")
    async def list_knowledge(request: Request, workspace_: Workspace = None) -> KnowledgePage:
        found = await library.list(authorize(request), await workspace(workspace_))
        return KnowledgePage(bases=tuple(found))

    @routes.get("/knowledge/query")
    async def query_knowledge(
        request: Request,
        q: Annotated[str, Query()],
        name: Annotated[str | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=50)] = 5,
        workspace_: Workspace = None,
    ) -> PassagePage:
        """The passages that fit best, of one folder or of all of the workspace's."""
        text = checked_text(q, "query")
        answer = await library.query(
            authorize(request), await workspace(workspace_), text, limit, name
        )
        return PassagePage(passages=answer.passages, notes=answer.notes)

    @routes.delete("/knowledge")
    async def remove_folder(
        request: Request, name: Annotated[str, Query()], workspace_: Workspace = None
    ) -> Removed:
        """Search a folder no more; its files stay where they are."""
        await library.remove(authorize(request), await workspace(workspace_), name)
        return Removed(name=name)


def name_of(place: Path) -> str:
    """A folder's own name as a name of knowledge."""
    made = re.sub(r"[^A-Za-z0-9._-]+", "-", place.name).strip("-.")
    if not made:
        raise UsageError(f"The folder {place} has no name that could be used; send 'name'.")
    return made
