"""Where a text stands in what an engine holds, and how to put another value in that place.

For every form of storing that keeps the text as it is: columns, JSON as text or as a type, binary
records, lists, hashes, sets, streams, files. Compressed and encrypted ones are not found.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.verify.engines.drivers import postgres_connection, redis_client
from holdfast.verify.engines.protocol import Engine

_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_SQLITE_SIDE_FILES: Final = ("-wal", "-shm", "-journal")
_BUSY_TIMEOUT_MS: Final = 5000
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """One value that holds the text."""

    where: str
    value: bytes
    put: Callable[[bytes], object]
    """Puts another value there; raises what the engine raises."""
    opaque: bool = False
    """A file of a format that nobody here knows: a record is not told from the next in it."""


def half(value: bytes) -> bytes:
    """The first half, as a torn write leaves it; of text no half character."""
    cut = value[: len(value) // 2]
    return cut.decode(errors="ignore").encode() if _is_text(value) else cut


@contextlib.contextmanager
def places_of(engine: Engine, needle: bytes) -> Iterator[list[Place]]:
    """Every value of the engine that holds these bytes, which are ASCII; to be used inside."""
    ways: dict[str, Callable[[Any, bytes, contextlib.ExitStack], Iterator[Place]]] = {
        "sqlite": _directory, "redis": _redis, "valkey": _redis, "postgres": _postgres,
    }  # fmt: skip
    # Sentinels and nodes of a cluster have URLs that no driver of one engine reads.
    way = None if "+" in urlsplit(engine.url).scheme else ways.get(engine.kind)
    with contextlib.ExitStack() as stack:
        yield [] if way is None else list(way(engine, needle, stack))


def _is_text(value: bytes) -> bool:
    try:
        value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _directory(engine: Any, needle: bytes, stack: contextlib.ExitStack) -> Iterator[Place]:
    """Databases of SQLite, and every other file."""
    for path in sorted(Path(engine.data_dir).rglob("*")):
        if not path.is_file() or path.name.endswith(_SQLITE_SIDE_FILES):
            continue
        value = path.read_bytes()
        if value[: len(_SQLITE_MAGIC)] == _SQLITE_MAGIC:
            yield from _sqlite(path, needle, stack)
        elif needle in value:
            opaque = not _is_text(value)
            yield Place(f"the file {path.name}", value, path.write_bytes, opaque)


def _sqlite(path: Path, needle: bytes, stack: contextlib.ExitStack) -> Iterator[Place]:
    import apsw  # noqa: PLC0415 - loaded only where needed

    db: Any = apsw.Connection(str(path))
    stack.callback(db.close)
    db.set_busy_timeout(_BUSY_TIMEOUT_MS)
    db.execute("PRAGMA ignore_check_constraints = ON")  # a bad disk asks none either
    # Not what a virtual table keeps for itself: to damage an index is another fault.
    tables = "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
    for (table,) in db.execute(tables).fetchall():
        for _, column, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
            holds = f'instr(CAST("{column}" AS BLOB), ?)'
            rows = f'SELECT DISTINCT "{column}" FROM "{table}" WHERE {holds}'  # noqa: S608 - its own names
            for (value,) in db.execute(rows, (needle,)).fetchall():
                raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
                put = functools.partial(_put_cell, db, table, column, value)
                yield Place(f"{table}.{column}", raw, put)


def _put_cell(db: Any, table: str, column: str, old: str | bytes, new: bytes) -> None:
    change = f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?'  # noqa: S608 - its own names
    db.execute(change, (new.decode() if isinstance(old, str) else new, old))


def _redis(engine: Any, needle: bytes, stack: contextlib.ExitStack) -> Iterator[Place]:
    client: Any = stack.enter_context(redis_client(engine.url, decode=False))
    for key in list(client.scan_iter(count=_PAGE)):
        for value, put in _redis_values(client, key):
            if needle in value:
                yield Place(f"key {key!r}", value, put)


def _redis_values(client: Any, key: bytes) -> Iterator[tuple[bytes, Callable[[bytes], object]]]:
    """Each value below a key, and how to put another in its place."""
    match client.type(key):
        case b"string":
            # None where it has expired meanwhile.
            yield client.get(key) or b"", lambda new: client.set(key, new, keepttl=True)
        case b"list":
            for index, value in enumerate(client.lrange(key, 0, -1)):
                yield value, functools.partial(client.lset, key, index)
        case b"hash":
            for field, value in client.hgetall(key).items():
                yield value, functools.partial(client.hset, key, field)
        case b"zset":
            for member, score in client.zrange(key, 0, -1, withscores=True):
                yield member, functools.partial(_put_member, client, key, member, score)
        case b"stream":
            for entry, field, value in _entries(client, key):
                yield value, functools.partial(_put_field, client, key, entry, field)


def _put_member(client: Any, key: bytes, old: bytes, score: float, new: bytes) -> None:
    client.zrem(key, old)
    client.zadd(key, {new: score})


def _entries(client: Any, key: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    return (
        (entry, field, value)
        for entry, fields in client.xrange(key)
        for field, value in fields.items()
    )


def _put_field(client: Any, key: bytes, entry: bytes, field: bytes, new: bytes) -> None:
    """Entries cannot be changed, so the stream is built again, with the same ids; groups go."""
    entries, last = client.xrange(key), client.xinfo_stream(key)["last-generated-id"]
    left_ms = client.pttl(key)
    with client.pipeline(transaction=True) as every:
        every.delete(key)
        for name, fields in entries:
            every.xadd(key, {**fields, field: new} if name == entry else fields, id=name)
        every.execute_command("XSETID", key, last)
        if left_ms > 0:
            every.pexpire(key, left_ms)
        every.execute()


_COLUMNS: Final = """
    SELECT table_schema, table_name, c.column_name, c.data_type
    FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE t.table_type = 'BASE TABLE' AND c.is_generated = 'NEVER'
    AND table_schema NOT IN ('pg_catalog', 'information_schema')
    AND c.data_type IN ('text', 'character varying', 'bytea', 'json', 'jsonb')
