"""The library: folders are read when they change, and searched by words and by vectors."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from everturn.errors import EverturnError, ModelError, RuntimeUnavailable, UsageError
from everturn.views import KnowledgeView, PassageView
from everturn_activities.knowledge import Base, Embedder, FileMark, KnowledgeIndex, fused
from everturn_activities.knowledge.chunks import chunks_of
from everturn_activities.knowledge.walk import Unread, Walk, read, walk

FRESH_SECONDS = 2.0
"""A folder that was looked at so lately is not looked at again."""
READING_SECONDS = 20.0
"""How long a query waits for a folder to be read; what has been read by then is searched."""
EMBEDDED_AT_ONCE = 64
CLAIM_SECONDS = 120.0
"""After this long without a sign, another process takes over reading, or making vectors."""
CLAIM_PAUSE_SECONDS = 0.1
EMBEDDING_SECONDS = 45.0
"""How long vectors of a folder are waited for; the next look goes on where it ended. With the
time of a call it stays below the claim."""
QUERY_SECONDS = 5.0
"""Who asks does not wait long: words are searched anyway."""
QUERIES_KEPT = 64
CANDIDATES = 50
"""How many chunks each way of searching may name."""

log = logging.getLogger(__name__)


class Bases(Protocol):
    async def add(self, tenant: str, workspace: str, name: str, folder: str) -> Base: ...
    async def bases(self, tenant: str, workspace: str) -> list[Base]: ...
    async def remove(self, tenant: str, workspace: str, name: str) -> Base: ...


@dataclass(frozen=True)
class Answer:
    """What a query found, the best first; `notes` tell what was not looked at, and why."""

    passages: tuple[PassageView, ...]
    notes: tuple[str, ...] = ()


class Library:
    """`embedder_of` gives the embedder of a tenant's workspace, None where it has set no model."""

    def __init__(
        self,
        bases: Bases,
        index: KnowledgeIndex,
        embedder_of: Callable[[str, str], Embedder | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bases = bases
        self._index = index
        self._embedder_of = embedder_of
        self._clock = clock
        self._closed = False
        self._owner = secrets.token_hex(8)
        self._looked: dict[int, float] = {}
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._problems: dict[int, str] = {}
        self._queries: OrderedDict[tuple[str, str], Sequence[float]] = OrderedDict()

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._index.close)

    async def add(self, tenant: str, workspace: str, name: str, folder: str) -> KnowledgeView:
        """Have a folder searched from now on, and begin to read it."""
        base = await self._bases.add(tenant, workspace, name, folder)
        self._looked.pop(base.id, None)
        self._begin(base)
        return await self._view(base)

    async def list(self, tenant: str, workspace: str) -> list[KnowledgeView]:
        return [await self._view(base) for base in await self._bases.bases(tenant, workspace)]

    async def remove(self, tenant: str, workspace: str, name: str) -> None:
        base = await self._bases.remove(tenant, workspace, name)
        if (reading := self._reading.pop(base.id, None)) is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await asyncio.to_thread(self._index.drop_base, base.id)

    async def query(
        self, tenant: str, workspace: str, text: str, limit: int, name: str | None = None
    ) -> Answer:
        """Passages for `text`; UsageError where there is no folder to search."""
        bases = await self._bases.bases(tenant, workspace)
        if name is not None:
            named = [base for base in bases if base.name == name]
            if not named:
                known = ", ".join(base.name for base in bases) or "none"
                raise UsageError(f"There is no knowledge {name[:100]!r}; there is {known}.")
            bases = named
        if not bases:
            raise UsageError(
                "No folder of knowledge was added to this workspace; a person adds one by"
                " 'everturn knowledge add FOLDER'."
            )
        notes = [note for base in bases if (note := await self._read_now(base)) is not None]
        ids = [base.id for base in bases]
        ranked = [await asyncio.to_thread(self._index.by_words, ids, text, CANDIDATES)]
        embedder = await asyncio.to_thread(self._embedder_of, tenant, workspace)
        if embedder is not None:
            try:
                vector = await self._vector(embedder, text)
            except ModelError as error:
                notes.append(f"Only words were searched, not meanings: {error}")
            else:
                ranked.append(
                    await asyncio.to_thread(
                        self._index.by_vector, ids, embedder.model, vector, CANDIDATES
                    )
                )
        best = [id_ for id_, _ in fused(*ranked)[:limit]]
        found = await asyncio.to_thread(self._index.chunks, best)
        places = {base.id: base for base in bases}
        passages = tuple(
            PassageView(
                base=places[found[id_][0]].name,
                folder=str(places[found[id_][0]].folder),
                path=found[id_][1],
                first=found[id_][2].first,
                last=found[id_][2].last,
                heading=found[id_][2].heading,
                text=found[id_][2].text,
            )
            for id_ in best
            if id_ in found
        )
        return Answer(passages, tuple(notes))

    async def _vector(self, embedder: Embedder, text: str) -> Sequence[float]:
        """The vector of what is searched for, paid once while it is asked again and again."""
        known = self._queries.get((embedder.model, text))
        if known is None:
            (known,) = await embedder.embed([text], QUERY_SECONDS)
        self._queries[(embedder.model, text)] = known
        self._queries.move_to_end((embedder.model, text))
        if len(self._queries) > QUERIES_KEPT:
            self._queries.popitem(last=False)
        return known

    async def _read_now(self, base: Base) -> str | None:
        """Look for changes, and wait a while for them to be read; what remains to be told."""
        if self._clock() - self._looked.get(base.id, -FRESH_SECONDS) >= FRESH_SECONDS:
            self._begin(base)
        reading = self._reading.get(base.id)
        if reading is not None:
            done, _ = await asyncio.wait({reading}, timeout=READING_SECONDS)
            if not done:
                return f"Knowledge {base.name!r} is still being read; not all of it was searched."
        return self._problems.get(base.id)

    def _begin(self, base: Base) -> None:
        """Read what has changed of a folder, unless that is under way already."""
        if base.id in self._reading:
            return
        self._looked[base.id] = self._clock()
        task = asyncio.create_task(self._refresh(base))
        self._reading[base.id] = task
        task.add_done_callback(lambda _: self._reading.pop(base.id, None))

    async def _refresh(self, base: Base) -> None:
        self._problems.pop(base.id, None)
        try:
            await asyncio.to_thread(self._read, base)
            await self._embed(base)
        except EverturnError as error:
            self._problems[base.id] = f"Knowledge {base.name!r}: {error}"
        except Exception as error:
            # Its text could quote the files; what has been read by now can be searched.
            log.error("reading a folder of knowledge failed with %s", type(error).__name__)
            self._problems[base.id] = (
                f"Knowledge {base.name!r} could not be read: {type(error).__name__}."
            )

    def _read(self, base: Base) -> None:
        """Bring the index to what stands in the folder."""
        if not base.folder.is_dir():
            raise UsageError(f"the folder {base.folder} is not there any more; remove it, or mend.")
        known = self._index.marks(base.id)
        found = walk(base.folder)
        gone = known.keys() - found.files.keys()
        if gone or any(known.get(path) != mark for path, mark in found.files.items()):
            with self._alone(base) as still_alone:
                # What another process has read meanwhile is not read again.
                self._catch_up(base, self._index.marks(base.id), found, still_alone)
        else:
            self._catch_up(base, known, found, lambda: None)
        self._index.note_skipped(base.id, found.skipped, found.skipped_count)

    def _catch_up(
        self,
        base: Base,
        known: dict[str, FileMark],
        found: Walk,
        still_alone: Callable[[], None],
    ) -> None:
        for path, mark in found.files.items():
            before = known.get(path)
            if before == mark:
                if before.unread:
                    found.skip(path, before.unread)
                continue
            still_alone()
            text = read(base.folder, path)
            if isinstance(text, Unread):
                found.skip(path, text.why)
                self._index.put_unread(base.id, path, replace(mark, unread=text.why))
                continue
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
            self._index.put(base.id, path, mark, digest, chunks_of(path, text))
        if gone := [path for path in known if path not in found.files]:
            self._index.drop(base.id, gone)

    @contextmanager
    def _alone(self, base: Base) -> Iterator[Callable[[], None]]:
        """While no other process reads the folder; who reads long says so now and then."""
        while not self._index.claim(base.id, "reading", self._owner, CLAIM_SECONDS):
            if self._closed:
                raise RuntimeUnavailable("another process was reading the folder.")
            time.sleep(CLAIM_PAUSE_SECONDS)
        claimed = self._clock()

        def still_alone() -> None:
            nonlocal claimed
            if self._clock() - claimed > CLAIM_SECONDS / 4:
                claimed = self._clock()
                self._index.claim(base.id, "reading", self._owner, CLAIM_SECONDS)

        try:
            yield still_alone
        finally:
            self._index.release(base.id, "reading", self._owner)

    async def _embed(self, base: Base) -> None:
        """Give every chunk a vector that has none, some at a time: what is paid for is kept."""
        embedder = await asyncio.to_thread(self._embedder_of, base.tenant, base.workspace)
        if embedder is None:
            return
        while missing := await asyncio.to_thread(
            self._index.missing, base.id, embedder.model, EMBEDDED_AT_ONCE
        ):
            if not await asyncio.to_thread(
                self._index.claim, base.id, "vectors", self._owner, CLAIM_SECONDS
            ):
                return  # Another process is at it.
            vectors = await embedder.embed([text for _, text in missing], EMBEDDING_SECONDS)
            digests = [digest for digest, _ in missing]
            await asyncio.to_thread(
                self._index.put_vectors, embedder.model, list(zip(digests, vectors, strict=True))
            )

    async def _view(self, base: Base) -> KnowledgeView:
        # First: what ends meanwhile would be told as read, with the sums from before.
        reading = base.id in self._reading
        try:
            embedder = await asyncio.to_thread(self._embedder_of, base.tenant, base.workspace)
        except UsageError:
            # A workspace whose settings are broken says so where it is used.
            embedder = None
        model = None if embedder is None else embedder.model
        held = await asyncio.to_thread(self._index.indexed, base.id, model)
        return KnowledgeView(
            name=base.name,
            folder=str(base.folder),
            workspace=base.workspace,
            files=held.files,
            chunks=held.chunks,
            embedded=held.embedded,
            embedding_model=model,
            indexing=reading,
            problem=self._problems.get(base.id),
            skipped=held.skipped,
            skipped_count=held.skipped_count,
        )
