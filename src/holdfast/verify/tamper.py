"""Damages one stored record behind the store's back, and says what the store made of it.

Whoever brings a store may bring the way to damage it, `Target(tamper=…)`. Otherwise nothing is
known of how a user stores things, except that the text of a message stands somewhere in the
engine: a value that holds it and looks like a JSON record is cut in half, as a torn write does.
What is a plain column of text cannot be told from another text, and is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import FaultNotProven
from holdfast.verify.adapters.plain import Read
from holdfast.verify.engines.drivers import postgres_connection, redis_client
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Target

_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_OPENINGS: Final = (b"{", b"[")
_PAGE: Final = 1000


UNKNOWN_RECORDS: Final = (
    "how this store keeps its records is not known to the kit: Target(tamper=…) damages one"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to a session."""

    where: str
    hit: int | None = None
    """Which of its messages, counted from 0; None where the target's own `tamper` chose."""
    shared: bool = False
    """Its neighbours stand in the same record, so that an error hides nothing else."""


def damage_one(target: Target, session: str, texts: Sequence[str]) -> Damage | None:
    """Damage one record of a session that holds these texts; None where nobody knows how."""
    if target.tamper is not None:
        target.tamper(session)
        return Damage("one record, by tamper() of the target")
    if target.engine is None:
        return None
    hit = len(texts) // 2
    cuts = cut_record(target.engine, texts[hit], [*texts[:hit], *texts[hit + 1 :]])
    if not cuts:
        return None
    return Damage(f"{cuts[0].where} was cut in half", hit, any(cut.shared for cut in cuts))


def wrong_with(damage: Damage, texts: Sequence[str], seen: Read | Exception) -> str | None:
    """What is wrong with how a damaged session is shown; None where the promise is kept.

    `FaultNotProven` where everything is shown as it was: then nothing may have been damaged.
    """
    if isinstance(seen, Exception):
        return None if damage.shared else f"one damaged record hides the whole session: {seen!r}"
    shown = [message.get("content") for message in seen.messages]
    missing = [number for number, text in enumerate(texts) if text not in shown]
    named = seen.damaged or any("damaged" in message for message in seen.messages)
    hidden = len(missing) - 1 if damage.hit is None else len({*missing} - {damage.hit})
    if hidden > 0 and not damage.shared:
        return f"one damaged record hides {hidden} others that are sound"
    if named:
        return None
    if not missing:
        raise FaultNotProven("damage: every message is shown as it was before")
    if len(shown) > len(texts) - len(missing):
        return f"a damaged record is shown as if it were sound: {shown}"
    return f"a damaged record is left out, and nothing names it: {shown} came back"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a record was cut, and whether the neighbours stood in the same one."""

    where: str
    shared: bool


def cut_record(engine: Engine, text: str, neighbours: Iterable[str]) -> list[Cut]:
    """Cut every record that holds the text; empty where none was found."""
    needle = text.encode()
    others = [each.encode() for each in neighbours]

    def judge(value: bytes) -> bool:
        return needle in value and value.lstrip()[:1] in _OPENINGS

    ways: dict[str, Callable[..., Iterator[tuple[str, bytes]]]] = {
        "sqlite": _sqlite, "redis": _redis, "valkey": _redis, "postgres": _postgres,
    }  # fmt: skip
    way = ways.get(engine.kind)
    cuts = way(engine, judge) if way is not None else ()
    return [Cut(where, any(each in value for each in others)) for where, value in cuts]


def _half(value: bytes) -> bytes:
    return value[: len(value) // 2]


def _sqlite(engine: Any, wanted: Callable[[bytes], bool]) -> Iterator[tuple[str, bytes]]:
    import apsw  # noqa: PLC0415 - only whoever needs it pays for it

    for path in sorted(Path(engine.data_dir).rglob("*")):
        if path.is_file() and path.read_bytes()[: len(_SQLITE_MAGIC)] == _SQLITE_MAGIC:
            db = apsw.Connection(str(path))
            try:
                yield from _sqlite_tables(db, wanted)
            finally:
                db.close()


def _sqlite_tables(db: Any, wanted: Callable[[bytes], bool]) -> Iterator[tuple[str, bytes]]:
    tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for _, column, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
            values = db.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall()  # noqa: S608 - its own names
            for (value,) in values:
                raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
                if isinstance(raw, bytes) and wanted(raw):
                    less = value[: len(value) // 2]
                    change = f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?'  # noqa: S608
                    db.execute(change, (less, value))
                    yield f"{table}.{column}", raw


def _redis(engine: Any, wanted: Callable[[bytes], bool]) -> Iterator[tuple[str, bytes]]:
    client: Any = redis_client(engine.url, decode=False)
    try:
        for key in client.scan_iter(count=_PAGE):
            for value, put in _redis_values(client, key):
                if wanted(value):
                    put(_half(value))
                    yield f"key {key!r}", value
    finally:
        client.close()


def _redis_values(client: Any, key: bytes) -> Iterator[tuple[bytes, Callable[[bytes], object]]]:
    """Each value below a key, and how to put another in its place."""
    kind = client.type(key)
    if kind == b"string":
        yield client.get(key), lambda new: client.set(key, new, keepttl=True)
    elif kind == b"list":
        for index, value in enumerate(client.lrange(key, 0, -1)):
            yield value, functools.partial(client.lset, key, index)
    elif kind == b"hash":
        for field, value in client.hgetall(key).items():
            yield value, functools.partial(client.hset, key, field)
    elif kind == b"zset":
        for member, score in client.zrange(key, 0, -1, withscores=True):
            yield member, functools.partial(_put_member, client, key, member, score)


def _put_member(client: Any, key: bytes, old: bytes, score: float, new: bytes) -> None:
    client.zrem(key, old)
    client.zadd(key, {new: score})


def _postgres(engine: Any, wanted: Callable[[bytes], bool]) -> Iterator[tuple[str, bytes]]:
    columns = (
        "SELECT table_schema, table_name, column_name FROM information_schema.columns"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        " AND data_type IN ('text', 'character varying', 'bytea')"
    )
    db: Any = postgres_connection(engine.url)
    try:
        for schema, table, column in db.execute(columns).fetchall():
            place = f'"{schema}"."{table}"'
            rows = db.execute(f'SELECT ctid::text, "{column}" FROM {place}').fetchall()  # noqa: S608
            for row, value in rows:
                raw = value.encode() if isinstance(value, str) else value
                if raw is not None and wanted(bytes(raw)):
                    less = value[: len(value) // 2]
                    change = f'UPDATE {place} SET "{column}" = %s WHERE ctid = %s::tid'  # noqa: S608
                    db.execute(change, (less, row))
                    yield f"{table}.{column}", bytes(raw)
    finally:
        db.close()
