"""The routes of forks: a session from any step of another."""

import asyncio
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request

from everturn.errors import UsageError
from everturn.folders import FolderKind
from everturn.forks import NUMBER_MAX, ForkSession, RewindSession
from everturn.inputs import checked_id, checked_text
from everturn.session import SessionKey
from everturn.trajectories import Difference, difference
from everturn.views import RewindUndoneView, RewoundView, SessionView, Undo
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Restored
from everturn_activities.folders import TAKEN_BACK
from everturn_activities.own_folders import beside, own_path
from everturn_activities.store import ForkFolder
from everturn_activities.workspace import protected_from_tools
from everturn_workers.doors.checkpoints import executors_below, kept_files
from everturn_workers.doors.homes import is_elsewhere, left_elsewhere
from everturn_workers.doors.parts import Name, Parts, id_of, key_of

LATER = (
    "Files are put back when the next turn begins, by a worker of the home with the id {home}: they"
    " are there."
)
_NO_FORK_BODY, _NO_UNDO_BODY = ForkSession(), Undo()


def add_forks(routes: APIRouter, parts: Parts) -> None:
    store, front, checkpoints = parts.store, parts.front, Checkpoints(parts.settings.home)

    @routes.post("/sessions/{id}/fork", status_code=201)
    async def fork_session(
        request: Request, session: Name, body: ForkSession = _NO_FORK_BODY
    ) -> SessionView:
        """A new session that begins with this one's messages up to a step; this one goes on."""
        key = key_of(request, session)
        view = await store.session(key)
        name = secrets.token_hex(8) if body.id is None else checked_id(body.id, "session id")
        made = SessionKey(key.tenant, name)
        _demand_sense(body)
        due = (await store.folder(key)).due
        folder = await asyncio.to_thread(_folder_of, parts, view, due, made, body)
        wake = await store.forks.fork(key, made, body, folder)
        if wake is not None:
            await front.wake(wake)
        return await store.session(made)

    @routes.get("/diff")
    async def compare_sessions(
        request: Request,
        a: Annotated[str, Query()],
        b: Annotated[str, Query()],
        turn: Annotated[int | None, Query(ge=1, le=NUMBER_MAX)] = None,
    ) -> Difference:
        """What two sessions did, step by step, and where they part."""
        one, two = (key_of(request, name) for name in (a, b))
        traces = [await store.forks.trajectory(key, turn) for key in (one, two)]
        return await asyncio.to_thread(difference, *traces)

    @routes.post("/sessions/{id}/rewind")
    async def rewind_session(request: Request, session: Name, body: RewindSession) -> RewoundView:
        """Take a session that rests back behind a step, and its files with it."""
        key = key_of(request, session)
        name = id_of(body.id, "rewind id")
        behind = (body.turn + 1, 0) if body.step is None else (body.turn, body.step + 1)
        await executors_below(parts, key, behind)
        rewound = await store.forks.rewind(key, body.turn, body.step, name)
        restored = await _restored(parts, checkpoints, key)
        return RewoundView(
            messages=rewound.messages,
            files=restored.files,
            kept=kept_files(restored),
            notes=restored.notes,
        )

    @routes.post("/sessions/{id}/rewind/undo")
    async def undo_rewind(
        request: Request, session: Name, body: Undo = _NO_UNDO_BODY
    ) -> RewindUndoneView:
        """Send again what the newest rewind left out; files stay as they are."""
        name = id_of(body.id, "undo id")
        undone = await store.forks.undo_rewind(key_of(request, session), name)
        return RewindUndoneView(first=undone.first, last=undone.last)


async def _restored(parts: Parts, checkpoints: Checkpoints, key: SessionKey) -> Restored:
    """Put the files back that are due to go back. The next turn does what is left of that where
    we do not come to its end."""
    folder = await parts.store.folder(key)
    since = (folder.restore_turn, folder.restore_step)
    if not folder.restore_turn:
        return Restored()
    if is_elsewhere(parts, folder.home):
        return Restored(notes=(LATER.format(home=folder.home),))
    view = await parts.store.session(key)
    protected = protected_from_tools(await parts.store.spec(key, view.turn))
    below = await executors_below(parts, key, since)
    name = f"rollback-{since[0]}.{since[1]}"
    until = (view.turn + 1, 0)
    restored = await asyncio.to_thread(
        checkpoints.restore, key, since, until, protected, name, below
    )
    notes = await left_elsewhere(parts, key, since[0], below)
    restored, told = replace(restored, notes=(*restored.notes, *notes)), None
    if restored.files or restored.kept:
        told = f"{TAKEN_BACK.format(turn=since[0], step=max(since[1], 1))} {restored}"
    await parts.store.files_restored(key, 0, None, since, told)
    return restored


def _demand_sense(body: ForkSession) -> None:
    if body.step is not None and body.turn is None:
        raise UsageError("The fork names a step of no turn; name the 'turn' too.")
    if body.message is not None:
        checked_text(body.message)
        if body.replay is not None:
            raise UsageError(
                "A fork that works turns again has their messages; send another once it has."
            )
    for edit in body.edits:
        # An empty result is one.
        if edit.text.strip():
            checked_text(edit.text, f"edited result {edit.place}")
    places = [edit.place for edit in body.edits]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise UsageError(f"The fork edits result {twice} twice; name each call once.")


def _folder_of(
    parts: Parts, view: SessionView, due: bool, made: SessionKey, body: ForkSession
) -> ForkFolder:
    """Where the fork works: as its agent's sessions do, where it names another than the session's,
    else as the session. One of its own is made of what the session works in, where that is; at
    another home it is unless it is `due`. Reads files."""
    kind: FolderKind = view.folder
    if body.agent is not None or body.model is not None:
        model = body.model or (view.model if body.agent is None else None)
        checked = parts.check(Path(view.workspace), body.agent or view.agent, model)
        if body.agent not in (None, view.agent):
            # One that has no rule of its own works as the session does: never in its folder.
            kind = checked.folder or view.folder
    kind = body.folder or kind
    source = view.own_dir if view.own_dir is not None else view.working_dir
    elsewhere = is_elsewhere(parts, view.home)
    if kind != "shared" and (due if elsewhere else not Path(source).is_dir()):
        # It was not made yet, or was removed.
        source = view.working_dir
    # An executor's is that of the session that it works for.
    home = view.home if source == view.own_dir or view.own_dir is None else None
    if elsewhere and home is not None and kind != "shared":
        own_dir: Path | None = beside(made, kind, Path(source), view.folder)
    else:
        own_dir = own_path(parts.settings.home, made, kind, Path(source))
    return ForkFolder(kind, source, None if own_dir is None else str(own_dir), home)
