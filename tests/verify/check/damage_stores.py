"""Stores that keep the same messages in every form there is: where is one to be damaged?

Each is careful (it names what it cannot read), careless (`except ValueError: continue`) or, where a
session is one record, loud (an error) or silent (nothing was ever said).
"""

from __future__ import annotations

import json
import pickle
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from holdfast.verify import Claims, NotClaimed

Turn = dict[str, Any]
CLAIMS = Claims(
    exactly_once=NotClaimed("no key"),
    expiring=NotClaimed("no time to live"),
    recallable=NotClaimed("a log only"),
)


class Turns(list[Turn]):
    damaged: list[str]


class Base:
    """What a form has: `add` one message, and `raw` records of a session with a way to read one."""

    engine: ClassVar = "sqlite"

    def __init__(self, engine: Any, careful: bool) -> None:
        self.careful = careful
        self.open(engine)

    def open(self, engine: Any) -> None:
        raise NotImplementedError

    def add(self, session: str, message: Turn) -> None:
        raise NotImplementedError

    def raw(self, session: str) -> Iterable[Callable[[], Turn]]:
        raise NotImplementedError

    def append(self, session: str, messages: list[Turn]) -> None:
        for message in messages:
            self.add(session, message)

    def history(self, session: str, limit: int | None = None) -> Turns:
        del limit  # the probe asks for everything
        turns = Turns()
        turns.damaged = []
        for read in self.raw(session):
            try:
                turn = read()
                turn["id"], turn["content"]
            except Exception as error:  # noqa: BLE001 - whatever a form raises
                if self.careful:
                    turns.damaged.append(repr(error))
            else:
                turns.append(turn)
        return turns

    def forget(self, session: str) -> None:
        raise NotImplementedError


class Row(Base):
    """JSON in a column; ASCII only, as `json.dumps` does."""

    kind: ClassVar = "TEXT"

    def open(self, engine: Any) -> None:
        self.db = sqlite3.connect(engine.path, isolation_level=None)
        self.db.execute(f"CREATE TABLE IF NOT EXISTS m (n INTEGER PRIMARY KEY, s, r {self.kind})")

    def add(self, session: str, message: Turn) -> None:
        self.db.execute("INSERT INTO m (s, r) VALUES (?, ?)", (session, self.encode(message)))

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        rows = self.db.execute("SELECT r FROM m WHERE s = ? ORDER BY n", (session,)).fetchall()
        return (lambda r=r: self.decode(r) for (r,) in rows)  # type: ignore[misc]

    def encode(self, message: Turn) -> Any:
        return json.dumps(message)

    def decode(self, record: Any) -> Turn:
        turn: Turn = json.loads(record)
        return turn

    def close(self) -> None:
        self.db.close()


class Checked(Row):
    """A CHECK constraint keeps everybody from storing half of a record, but no bad disk."""

    kind: ClassVar = "TEXT CHECK (json_valid(r))"


class Packed(Row):
    """Binary records, as msgpack or pickle make them."""

    kind: ClassVar = "BLOB"

    def encode(self, message: Turn) -> bytes:
        return pickle.dumps(message)

    def decode(self, record: bytes) -> Turn:
        turn: Turn = pickle.loads(record)
        return turn


