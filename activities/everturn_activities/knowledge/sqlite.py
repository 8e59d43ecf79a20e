"""The index of knowledge on a SQLite file of its own: nothing in it is a truth.

It stands beside the store, and not in it: filling it writes a lot, and the store's one
writer has turns to record. A file that cannot be used is made anew.
"""

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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

VERSION = 2
BUSY_SECONDS = 10.0
WEIGHTS = "2.0, 3.0, 1.0"
"""What a word counts in a path, in a heading and in the text itself."""

_SCHEMA = """
CREATE TABLE bases (base INTEGER PRIMARY KEY, generation INTEGER NOT NULL DEFAULT 0,
                    skipped TEXT NOT NULL DEFAULT '', skipped_count INTEGER NOT NULL DEFAULT 0);
CREATE TABLE claims (base INTEGER, what TEXT, owner TEXT NOT NULL, until REAL NOT NULL,
                     PRIMARY KEY (base, what));
CREATE TABLE files (base INTEGER, path TEXT, mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL,
                    digest TEXT NOT NULL, unread TEXT NOT NULL DEFAULT '',
                    PRIMARY KEY (base, path));
CREATE TABLE chunks (id INTEGER PRIMARY KEY, base INTEGER NOT NULL, path TEXT NOT NULL,
                     first INTEGER NOT NULL, last INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE INDEX chunks_path ON chunks (base, path);
CREATE INDEX chunks_digest ON chunks (digest);
CREATE VIRTUAL TABLE words USING fts5
    (path, heading, body, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE TABLE vectors (digest TEXT, model TEXT, vector BLOB NOT NULL, PRIMARY KEY (digest, model));
"""
_PUT_FILE = (
    "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (base, path) DO UPDATE"
    " SET mtime_ns = excluded.mtime_ns, size = excluded.size, digest = excluded.digest,"
    " unread = excluded.unread"
)
_TABLES = ("bases", "claims", "files", "chunks", "words", "vectors")


