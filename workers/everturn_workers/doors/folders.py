"""The route of sessions' own folders."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request

from everturn.errors import OwnerAlive, RuntimeUnavailable, ToolFailed, UsageError
from everturn.views import FolderRemovedView
from everturn_activities import own_folders
from everturn_workers.doors.checkpoints import executors_below
from everturn_workers.doors.homes import is_elsewhere
from everturn_workers.doors.parts import Name, Parts, key_of


def add_folders(routes: APIRouter, parts: Parts) -> None:
    store, home = parts.store, parts.settings.home

    @routes.delete("/sessions/{id}/folder")
    async def remove_folder(
        request: Request, session: Name, force: Annotated[bool, Query()] = False
    ) -> FolderRemovedView:
        """Remove the session's own folder; it is kept where work would be lost, unless `force`."""
        key = key_of(request, session)
        known = await store.folder(key)
        if known.own_dir is None:
            # It says why.
            await store.release_folder(key)
            raise AssertionError
        own_dir = known.own_dir
        # Those in the background outlive the turns of the session, and work in its folder.
        await executors_below(parts, key, (0, 0))
        if is_elsewhere(parts, known.home):
            if not force:
                raise UsageError(
                    f"The folder {own_dir} of session {session!r} is at the home with the id"
                    f" {known.home}; remove it by an API of that home. To give up what is there,"
                    " and have the next turn make another, remove it with --force (over HTTP:"
                    " force=true)."
                )
            await store.release_folder(key)
            return FolderRemovedView(path=own_dir, left_at=known.home)
        if known.home is not None and not own_folders.is_below(home, key, own_dir):
            if not force:
                raise UsageError(
                    f"The folder {own_dir} of session {session!r} is of this home, which was"
                    f" elsewhere then and is {home} now; move the home back. To give up what is"
                    " there, and have the next turn make another, remove it with --force (over"
                    " HTTP: force=true)."
                )
            await store.release_folder(key)
            return FolderRemovedView(path=own_dir, left_at=known.home)
        loop = asyncio.get_running_loop()

        def release() -> None:
            asyncio.run_coroutine_threadsafe(store.release_folder(key), loop).result()

        def remove() -> str | None:
            folder = own_folders.found(home, key, known.kind, known.working_dir, own_dir)
            return own_folders.remove(folder, release, force)

        try:
            branch = await asyncio.to_thread(remove)
        except OwnerAlive as error:
            raise RuntimeUnavailable(f"{error} Try again in a moment.") from None
        except ToolFailed as error:
            raise UsageError(f"The folder {own_dir} could not be looked at: {error}") from None
        return FolderRemovedView(path=own_dir, branch=branch)
