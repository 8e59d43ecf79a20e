"""The index of knowledge in the PostgreSQL of the store, for all processes of a fleet.

It stands in tables of its own, which are made when they are first needed and are no part of the
store's migrations: nothing in them is a truth. What is a word is decided here, as on SQLite:
letters and digits, without accents; the database makes stems of them and finds them.
"""

import asyncio
import re
import threading
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from everturn.errors import RuntimeUnavailable
from everturn_activities.knowledge import (
    REMOVED_SECONDS,
    WORDS_MAX,
    Chunk,
    Claimed,
    FileMark,
    Indexed,
    digest_of,
)
from everturn_activities.knowledge.vectors import Vectors, packed
from everturn_activities.store.database import Database, Tx

T = TypeVar("T")

MAKING = 0x4556454B
"""The advisory lock of who makes the tables."""
REMOVING = 0x45564552
"""With a base, the advisory lock of who removes it, shared by those who put something into it."""
RANKED_MAX = 20_000
ANSWER_SECONDS = 90.0
"""Above all that the database's own limits allow a statement and its repetitions."""

# Another version's tables have another number: both can be in use while workers are replaced.
_SCHEMA = """
CREATE TEXT SEARCH DICTIONARY knowledge1_stems (TEMPLATE = snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION knowledge1_words (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION knowledge1_words
    ALTER MAPPING FOR asciiword, word, numword WITH knowledge1_stems;
CREATE TABLE knowledge1_bases (base bigint PRIMARY KEY, generation bigint NOT NULL DEFAULT 0,
    skipped text NOT NULL DEFAULT '', skipped_count bigint NOT NULL DEFAULT 0);
CREATE TABLE knowledge1_claims (base bigint, what text, owner text NOT NULL,
    until float8 NOT NULL, PRIMARY KEY (base, what));
CREATE TABLE knowledge1_files (base bigint, path text, mtime_ns bigint NOT NULL DEFAULT 0,
    size bigint NOT NULL DEFAULT 0, digest text NOT NULL DEFAULT '',
    unread text NOT NULL DEFAULT '', PRIMARY KEY (base, path));
CREATE TABLE knowledge1_chunks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    base bigint NOT NULL, path text NOT NULL, first bigint NOT NULL, last bigint NOT NULL,
    digest text NOT NULL, heading text NOT NULL, body text NOT NULL, words tsvector NOT NULL);
CREATE INDEX knowledge1_chunks_path ON knowledge1_chunks (base, path);
CREATE INDEX knowledge1_chunks_digest ON knowledge1_chunks (digest);
CREATE INDEX knowledge1_chunks_words ON knowledge1_chunks USING gin (words);
CREATE TABLE knowledge1_vectors (digest text, model text, vector bytea NOT NULL,
    PRIMARY KEY (digest, model))
"""

