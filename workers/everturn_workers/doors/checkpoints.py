"""The routes of file checkpoints: what tools did to files, and putting that back."""

import asyncio
import itertools
import secrets

from fastapi import APIRouter, Request

from everturn.errors import UsageError
from everturn.session import SessionKey
from everturn.views import (
    CheckpointPage,
    CheckpointView,
    FileChangeView,
    KeptFileView,
    RestoredView,
    RestoreFiles,
)
from everturn_activities.checkpoints import Checkpoints
from everturn_activities.file_changes import Change, Record, Restored, Work
from everturn_activities.tree_index import ABSENT, UNSAVED
from everturn_activities.workspace import protected_from_tools
from everturn_workers.doors.homes import demand_here, left_elsewhere
from everturn_workers.doors.parts import Name, Parts, key_of


def add_checkpoints(routes: APIRouter, parts: Parts) -> None:
    store, checkpoints = parts.store, Checkpoints(parts.settings.home)

    @routes.get("/sessions/{id}/checkpoints")
    async def list_checkpoints(request: Request, session: Name) -> CheckpointPage:
        """What the session's tools did to files, step by step."""
        key = key_of(request, session)
        await demand_here(parts, key, "File checkpoints")
        return CheckpointPage(checkpoints=_steps(await asyncio.to_thread(checkpoints.records, key)))

    @routes.post("/sessions/{id}/checkpoints/restore")
    async def restore_files(request: Request, session: Name, body: RestoreFiles) -> RestoredView:
        """Make files what they were before a step, but those that others have changed since."""
        key = key_of(request, session)
        await demand_here(parts, key, "File checkpoints")
        view = await store.session(key)
        if view.status != "idle":
            raise UsageError(
                f"Session {session!r} works at its files; cancel it with 'everturn cancel"
                f" {session}', or wait for its end."
            )
        since, until = (body.turn, body.step), (view.turn + 1, 0)
        below = await executors_below(parts, key, since)
        done = await asyncio.to_thread(checkpoints.done, key, below)
        notes = await left_elsewhere(parts, key, body.turn, below)
        if not any(since <= one.place for one in done):
            raise UsageError(
                f"Session {session!r} has no checkpoint of step {body.turn}.{body.step} or later;"
                f" 'everturn checkpoints list {session}' shows those there are."
                + "".join(f" {note}" for note in notes)
            )
        protected = protected_from_tools(await store.spec(key, view.turn))
        name = f"restore-{secrets.token_hex(4)}"
        restored = await asyncio.to_thread(
            checkpoints.restore, key, since, until, protected, name, below
        )
        return RestoredView(
            files=restored.files, kept=kept_files(restored), notes=(*restored.notes, *notes)
        )


async def executors_below(parts: Parts, key: SessionKey, since: tuple[int, int]) -> list[Work]:
    """What executors did for the session's steps from `since` on; UsageError while one works."""
    found = await parts.store.forks.executor_turns(key, since)
    if working := next((one.key.session for one in found if one.works), None):
        raise UsageError(
            f"Executor {working!r} of session {key.session!r} works at its files; cancel it with"
            f" 'everturn cancel {working}', or wait for its end."
        )
    return [Work(one.key, one.turn, one.place) for one in found]


def kept_files(restored: Restored) -> tuple[KeptFileView, ...]:
    return tuple(KeptFileView(path=path, why=why) for path, why in restored.kept)


def _steps(records: list[Record]) -> tuple[CheckpointView, ...]:
    grouped = itertools.groupby(records, key=lambda one: (one.place, one.tool == "restore"))
    return tuple(_step([*members]) for _, members in grouped)


def _step(records: list[Record]) -> CheckpointView:
    changes = {path: one for record in records for path, one in record.changes.items()}
    return CheckpointView(
        turn=records[0].turn,
        step=records[0].step,
        at=records[0].at,
        tools=tuple(record.tool for record in records),
        files=tuple(_file(path, change) for path, change in sorted(changes.items())),
        left_out=max(record.left_out for record in records),
        unrecorded=sum(record.unrecorded for record in records),
    )


def _file(path: str, change: Change) -> FileChangeView:
    known = change.before != UNSAVED
    if change.before == ABSENT:
        return FileChangeView(path=path, change="made", known=known)
    how = "removed" if change.after == ABSENT else "changed"
    return FileChangeView(path=path, change=how, known=known)