class SqliteIndex:
    """`KnowledgeIndex` on a file, which several processes may share."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._vectors = Vectors()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def marks(self, base: int) -> dict[str, FileMark]:
        rows = self._all("SELECT path, mtime_ns, size, unread FROM files WHERE base = ?", base)
        return {path: FileMark(*rest) for path, *rest in rows}

    def put(
        self, base: int, path: str, mark: FileMark, digest: str, chunks: Sequence[Chunk]
    ) -> bool:
        with self._changing() as connection:
            if self._is_removed(connection, base):
                return False
            known = connection.execute(
                "SELECT digest FROM files WHERE base = ? AND path = ?", (base, path)
            ).fetchone()
            connection.execute(_PUT_FILE, (base, path, mark.mtime_ns, mark.size, digest, ""))
            if known is not None and known[0] == digest:
                return False
            self._clear(connection, base, path)
            for chunk in chunks:
                cursor = connection.execute(
                    "INSERT INTO chunks (base, path, first, last, digest) VALUES (?, ?, ?, ?, ?)",
                    (base, path, chunk.first, chunk.last, digest_of(chunk)),
                )
                connection.execute(
                    "INSERT INTO words (rowid, path, heading, body) VALUES (?, ?, ?, ?)",
                    (cursor.lastrowid, path, chunk.heading, chunk.text),
                )
            self._touch(connection, base)
            return True

    def put_unread(self, base: int, path: str, mark: FileMark) -> None:
        with self._changing() as connection:
            if self._is_removed(connection, base):
                return
            self._clear(connection, base, path)
            given = (base, path, mark.mtime_ns, mark.size, "", mark.unread)
            connection.execute(_PUT_FILE, given)

    def drop(self, base: int, paths: Sequence[str]) -> None:
        with self._changing() as connection:
            if self._is_removed(connection, base):
                return
            for path in paths:
                self._clear(connection, base, path)
                connection.execute("DELETE FROM files WHERE base = ? AND path = ?", (base, path))
            self._touch(connection, base)

    def drop_base(self, base: int) -> None:
        with self._changing() as connection:
            connection.execute(
                "DELETE FROM words WHERE rowid IN (SELECT id FROM chunks WHERE base = ?)", (base,)
            )
            for table in ("chunks", "files", "claims", "bases"):
                connection.execute(f"DELETE FROM {table} WHERE base = ?", (base,))  # noqa: S608
            self._forget_vectors(connection)
            now = self._clock()
            connection.execute("DELETE FROM claims WHERE what = 'removed' AND until < ?", (now,))
            connection.execute(
                "INSERT INTO claims VALUES (?, 'removed', '', ?)", (base, now + REMOVED_SECONDS)
            )

    def note_skipped(self, base: int, skipped: Sequence[str], count: int) -> None:
        with self._changing() as connection:
            if self._is_removed(connection, base):
                return
            connection.execute(
                "INSERT INTO bases (base, skipped, skipped_count) VALUES (?, ?, ?) ON CONFLICT"
                " (base) DO UPDATE SET skipped = excluded.skipped,"
                " skipped_count = excluded.skipped_count",
                (base, "\n".join(skipped), count),
            )

    def indexed(self, base: int, model: str | None) -> Indexed:
        ((files,),) = self._all("SELECT count(*) FROM files WHERE base = ? AND unread = ''", base)
        ((chunks, embedded),) = self._all(
            "SELECT count(*), count(vectors.digest) FROM chunks LEFT JOIN vectors"
            " ON vectors.digest = chunks.digest AND vectors.model = ? WHERE base = ?",
            model or "",
            base,
        )
        noted = self._all("SELECT skipped, skipped_count FROM bases WHERE base = ?", base)
        skipped, count = noted[0] if noted else ("", 0)
        return Indexed(files, chunks, embedded, tuple(skipped.splitlines()), count)

    def missing(self, base: int, model: str, limit: int) -> list[tuple[str, str]]:
        return self._all(
            "SELECT chunks.digest, heading || char(10) || body FROM chunks"
            " JOIN words ON words.rowid = chunks.id"
            " WHERE base = ? AND NOT EXISTS (SELECT 1 FROM vectors"
            " WHERE vectors.digest = chunks.digest AND model = ?)"
            # Once what stands in several files, and in the order of the first.
            " GROUP BY chunks.digest ORDER BY min(chunks.id) LIMIT ?",
            base,
            model,
            limit,
        )

    def claim(self, base: int, what: Claimed, owner: str, seconds: float) -> bool:
        now = self._clock()
        with self._changing() as connection:
            claimed = connection.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?) ON CONFLICT (base, what) DO UPDATE"
                " SET owner = excluded.owner, until = excluded.until"
                " WHERE owner = excluded.owner OR until < ?",
                (base, what, owner, now + seconds, now),
            )
            return claimed.rowcount == 1

    def release(self, base: int, what: Claimed, owner: str) -> None:
        with self._changing() as connection:
            given = (base, what, owner)
            connection.execute(
                "DELETE FROM claims WHERE base = ? AND what = ? AND owner = ?", given
            )

    def put_vectors(self, model: str, vectors: Sequence[tuple[str, Sequence[float]]]) -> None:
        with self._changing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                [(digest, model, packed(vector)) for digest, vector in vectors],
            )
            connection.execute("UPDATE bases SET generation = generation + 1")

    def by_words(self, bases: Sequence[int], query: str, limit: int) -> list[int]:
        words = list(dict.fromkeys(re.findall(r"\w+", query)))[:WORDS_MAX]
        if not words:
            return []
        rows = self._all(
            "SELECT chunks.id FROM words JOIN chunks ON chunks.id = words.rowid"  # noqa: S608
            f" WHERE words MATCH ? AND base IN ({_marks(bases)})"
            f" ORDER BY bm25(words, {WEIGHTS}), chunks.id LIMIT ?",
            " OR ".join(f'"{word}"' for word in words),
            *bases,
            limit,
        )
        return [id_ for (id_,) in rows]

    def by_vector(
        self, bases: Sequence[int], model: str, vector: Sequence[float], limit: int
    ) -> list[int]:
        found: list[tuple[float, int]] = []
        with self._lock:
            connection = self._opened()
            for base in bases:
                noted = connection.execute(
                    "SELECT generation FROM bases WHERE base = ?", (base,)
                ).fetchone()
                generation = noted[0] if noted else 0
                if not self._vectors.knows(base, model, generation):
                    rows = connection.execute(
                        "SELECT chunks.id, vector FROM chunks JOIN vectors"
                        " ON vectors.digest = chunks.digest AND model = ? WHERE base = ?",
                        (model, base),
                    ).fetchall()
                    self._vectors.put(base, model, generation, rows)
                found += self._vectors.nearest(base, model, vector, limit)
        return [id_ for _, id_ in sorted(found, key=lambda each: (-each[0], each[1]))[:limit]]

    def chunks(self, ids: Sequence[int]) -> dict[int, tuple[int, str, Chunk]]:
        rows = self._all(
            "SELECT id, base, chunks.path, first, last, heading, body FROM chunks"  # noqa: S608
            f" JOIN words ON words.rowid = id WHERE id IN ({_marks(ids)})",
            *ids,
        )
        return {row[0]: (row[1], row[2], Chunk(*row[3:])) for row in rows}

    def _all(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            return self._opened().execute(query, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _is_removed(self, connection: sqlite3.Connection, base: int) -> bool:
        query = "SELECT 1 FROM claims WHERE base = ? AND what = 'removed' AND until >= ?"
        return connection.execute(query, (base, self._clock())).fetchone() is not None

    def _clear(self, connection: sqlite3.Connection, base: int, path: str) -> None:
        """Drop a file's chunks. Vectors stay: most of its text comes back at once."""
        connection.execute(
            "DELETE FROM words WHERE rowid IN (SELECT id FROM chunks WHERE base = ? AND path = ?)",
            (base, path),
        )
        connection.execute("DELETE FROM chunks WHERE base = ? AND path = ?", (base, path))

    def _touch(self, connection: sqlite3.Connection, base: int) -> None:
        connection.execute(
            "INSERT INTO bases (base, generation) VALUES (?, 1)"
            " ON CONFLICT (base) DO UPDATE SET generation = generation + 1",
            (base,),
        )

    def _forget_vectors(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM vectors WHERE NOT EXISTS"
            " (SELECT 1 FROM chunks WHERE chunks.digest = vectors.digest)"
        )

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = _open(self._path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                # What is no database any more: all of it can be made again.
                self._path.unlink()
                self._connection = _open(self._path)
        return self._connection


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            for table in _TABLES:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
        path.chmod(0o600)
    except BaseException:
        connection.close()
        raise
    return connection


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