_LOCKED_FILE = sa.text(
    "SELECT digest FROM knowledge1_files WHERE base = :base AND path = :path FOR UPDATE"
)
_NEW_FILE = sa.text(
    "INSERT INTO knowledge1_files (base, path) VALUES (:base, :path) ON CONFLICT DO NOTHING"
)
_SET_FILE = sa.text(
    "UPDATE knowledge1_files SET mtime_ns = :mtime_ns, size = :size, digest = :digest,"
    " unread = :unread WHERE base = :base AND path = :path"
)
_CLEAR = sa.text("DELETE FROM knowledge1_chunks WHERE base = :base AND path = :path")
# What a word counts: most in a heading, then in a path, then in the text itself.
_ADD_CHUNK = sa.text(
    "INSERT INTO knowledge1_chunks (base, path, first, last, digest, heading, body, words)"
    " VALUES (:base, :path, :first, :last, :digest, :heading, :body,"
    " setweight(to_tsvector('knowledge1_words', :heading_words), 'A')"
    " || setweight(to_tsvector('knowledge1_words', :path_words), 'B')"
    " || setweight(to_tsvector('knowledge1_words', :body_words), 'D'))"
)
_TOUCH = sa.text(
    "INSERT INTO knowledge1_bases (base, generation) VALUES (:base, 1)"
    " ON CONFLICT (base) DO UPDATE SET generation = knowledge1_bases.generation + 1"
)
_NOTE = sa.text(
    "INSERT INTO knowledge1_bases AS known (base, skipped, skipped_count)"
    " VALUES (:base, :skipped, :count)"
    " ON CONFLICT (base) DO UPDATE SET skipped = excluded.skipped,"
    " skipped_count = excluded.skipped_count"
)
_CLAIM = sa.text(
    "INSERT INTO knowledge1_claims AS held (base, what, owner, until)"
    " VALUES (:base, :what, :owner, :until)"
    " ON CONFLICT (base, what) DO UPDATE SET owner = excluded.owner, until = excluded.until"
    " WHERE held.owner = excluded.owner OR held.until < :now"
)
_PUTTING = sa.text("SELECT pg_advisory_xact_lock_shared(:lock, CAST(:base AS int))")
_ALONE = sa.text("SELECT pg_advisory_xact_lock(:lock, CAST(:base AS int))")
_REMOVED = sa.text(
    "SELECT 1 FROM knowledge1_claims WHERE base = :base AND what = 'removed' AND until >= :now"
)
_REMOVE = sa.text(
    "INSERT INTO knowledge1_claims (base, what, owner, until) VALUES (:base, 'removed', '', :until)"
)
_MISSING = sa.text(
    "SELECT digest, text FROM (SELECT DISTINCT ON (digest) digest, id,"
    " heading || chr(10) || body AS text FROM knowledge1_chunks AS c WHERE base = :base"
    " AND NOT EXISTS (SELECT 1 FROM knowledge1_vectors AS v"
    " WHERE v.digest = c.digest AND v.model = :model)"
    # Once what stands in several files, and in the order of the first.
    " ORDER BY digest, id) AS each ORDER BY id LIMIT :limit"
)
# A word counts by how rare it is, and next to nothing where more than half have it: the database
# itself would let the most common ones decide. The rarest are taken first, and others as long as
# the chunks to be ranked are not too many; each of those costs tens of microseconds.
_BY_WORDS = sa.text(
    "WITH asked AS (SELECT DISTINCT plainto_tsquery('knowledge1_words', word) AS query"
    " FROM unnest(CAST(:words AS text[])) AS word),"
    " counted AS MATERIALIZED (SELECT query, (SELECT count(*) FROM knowledge1_chunks"
    " WHERE base = ANY(:bases) AND words @@ query) AS holders FROM asked WHERE numnode(query) > 0),"
    " chosen AS MATERIALIZED (SELECT query, holders FROM (SELECT query, holders,"
    " sum(holders) OVER (ORDER BY holders, query) AS so_far FROM counted WHERE holders > 0) AS each"
    " WHERE so_far <= :ranked_max OR so_far = holders),"
    " found AS MATERIALIZED (SELECT id, words FROM knowledge1_chunks WHERE base = ANY(:bases)"
    " AND words @@ (SELECT CAST(string_agg(CAST(query AS text), ' | ') AS tsquery) FROM chosen)),"
    " ranked AS MATERIALIZED (SELECT id, holders,"
    " ts_rank('{0.33, 0.33, 0.66, 1}', words, query, 1) AS rank"
    " FROM found JOIN chosen ON words @@ query)"
    " SELECT id FROM ranked GROUP BY id ORDER BY sum(rank * greatest(0.000001,"
    " ln(((SELECT count(*) FROM knowledge1_chunks WHERE base = ANY(:bases)) - holders + 0.5)"
    " / (holders + 0.5)))) DESC, id LIMIT :limit"
)


