"""The routes of memory: what is remembered, by whom it is read and changed."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request

from everturn.errors import UsageError
from everturn.inputs import checked_id, checked_text
from everturn.memory import SCOPES, USER, FactScope, MemoryPlace, checked_fact, place
from everturn.views import FactPage, FactView, Forgotten, NewFact
from everturn_workers.doors.parts import Parts, authorize, id_of, key_of, workspace_of

Session = Annotated[str | None, Query()]
Workspace = Annotated[str | None, Query()]
User = Annotated[str | None, Query()]


def add_memory(routes: APIRouter, parts: Parts) -> None:
    memories = parts.memories

    async def place_of(
        request: Request,
        scope: FactScope,
        session: str | None,
        workspace: str | None,
        user: str | None,
    ) -> MemoryPlace:
        if (scope == "session") != (session is not None):
            raise UsageError("A fact of scope 'session' names its 'session', and no other does.")
        if scope != "user" and user is not None:
            raise UsageError("Only a fact of scope 'user' names a 'user'.")
        named = ""
        if session is not None:
            named = (await parts.store.session(key_of(request, session))).id
        folder = ""
        if scope == "project":
            folder = str(await asyncio.to_thread(workspace_of, parts, workspace))
        of = USER if user is None else checked_id(user, "user")
        return place(scope, authorize(request), named, folder, of)

    @routes.get("/memory")
    async def read_memory(
        request: Request,
        scope: Annotated[FactScope | None, Query()] = None,
        session: Session = None,
        workspace: Workspace = None,
        user: User = None,
        replaced: Annotated[bool, Query()] = False,
    ) -> FactPage:
        """The facts in force of a scope, or of all that a turn of the session would read.

        `replaced` adds those that a consolidation has put others in the place of.
        """
        if scope is not None:
            places = [await place_of(request, scope, session, workspace, user)]
        else:
            if session is not None:
                view = await parts.store.session(key_of(request, session))
                workspace, user = workspace or view.workspace, user or view.user
            places = [
                await place_of(
                    request,
                    one,
                    session if one == "session" else None,
                    workspace,
                    user if one == "user" else None,
                )
                for one in SCOPES
                if one != "session" or session is not None
            ]
        found = await (memories.all_facts(places) if replaced else memories.facts(places))
        return FactPage(facts=tuple(found))

    @routes.post("/memory", status_code=201)
    async def add_fact(request: Request, body: NewFact) -> FactView:
        """Remember a fact; the same `id`, or the same text, answers with the one there is."""
        name = id_of(body.id, "fact id")
        text = checked_fact(checked_text(body.text, "fact"))
        at = await place_of(request, body.scope, body.session, body.workspace, body.user)
        return await memories.save(at, text, f"by-hand/{name}", None)

    @routes.delete("/memory")
    async def forget_fact(
        request: Request,
        scope: Annotated[FactScope, Query()],
        fact: Annotated[int, Query(ge=1, le=2**31)],
        session: Session = None,
        workspace: Workspace = None,
        user: User = None,
    ) -> Forgotten:
        """Forget a fact for good, with all that it stands for."""
        at = await place_of(request, scope, session, workspace, user)
        await memories.forget(at, fact)
        return Forgotten(fact=fact)
