"""Which home has what a session works in: a folder of its own lies on one machine."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from everturn.session import SessionKey
from everturn_activities import own_folders
from everturn_activities.bounded import Bounded
from everturn_activities.file_changes import Work
from everturn_activities.store import Assignment, SessionFolder, Store
from everturn_activities.store.workers import Listed

TOOLS = "tools"
"""The role of those who come to sessions' files."""


class Members(Protocol):
    async def listed(self) -> Sequence[Listed]: ...


ELSEWHERE = (
    "What workers of the home {homes} did to files is recorded there, and still stands as they left"
    " it."
)
NOTED_KEPT = 4096


class RecordHomes:
    """Notes that our workers, of `home`, keep file checkpoints of a turn: once a turn each."""

    def __init__(self, store: Store, home: str) -> None:
        self._store = store
        self._home = home
        self._noted: Bounded[tuple[SessionKey, int], bool] = Bounded(NOTED_KEPT, 0)

    async def note(self, key: SessionKey, turn: int) -> None:
        if self._noted.get((key, turn)) is None:
            await self._store.note_record(key, turn, self._home)
            self._noted.put((key, turn), True)


async def left_elsewhere(
    store: Store, home: str, key: SessionKey, turn: int, below: Sequence[Work]
) -> tuple[str, ...]:
    """What is to be said where calls since that turn, or of executors for it, were recorded at
    other homes than `home`: only those could put their files back."""
    works = [(key, turn), *((one.key, one.turn) for one in below)]
    others = await store.record_homes(works) - {home}
    return (ELSEWHERE.format(homes=", ".join(sorted(others))),) if others else ()


class SessionHomes:
    """`home` is the id of this worker's home, the folder `path`; `makes`: its workers run tools.
    `members` are all workers; None where the store is in the home, so that there is but one."""

    def __init__(
        self, store: Store, members: Members | None, home: str, path: Path, makes: bool
    ) -> None:
        self._store = store
        self._members = members
        self.home = home
        self._path = path
        self._makes = makes

    def is_elsewhere(self, home: str) -> bool:
        """Whether what a session of `home` works in is on another home than ours."""
        return home not in ("", self.home)

    async def placed(self, key: SessionKey, assignment: Assignment) -> Assignment:
        """`assignment` with the home that has, or makes, the session's own folder."""
        if (
            assignment.own_dir is not None
            and assignment.folder_due
            and not assignment.home
            and self._members is not None
            and (maker := await self._maker(self._members)) is not None
        ):
            home, path = maker
            own_dir = own_folders.moved(path, key, assignment.own_dir)
            stands = await self._store.claim_folder(key, home, str(own_dir))
            assignment = replace(assignment, home=stands.home or "", own_dir=stands.own_dir)
        return replace(assignment, here=not self.is_elsewhere(assignment.home))

    async def settled(self, key: SessionKey, folder: SessionFolder) -> SessionFolder:
        """`folder` with its home: ours, where it is still to be made and nobody's yet, since no
        worker that could make it lived when the turn began."""
        if self._members is None or folder.home or not folder.due or folder.own_dir is None:
            return folder
        if not own_folders.is_below(self._path, key, folder.own_dir):
            return folder
        return await self._store.claim_folder(key, self.home, folder.own_dir)

    async def _maker(self, members: Members) -> tuple[str, Path] | None:
        """The home that makes a folder: ours, else one whose workers live; None if there is none,
        when whoever runs the first tool says what is wrong."""
        if self._makes:
            return self.home, self._path
        found = {
            one.member.home: one.member.path
            for one in await members.listed()
            if one.alive and one.member.path and TOOLS in one.member.roles.split(",")
        }
        if not found:
            return None
        home = random.choice(sorted(found))  # noqa: S311
        return home, Path(found[home])

    async def left(self, key: SessionKey, turn: int, below: Sequence[Work]) -> tuple[str, ...]:
        """What to say of calls since that turn that only other homes could take back."""
        if self._members is None:
            return ()
        return await left_elsewhere(self._store, self.home, key, turn, below)

    async def is_away(self, home: str) -> bool:
        """Whether no worker of that home lives that could do what waits for it."""
        if self._members is None:
            return True
        return not any(
            one.alive and one.member.home == home and TOOLS in one.member.roles.split(",")
            for one in await self._members.listed()
        )