class PostgresIndex:
    """`KnowledgeIndex` on the store's database, whose `loop` is another thread's than ours."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self._database = database
        self._loop = loop
        self._is_made = False
        self._vectors = Vectors()
        self._nearest = threading.Lock()

    def close(self) -> None:
        """Nothing: the database is its owner's to close."""

    def marks(self, base: int) -> dict[str, FileMark]:
        rows = self._all(
            "SELECT path, mtime_ns, size, unread FROM knowledge1_files WHERE base = :base",
            base=base,
        )
        return {row.path: FileMark(row.mtime_ns, row.size, row.unread) for row in rows}

    def put(
        self, base: int, path: str, mark: FileMark, digest: str, chunks: Sequence[Chunk]
    ) -> bool:
        at = {"base": base, "path": path}
        told = {**at, "mtime_ns": mark.mtime_ns, "size": mark.size, "digest": digest, "unread": ""}
        words = {"path_words": _plain(path)}
        rows = [
            {
                **at,
                **words,
                "first": chunk.first,
                "last": chunk.last,
                "digest": digest_of(chunk),
                "heading": chunk.heading,
                "body": chunk.text,
                "heading_words": _plain(chunk.heading),
                "body_words": _plain(chunk.text),
            }
            for chunk in chunks
        ]

        def change(tx: Tx) -> bool:
            # Who puts the same file waits here, and finds it put.
            tx.connection.execute(_NEW_FILE, at)
            known = tx.connection.execute(_LOCKED_FILE, at).scalar_one()
            tx.connection.execute(_SET_FILE, told)
            if known == digest:
                return False
            tx.connection.execute(_CLEAR, at)
            if rows:
                tx.connection.execute(_ADD_CHUNK, rows)
            tx.connection.execute(_TOUCH, {"base": base})
            return True

        return self._put(base, change, otherwise=False)

    def put_unread(self, base: int, path: str, mark: FileMark) -> None:
        at = {"base": base, "path": path}
        told = {"mtime_ns": mark.mtime_ns, "size": mark.size, "digest": "", "unread": mark.unread}

        def change(tx: Tx) -> None:
            tx.connection.execute(_NEW_FILE, at)
            tx.connection.execute(_LOCKED_FILE, at)
            tx.connection.execute(_CLEAR, at)
            tx.connection.execute(_SET_FILE, {**at, **told})
            tx.connection.execute(_TOUCH, {"base": base})

        self._put(base, change, otherwise=None)

    def drop(self, base: int, paths: Sequence[str]) -> None:
        def change(tx: Tx) -> None:
            for path in sorted(paths):
                at = {"base": base, "path": path}
                tx.connection.execute(_LOCKED_FILE, at)
                tx.connection.execute(_CLEAR, at)
                tx.connection.execute(
                    sa.text("DELETE FROM knowledge1_files WHERE base = :base AND path = :path"), at
                )
            tx.connection.execute(_TOUCH, {"base": base})

        self._put(base, change, otherwise=None)

    def drop_base(self, base: int) -> None:
        def change(tx: Tx) -> None:
            # Whoever is at putting something is waited for, and later ones find the base removed.
            tx.connection.execute(_ALONE, {"lock": REMOVING, "base": base})
            for table in ("files", "chunks", "claims", "bases"):
                tx.connection.execute(
                    sa.text(f"DELETE FROM knowledge1_{table} WHERE base = :base"),  # noqa: S608
                    {"base": base},
                )
            tx.connection.execute(
                sa.text(
                    "DELETE FROM knowledge1_vectors AS v WHERE NOT EXISTS"
                    " (SELECT 1 FROM knowledge1_chunks AS c WHERE c.digest = v.digest)"
                )
            )
            tx.connection.execute(
                sa.text("DELETE FROM knowledge1_claims WHERE what = 'removed' AND until < :now"),
                {"now": tx.now},
            )
            tx.connection.execute(_REMOVE, {"base": base, "until": tx.now + REMOVED_SECONDS})

        self._write(change)

    def note_skipped(self, base: int, skipped: Sequence[str], count: int) -> None:
        told = {"base": base, "skipped": "\n".join(skipped), "count": count}
        noted = self._noted(base)
        # Each look at a folder tells the same: a write would be flushed for nothing.
        if (noted.skipped, noted.skipped_count) != (tuple(skipped), count):
            self._put(base, lambda tx: tx.connection.execute(_NOTE, told) and None, None)

    def indexed(self, base: int, model: str | None) -> Indexed:
        return self._noted(base, model)

    def missing(self, base: int, model: str, limit: int) -> list[tuple[str, str]]:
        rows = self._all(_MISSING, base=base, model=model, limit=limit)
        return [(row.digest, row.text) for row in rows]

    def claim(self, base: int, what: Claimed, owner: str, seconds: float) -> bool:
        def change(tx: Tx) -> bool:
            given: dict[str, object] = {"base": base, "what": what, "owner": owner}
            given |= {"now": tx.now, "until": tx.now + seconds}
            return tx.connection.execute(_CLAIM, given).rowcount == 1

        return self._write(change)

    def release(self, base: int, what: Claimed, owner: str) -> None:
        done = sa.text(
            "DELETE FROM knowledge1_claims WHERE base = :base AND what = :what AND owner = :owner"
        )
        given = {"base": base, "what": what, "owner": owner}
        self._write(lambda tx: tx.connection.execute(done, given) and None)

    def put_vectors(self, model: str, vectors: Sequence[tuple[str, Sequence[float]]]) -> None:
        rows = [{"digest": d, "model": model, "vector": packed(v)} for d, v in sorted(vectors)]

        def change(tx: Tx) -> None:
            tx.connection.execute(
                sa.text(
                    "INSERT INTO knowledge1_vectors (digest, model, vector)"
                    " VALUES (:digest, :model, :vector) ON CONFLICT (digest, model)"
                    " DO UPDATE SET vector = excluded.vector"
                ),
                rows,
            )
            tx.connection.execute(
                sa.text(
                    "UPDATE knowledge1_bases SET generation = generation + 1 WHERE base IN"
                    " (SELECT base FROM knowledge1_chunks WHERE digest = ANY(:digests))"
                ),
                {"digests": [row["digest"] for row in rows]},
            )

        if rows:
            self._write(change)

    def by_words(self, bases: Sequence[int], query: str, limit: int) -> list[int]:
        words = list(dict.fromkeys(_plain(query).split()))[:WORDS_MAX]
        if not words:
            return []
        rows = self._all(
            _BY_WORDS, words=words, bases=list(bases), limit=limit, ranked_max=RANKED_MAX
        )
        return [row.id for row in rows]

    def by_vector(
        self, bases: Sequence[int], model: str, vector: Sequence[float], limit: int
    ) -> list[int]:
        found: list[tuple[float, int]] = []
        with self._nearest:
            for base in bases:
                noted = self._all(
                    "SELECT generation FROM knowledge1_bases WHERE base = :base", base=base
                )
                generation = noted[0].generation if noted else 0
                if not self._vectors.knows(base, model, generation):
                    rows = self._all(
                        "SELECT c.id, v.vector FROM knowledge1_chunks AS c"
                        " JOIN knowledge1_vectors AS v ON v.digest = c.digest"
                        " WHERE c.base = :base AND v.model = :model",
                        base=base,
                        model=model,
                    )
                    pairs = [(row.id, row.vector) for row in rows]
                    self._vectors.put(base, model, generation, pairs)
                found += self._vectors.nearest(base, model, vector, limit)
        return [id_ for _, id_ in sorted(found, key=lambda each: (-each[0], each[1]))[:limit]]

    def chunks(self, ids: Sequence[int]) -> dict[int, tuple[int, str, Chunk]]:
        rows = self._all(
            "SELECT id, base, path, first, last, heading, body FROM knowledge1_chunks"
            " WHERE id = ANY(:ids)",
            ids=list(ids),
        )
        return {
            row.id: (row.base, row.path, Chunk(row.first, row.last, row.heading, row.body))
            for row in rows
        }

    def _noted(self, base: int, model: str | None = None) -> Indexed:
        [row] = self._all(
            "SELECT (SELECT count(*) FROM knowledge1_files WHERE base = :base AND unread = '')"
            " AS files, (SELECT count(*) FROM knowledge1_chunks WHERE base = :base) AS chunks,"
            " (SELECT count(*) FROM knowledge1_chunks AS c JOIN knowledge1_vectors AS v"
            " ON v.digest = c.digest WHERE c.base = :base AND v.model = :model) AS embedded,"
            " (SELECT skipped FROM knowledge1_bases WHERE base = :base) AS skipped,"
            " (SELECT skipped_count FROM knowledge1_bases WHERE base = :base) AS skipped_count",
            base=base,
            model=model or "",
        )
        skipped = tuple((row.skipped or "").splitlines())
        return Indexed(row.files, row.chunks, row.embedded, skipped, row.skipped_count or 0)

    def _all(self, query: str | sa.TextClause, **values: object) -> Sequence[Any]:
        asked = sa.text(query) if isinstance(query, str) else query
        self._make()
        return self._waited(
            lambda: self._database.read(lambda connection: connection.execute(asked, values).all())
        )

    def _put(self, base: int, change: Callable[[Tx], T], otherwise: T) -> T:
        """What `change` returns of a base that is there; of one that was removed, `otherwise`."""

        def checked(tx: Tx) -> T:
            tx.connection.execute(_PUTTING, {"lock": REMOVING, "base": base})
            removed = tx.connection.execute(_REMOVED, {"base": base, "now": tx.now}).first()
            return change(tx) if removed is None else otherwise

        return self._write(checked)

    def _write(self, change: Callable[[Tx], T]) -> T:
        self._make()
        return self._waited(lambda: self._database.write(change))

    def _make(self) -> None:
        if not self._is_made:
            self._waited(lambda: self._database.write(_made))
            self._is_made = True

    def _waited(self, work: Callable[[], Awaitable[T]]) -> T:
        """What the loop of the database comes to; we are in a thread."""

        async def begun() -> T:
            return await work()

        try:
            return asyncio.run_coroutine_threadsafe(begun(), self._loop).result(ANSWER_SECONDS)
        except TimeoutError:
            raise RuntimeUnavailable("The index of knowledge does not answer in time.") from None


def _made(tx: Tx) -> None:
    tx.connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MAKING})
    found = tx.connection.execute(sa.text("SELECT to_regclass('knowledge1_vectors') IS NULL"))
    if found.scalar_one():
        for statement in _SCHEMA.split(";"):
            tx.connection.execute(sa.text(statement))


def _plain(text: str) -> str:
    """The words of a text, small, without accents and with spaces between."""
    parts = unicodedata.normalize("NFKD", text)
    letters = "".join(sign for sign in parts if not unicodedata.combining(sign))
    return re.sub(r"[\W_]+", " ", letters).strip().lower()
