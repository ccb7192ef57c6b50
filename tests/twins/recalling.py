"""Careful stores with a long-term memory: the log is the truth, vectors are derived from it.

They are what the broken ones of `broken_recall` are variations of.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from holdfast.verify import Claims, Index, NotClaimed
from holdfast.verify.indexes import Hashes
from tests.recall.models import wordllama
from tests.twins.sound import SqliteStore

Entry = tuple[str, str]
"""Where in the log, and the text."""


class OtherModel(Hashes):
    """Of the same dimension as the usual one, so that only a note tells them apart."""

    dimension = 256


class SqliteMemory(SqliteStore):
    """Messages and memories in two tables; their vectors in a third, made from what is missing."""

    claims: ClassVar = Claims(expiring=NotClaimed("everything is kept until it is forgotten"))
    schema: ClassVar = SqliteStore.schema + (
        "CREATE TABLE memory (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, text TEXT);"
        "CREATE TABLE vector (at TEXT, session TEXT, text TEXT, model TEXT, data BLOB,"
        " PRIMARY KEY (session, at));"
        "CREATE TABLE summary (session TEXT, first INTEGER, last INTEGER, text TEXT);"
    )

    def __init__(self, engine: Any, ttl_s: float | None = None, model: Any = None) -> None:
        super().__init__(engine, ttl_s)
        self.model = model or wordllama()

    @classmethod
    def index(cls, engine: Any) -> Index:
        def run(statement: str, *values: str) -> int:
            with contextlib.closing(sqlite3.connect(cls.path(engine))) as db, db:
                found = db.execute(statement, values).fetchone()
                return int(found[0]) if found else 0

        return Index(
            lose=lambda scope: run("DELETE FROM vector WHERE session = ?", scope),
            count=lambda scope: run("SELECT count(*) FROM vector WHERE session = ?", scope),
            derived=cls.beside(engine),
            other_model=lambda: cls(engine, model=OtherModel()),
        )

    @classmethod
    def beside(cls, engine: Any) -> Callable[[str], int]:
        """How many memories and summaries of a scope there are."""

        def count(scope: str) -> int:
            with contextlib.closing(sqlite3.connect(cls.path(engine))) as db:
                counted = [
                    db.execute(f"SELECT count(*) FROM {table} WHERE session = ?", (scope,))
                    for table in ("memory", "summary")
                ]
                return sum(each.fetchone()[0] for each in counted)

        return count

    def remember(self, scope: str, text: str, key: str | None = None) -> None:
        with self.transaction():
            if key is None or self.is_new(f"memory of {scope}", key):
                self.keep(scope, text)

    def keep(self, scope: str, text: str) -> None:
        self.db.execute("INSERT INTO memory (session, text) VALUES (?, ?)", (scope, text))

    def summarize(self, session: str) -> None:
        """What is new since the last summary becomes the next one, in the same transaction."""
        with self.transaction():
            new, upto = self.unsummarized(session)
            if new:
                self.write_summary(session, new, upto)

    def unsummarized(self, session: str) -> tuple[list[str], int]:
        """What no summary tells yet, and how many messages are before that."""
        found = self.db.execute("SELECT max(last) FROM summary WHERE session = ?", (session,))
        upto = found.fetchone()[0] or 0
        return [str(turn["content"]) for turn in self.history(session)][upto:], upto

    def write_summary(self, session: str, new: list[str], upto: int) -> None:
        row = (session, upto + 1, upto + len(new), "\n".join(new))
        self.db.execute("INSERT INTO summary VALUES (?, ?, ?, ?)", row)

    def summaries(self, session: str) -> list[dict[str, Any]]:
        found = "SELECT text, first, last FROM summary WHERE session = ?"
        rows = self.db.execute(found, (session,)).fetchall()
        return [{"text": text, "first": first, "last": last} for text, first, last in rows]

    def recall(self, scope: str, query: str, k: int) -> list[str]:
        self.follow(scope)
        [asked] = self.embed([query])
        return self.nearest(scope, asked, k)

    def embed(self, texts: Sequence[str]) -> Any:
        rows = np.asarray(self.model.embed(texts), dtype=np.float32)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def log(self, scope: str) -> list[Entry]:
        """Everything that has to be found."""
        said = self.db.execute("SELECT n, record FROM message WHERE session = ?", (scope,))
        entries = [(f"said {n}", str(self.decode([record])[0]["content"])) for n, record in said]
        kept = self.db.execute("SELECT n, text FROM memory WHERE session = ?", (scope,))
        return entries + [(f"kept {n}", text) for n, text in kept]

    def follow(self, scope: str) -> None:
        """Make what is missing; the log does not change meanwhile."""
        with self.transaction():
            held = self.held(scope)
            new = [entry for entry in self.log(scope) if entry[0] not in held]
            if new:
                self.put(scope, new)

    def held(self, scope: str) -> set[str]:
        """What has a vector of this model; those of another one are dropped."""
        model = self.model.name
        self.db.execute("DELETE FROM vector WHERE session = ? AND model <> ?", (scope, model))
        return {
            at for (at,) in self.db.execute("SELECT at FROM vector WHERE session = ?", (scope,))
        }

    def put(self, scope: str, entries: list[Entry]) -> None:
        vectors = self.embed([text for _, text in entries])
        rows = [
            (at, scope, text, self.model.name, vector.tobytes())
            for (at, text), vector in zip(entries, vectors, strict=True)
        ]
        self.db.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?, ?)", rows)

    def nearest(self, scope: str, asked: Any, k: int) -> list[str]:
        rows = self.db.execute(
            "SELECT text, data FROM vector WHERE session = ?", (scope,)
        ).fetchall()
        near = {text: float(asked @ np.frombuffer(data, np.float32)) for text, data in rows}
        return sorted(near, key=near.__getitem__, reverse=True)[:k]

    def forget(self, session: str) -> None:
        with self.transaction():
            for table in ("message", "memory", "summary"):
                self.db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
            self.drop(session)

    def drop(self, scope: str) -> None:
        self.db.execute("DELETE FROM vector WHERE session = ?", (scope,))


class ChromaMemory(SqliteMemory):
    """The same log, with its vectors and texts in one Chroma collection beside it."""

    def __init__(self, engine: Any, ttl_s: float | None = None, model: Any = None) -> None:
        super().__init__(engine, ttl_s, model)
        self.client = client_of(engine)
        self.collection = self.client.get_or_create_collection("memory", embedding_function=None)

    @classmethod
    def index(cls, engine: Any) -> Index:
        @contextlib.contextmanager
        def of(scope: str) -> Iterator[tuple[Any, list[str]]]:
            with contextlib.closing(cls(engine)) as store:
                yield store.collection, store.collection.get(where={"session": scope})["ids"]

        def lose(scope: str) -> None:
            with of(scope) as (collection, ids):
                collection.delete(ids=ids)

        def count(scope: str) -> int:
            with of(scope) as (_, ids):
                return len(ids)

        return Index(lose=lose, count=count, derived=cls.beside(engine))

    def held(self, scope: str) -> set[str]:
        found = self.collection.get(where={"session": scope}, include=["metadatas"])
        return {str(meta["at"]) for meta in found["metadatas"]}

    def put(self, scope: str, entries: list[Entry]) -> None:
        self.collection.upsert(
            ids=[f"{scope}/{at}" for at, _ in entries],
            documents=[text for _, text in entries],
            embeddings=self.embed([text for _, text in entries]),
            metadatas=[{"session": scope, "at": at} for at, _ in entries],
        )

    def nearest(self, scope: str, asked: Any, k: int) -> list[str]:
        found = self.collection.query(
            query_embeddings=[asked], n_results=k, where={"session": scope}
        )
        return list(found["documents"][0])

    def drop(self, scope: str) -> None:
        if self.held(scope):
            self.collection.delete(where={"session": scope})

    def close(self) -> None:
        super().close()
        self.client.close()


def client_of(engine: Any) -> Any:
    """Chroma in this process, as most people begin with it."""
    import chromadb  # noqa: PLC0415 - it takes a second, and most stores here do without
    import chromadb.config  # noqa: PLC0415

    settings = chromadb.config.Settings(anonymized_telemetry=False)
    return chromadb.PersistentClient(engine.data_dir / "chroma", settings)


RECALLING = (SqliteMemory, ChromaMemory)