"""


def _postgres(engine: Any, needle: bytes, stack: contextlib.ExitStack) -> Iterator[Place]:
    db: Any = stack.enter_context(postgres_connection(engine.url))
    for schema, table, column, kind in db.execute(_COLUMNS).fetchall():
        place = f'"{schema}"."{table}"'
        raw = f'"{column}"' if kind == "bytea" else f"convert_to(\"{column}\"::text, 'UTF8')"
        rows = f"SELECT DISTINCT {raw} FROM {place} WHERE position(%s::bytea in {raw}) > 0"  # noqa: S608 - its own names
        change = f'UPDATE {place} SET "{column}" = %s::{kind} WHERE {raw} = %s'  # noqa: S608
        for (value,) in db.execute(rows, (needle,)).fetchall():
            put = functools.partial(_put_column, db, change, kind, needle, bytes(value))
            yield Place(f"{table}.{column}", bytes(value), put)


def _put_column(db: Any, change: str, kind: str, needle: bytes, old: bytes, new: bytes) -> None:
    if kind in ("json", "jsonb"):  # such a column takes JSON only
        new = json.dumps(_spoiled(json.loads(old), needle.decode())).encode()
    db.execute(change, (new if kind == "bytea" else new.decode(), old))


def _spoiled(value: Any, needle: str) -> Any:
    """The same JSON, with half of its text in the place of the innermost object that holds it."""
    if isinstance(value, list):
        return [_spoiled(each, needle) if needle in json.dumps(each) else each for each in value]
    if not isinstance(value, dict):
        raise TypeError("half of a string is a string: nobody could tell")
    inner = {
        name: _spoiled(each, needle)
        for name, each in value.items()
        if isinstance(each, dict | list) and needle in json.dumps(each)
    }
    whole = json.dumps(value)
    return {**value, **inner} if inner else whole[: len(whole) // 2]