class Columns(Base):
    """A column for each field, and a checksum beside them where it is careful."""

    def open(self, engine: Any) -> None:
        self.db = sqlite3.connect(engine.path, isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS m (n INTEGER PRIMARY KEY, s, i, t, c)")

    def add(self, session: str, message: Turn) -> None:
        text = message["content"]
        row = (session, message["id"], text, zlib.crc32(text.encode()))
        self.db.execute("INSERT INTO m (s, i, t, c) VALUES (?, ?, ?, ?)", row)

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        query = "SELECT i, t, c FROM m WHERE s = ? ORDER BY n"
        return (lambda r=r: self.read(*r) for r in self.db.execute(query, (session,)).fetchall())  # type: ignore[misc]

    def read(self, name: str, text: str, crc: int) -> Turn:
        if self.careful and zlib.crc32(text.encode()) != crc:
            raise ValueError("the checksum is another one")
        return {"id": name, "role": "user", "content": text}

    def close(self) -> None:
        self.db.close()


class OnPostgres(Row):
    """One document a message, in a type that takes JSON only."""

    engine: ClassVar = "postgres"
    kind: ClassVar = "jsonb"

    def open(self, engine: Any) -> None:
        import psycopg  # noqa: PLC0415 - clients on another engine need not have it

        self.db: Any = psycopg.connect(engine.url, autocommit=True)
        make = f"CREATE TABLE IF NOT EXISTS m (n bigserial PRIMARY KEY, s text, r {self.kind})"
        self.db.execute(make)

    def add(self, session: str, message: Turn) -> None:
        self.db.execute("INSERT INTO m (s, r) VALUES (%s, %s)", (session, self.encode(message)))

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        rows = self.db.execute("SELECT r FROM m WHERE s = %s ORDER BY n", (session,)).fetchall()
        return (lambda r=r: self.decode(r) for (r,) in rows)  # type: ignore[misc]

    def decode(self, record: Any) -> Turn:
        return {**record}


class Bytea(OnPostgres):
    """Binary records on PostgreSQL."""

    kind: ClassVar = "bytea"

    def encode(self, message: Turn) -> bytes:
        return pickle.dumps(message)

    def decode(self, record: Any) -> Turn:
        turn: Turn = pickle.loads(record)
        return turn


class OnRedis(Base):
    """A list of binary records."""

    engine: ClassVar = "redis"

    def open(self, engine: Any) -> None:
        import redis  # noqa: PLC0415 - clients on another engine need not have it

        self.client: Any = redis.Redis.from_url(engine.url)

    def add(self, session: str, message: Turn) -> None:
        self.client.rpush(session, pickle.dumps(message))

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        return (lambda r=r: pickle.loads(r) for r in self.client.lrange(session, 0, -1))  # type: ignore[misc]

    def close(self) -> None:
        self.client.close()


class Stream(OnRedis):
    """A stream, each entry with the record as its only field."""

    def add(self, session: str, message: Turn) -> None:
        self.client.xadd(session, {"r": json.dumps(message)})

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        return (lambda r=r: json.loads(r[b"r"]) for _, r in self.client.xrange(session))  # type: ignore[misc]


class Pointers(OnRedis):
    """An index of ids, and each record below its own key."""

    def add(self, session: str, message: Turn) -> None:
        name = f"{session}/{message['id']}"
        self.client.set(name, json.dumps(message))
        self.client.zadd(session, {name: self.client.zcard(session)})

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        names = self.client.zrange(session, 0, -1)
        return (lambda n=n: json.loads(self.client.get(n)) for n in names)  # type: ignore[misc]


class FileEach(Base):
    """A directory a session, a file a message."""

    def open(self, engine: Any) -> None:
        self.folder = Path(engine.data_dir)

    def add(self, session: str, message: Turn) -> None:
        (self.folder / session).mkdir(exist_ok=True)
        path = self.folder / session / f"{len(list((self.folder / session).iterdir())):06}.json"
        path.write_text(json.dumps(message))

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        paths = sorted((self.folder / session).iterdir())
        return (lambda p=p: json.loads(p.read_text()) for p in paths)  # type: ignore[misc]


class Lines(FileEach):
    """A file a session, a line a message: half a file is half a session."""

    def add(self, session: str, message: Turn) -> None:
        with (self.folder / f"{session}.jsonl").open("a") as file:
            file.write(json.dumps(message) + "\n")

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        lines = (self.folder / f"{session}.jsonl").read_text().splitlines()
        return (lambda t=t: json.loads(t) for t in lines)  # type: ignore[misc]


class Document(FileEach):
    """A file a session, as one JSON text: careful is loud here, and careless is an empty history."""

    def path(self, session: str) -> Path:
        return self.folder / f"{session}.json"

    def load(self, session: str) -> dict[str, list[Turn]]:
        path = self.path(session)
        try:
            found: dict[str, list[Turn]] = json.loads(path.read_text()) if path.exists() else {}
        except ValueError:
            if self.careful:
                raise
            return {}
        return found

    def add(self, session: str, message: Turn) -> None:
        whole = self.load(session)
        whole.setdefault(session, []).append(message)
        self.path(session).write_text(json.dumps(whole))

    def history(self, session: str, limit: int | None = None) -> Turns:
        del limit
        return Turns(self.load(session).get(session, []))


class OneForAll(Document):
    """Every session in one file: one bad byte, and nobody has a history any more."""

    def path(self, session: str) -> Path:
        del session
        return self.folder / "memory.json"


class DocumentRow(OnPostgres):
    """A session as one jsonb document: one bad message among them need not hide the others."""

    def add(self, session: str, message: Turn) -> None:
        self.db.execute("CREATE TABLE IF NOT EXISTS d (s text PRIMARY KEY, r jsonb)")
        self.db.execute(
            "INSERT INTO d VALUES (%s, jsonb_build_array(%s::jsonb))"
            " ON CONFLICT (s) DO UPDATE SET r = d.r || excluded.r",
            (session, json.dumps(message)),
        )

    def raw(self, session: str) -> Iterator[Callable[[], Turn]]:
        [(found,)] = self.db.execute("SELECT r FROM d WHERE s = %s", (session,)).fetchall()
        return (lambda r=r: {**r} for r in found)  # type: ignore[misc]


FORMS: tuple[type[Base], ...] = (
    Row, Checked, Packed, OnPostgres, Bytea, DocumentRow, OnRedis, Stream, Pointers, FileEach, Lines, Document,
)  # fmt: skip
