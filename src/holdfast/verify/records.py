"""Records of our own stores, reached past the store: to damage one, or to write as we once did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast import codec
from holdfast.commands import sublogs_of
from holdfast.connection import connect, log_and_index
from holdfast.errors import FaultNotProven
from holdfast.model import Durability, History, Message
from holdfast.verify.engines.drivers import redis_client

Records = list[tuple[bytes, Callable[[bytes], object]]]
"""Each record of a session, oldest first, and how to put another in its place."""


def flip_one(url: str, namespace: str, session: str) -> None:
    """Flip one bit in the middle of the middle record: often JSON that still looks right."""
    with _records_of(url, namespace, _bytes(session)) as records:
        if not records:
            raise FaultNotProven("damage: the session has no record")
        record, put = records[len(records) // 2]
        changed = bytearray(record)
        changed[len(changed) // 2] ^= 1
        put(bytes(changed))


def count_beside(url: str, namespace: str, session: str) -> int:
    """How many memories and summaries of a session the engine holds."""
    counted = 0
    for log in sublogs_of(_bytes(session)):
        with _records_of(url, namespace, log) as records:
            counted += len(records)
    return counted


class VersionZero:
    """Our store as it was before its first release: a record is the bare OpenAI dictionary."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url, self._namespace = url, namespace
        self._store = connect(url, namespace=namespace, require=Durability.MEMORY)

    def append(self, session: str, messages: Sequence[dict[str, Any]]) -> None:
        """Write them as today, and put yesterday's records in the place of today's."""
        self._store.append(session, [_message(each) for each in messages])
        with _records_of(self._url, self._namespace, _bytes(session)) as records:
            for record, put in records:
                put(codec.json_bytes(codec.decode(record).to_openai()))

    def history(self, session: str, limit: int | None = None) -> History:
        """What today's code makes of it."""
        return self._store.history(session, limit=limit)

    def forget(self, session: str) -> None:
        """As today."""
        self._store.forget(session)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def _message(turn: dict[str, Any]) -> Message:
    return Message.from_openai({name: value for name, value in turn.items() if name != "id"})


def are_reachable(url: str) -> bool:
    """Whether the kit can reach the records of our store at this address."""
    return urlsplit(url).scheme in _WAYS


@contextlib.contextmanager
def _records_of(url: str, namespace: str, log: bytes) -> Iterator[Records]:
    way = _WAYS[urlsplit(url).scheme]
    with way(url, _bytes(namespace), log) as records:
        yield records


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


@contextlib.contextmanager
def _sqlite(url: str, namespace: bytes, session: bytes) -> Iterator[Records]:
    import apsw  # noqa: PLC0415 - the driver, used past the store on purpose

    db: Any = apsw.Connection(str(Path(unquote(urlsplit(url).path[1:]))))
    try:
        found = db.execute(
            "SELECT place, record FROM messages WHERE place >> 32 ="
            " (SELECT id FROM sessions WHERE namespace = ? AND name = ?) ORDER BY place",
            (namespace, session),
        ).fetchall()

        def put(place: int) -> Callable[[bytes], object]:
            change = "UPDATE messages SET record = ? WHERE place = ?"
            return lambda new: db.execute(change, (new, place))

        yield [(bytes(record), put(place)) for place, record in found]
    finally:
        db.close()


def _chroma(url: str, namespace: bytes, session: bytes) -> Any:
    """The log in that directory; records are nowhere else."""
    return _sqlite(log_and_index(url, None)[0], namespace, session)


@contextlib.contextmanager
def _redis(url: str, namespace: bytes, session: bytes) -> Iterator[Records]:
    from holdfast.backends.redis.keys import Keys  # noqa: PLC0415 - it needs the driver

    client: Any = redis_client(url, decode=False)
    try:
        _, log, _ = Keys(namespace).session(session)

        def put(index: int) -> Callable[[bytes], object]:
            return lambda new: client.lset(log, index, new)

        yield [(record, put(n)) for n, record in enumerate(client.lrange(log, 0, -1))]
    finally:
        client.close()


@contextlib.contextmanager
def _postgres(url: str, namespace: bytes, session: bytes) -> Iterator[Records]:
    import psycopg  # noqa: PLC0415 - only who uses PostgreSQL needs its driver

    from holdfast.backends.postgres.address import read_address  # noqa: PLC0415 - it needs it too

    address = read_address(url)
    schema = address.schema
    db: Any = psycopg.connect(**address.conninfo, autocommit=True)
    try:
        found = db.execute(
            f"SELECT m.session, m.seq, m.record FROM {schema}.messages m"  # noqa: S608 - a checked name
            f" JOIN {schema}.sessions s ON s.id = m.session"
            " WHERE s.namespace = %s AND s.name = %s ORDER BY m.seq",
            (namespace, session),
        ).fetchall()

        def put(number: int, seq: int) -> Callable[[bytes], object]:
            change = f"UPDATE {schema}.messages SET record = %s WHERE session = %s AND seq = %s"  # noqa: S608
            return lambda new: db.execute(change, (new, number, seq))

        yield [(bytes(record), put(number, seq)) for number, seq, record in found]
    finally:
        db.close()


_WAYS: Final = {
    "sqlite": _sqlite,
    "chroma": _chroma,
    "redis": _redis,
    "valkey": _redis,
    "postgresql": _postgres,
    "postgres": _postgres,
}
