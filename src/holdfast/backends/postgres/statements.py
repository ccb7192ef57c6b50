"""Commands as statements, and rows as replies: the one place that knows both. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast import limits
from holdfast.backends.postgres.errors import BACKEND
from holdfast.backends.queries import load_queries
from holdfast.commands import (
    TTL_KEEP,
    Append,
    Command,
    Copy,
    EraseRecord,
    ExportSession,
    Facts,
    Forget,
    ImportSession,
    Keep,
    Names,
    Read,
    Removed,
    Rewrite,
    Slice,
    StatSession,
    Written,
    check_expect,
    floor_of,
    sublogs_of,
)
from holdfast.errors import Conflict, EngineFull, HoldfastError
from holdfast.model import Durability, SessionState

SQL: Final = load_queries(Path(__file__).with_name("queries.sql"))
EXPIRY_MARGIN_MS: Final = 60_000
"""How far a replica's clock may be from the primary's: nearer to an expiry, the primary decides."""
SPELT_OUT_MAX: Final = 8
"""Records that are sent as values of their own: the driver is slow at making arrays."""

Row = tuple[Any, ...]
Rows = list[Row]


@dataclass(slots=True)
class Statement:
    """One statement with its values. A lost answer to one that writes leaves its outcome unknown."""

    sql: bytes
    values: tuple[Any, ...]
    operation: str
    writes: bool = False
    timeline: int = 0
    """Of the server that has carried it out; 0 before."""


class Statements:
    """Statements for one namespace in one schema, at one required durability."""

    def __init__(
        self, schema: str, namespace: bytes, require: Durability, lock_timeout_ms: int
    ) -> None:
        constants = {
            "{namespace}": f"'\\x{namespace.hex()}'::bytea",
            "{terms}": f"{int(require)}, {lock_timeout_ms}",
            "{numbers_max}": str(limits.NUMBER_MAX),
        }
        self._schema, self._constants = schema, constants
        self._sql = self.prepared(SQL)
        self._plain, self._full = (
            [_spelt_out(self._sql["append"], count, rest) for count in range(SPELT_OUT_MAX + 1)]
            for rest in (b"'', -1, -1", b"%b, %b, %b")
        )

    def prepared(
        self, queries: Mapping[str, str], more: Mapping[str, str] | None = None
    ) -> dict[str, bytes]:
        """Queries of a file with all that stays the same put in."""
        constants = {**self._constants, **(more or {})}
        return {name: in_schema(text, self._schema, constants) for name, text in queries.items()}

    def append(self, group: Sequence[Append]) -> Statement:
        """Appends in one statement; those to one session stand together, sessions are sorted."""
        if len(group) == 1:
            return self._append_one(group[0])
        values = (
            [record for one in group for record in one.records],
            [len(one.records) for one in group],
            [_size(one) for one in group],
            [one.key or b"" for one in group],
            [_or_any(one.expect) for one in group],
            [one.ttl_ms for one in group],
        )
        shares = Counter(one.session for one in group)
        if len(shares) == 1:
            return self._write("append_many", "append", group[0].session, *values)
        names = (list(shares), list(shares.values()))
        return Statement(self._sql["append_all"], (*names, *values), "append", writes=True)

    def _append_one(self, one: Append) -> Statement:
        """What is most often left out is not sent: each value costs the driver some time."""
        if one.keep is not None:
            return self._append_kept(one, one.keep)
        is_plain = one.key is None and one.expect is None and one.ttl_ms == TTL_KEEP
        rest = () if is_plain else (one.key or b"", _or_any(one.expect), one.ttl_ms)
        count = len(one.records)
        records = one.records if count <= SPELT_OUT_MAX else (list(one.records),)
        sql = (self._plain if is_plain else self._full)[count if count <= SPELT_OUT_MAX else 0]
        return Statement(sql, (one.session, *records, _size(one), *rest), "append", writes=True)

    def _append_kept(self, one: Append, keep: Keep) -> Statement:
        rest = (one.key or b"", _or_any(one.expect), one.ttl_ms, keep.floor)
        return self._write(
            "append_kept",
            "append",
            one.session,
            list(one.records),
            _size(one),
            *rest,
            keep.seen,
            keep.marks,
        )

    def rewrite(self, command: Rewrite) -> Statement:
        """See `Rewrite`."""
        rest = (list(command.records), _size(command), _or_any(command.expect), command.ttl_ms)
        return self._write("rewrite", "rewrite", command.session, *rest)

    def forget(self, command: Forget) -> Statement:
        """See `Forget`: the session, then the logs beside it, in one statement."""
        memories, summaries = sublogs_of(command.session)
        name = "forget_now" if command.hide else "forget"
        if command.lasts is not None:
            last, beside = command.lasts
            values = (command.session, last, memories, beside, summaries)
            return self._write(f"{name}_at", "forget", *values)
        return self._write(name, "forget", command.session, memories, summaries)

    def erase_record(self, command: EraseRecord) -> Statement:
        """See `EraseRecord`."""
        return self._write("erase_record", command.operation, command.session, command.number)

    def import_session(self, command: ImportSession) -> Statement:
        """See `ImportSession`."""
        facts, rows, keys = command.copy.facts, command.copy.rows, command.copy.keys
        trimmed = (facts.trimmed,) if facts.trimmed else ()
        return self._write(
            "import_trimmed" if trimmed else "import",
            "load",
            command.session,
            facts.state.value,
            floor_of(command.copy, backend=BACKEND),
            facts.last,
            sum(len(record) for _, record in rows),
            facts.ttl_ms,
            facts.expires_ms,
            [record for _, record in rows],
            [digest for digest, _, _ in keys],
            [first for _, first, _ in keys],
            [last for _, _, last in keys],
            *trimmed,
        )

    def read(self, command: Read) -> Statement:
        """A page, from the primary."""
        return self._statement("read", *self._page(command), operation=command.operation)

    def read_at(self, command: Read, token: str) -> Statement:
        """A page from a replica that has come to where the token says, on its timeline."""
        place, _, timeline = token.partition("@")
        values = (int(timeline), place, *self._page(command), EXPIRY_MARGIN_MS)
        return self._statement("read_at", *values, operation=command.operation)

    def stat(self, command: StatSession) -> Statement:
        """See `StatSession`."""
        return self._statement("stat", command.session, operation="stat")

    def names(self, command: Names) -> Statement:
        """See `Names`. No UTF-8 holds the byte 255, so it bounds every prefix."""
        bounds = (command.prefix, command.after or b"", command.prefix + b"\xff")
        values = (*bounds, command.gone, command.limit)
        return self._statement("names", *values, operation=command.operation)

    def export_session(self, session: bytes) -> Statement:
        """See `ExportSession`."""
        return self._statement("export", session, operation="export")

    def sweep(self, messages_max: int) -> Statement:
        """Free the room of an expired session."""
        return self._statement("sweep", messages_max, operation="sweep")

    def sweep_gone(self, kept_ms: int, keys_max: int) -> Statement:
        """Drop a tombstone that is older."""
        return self._statement("sweep_gone", kept_ms, keys_max, operation="sweep")

    def sweep_keys(self, kept_ms: int, after: tuple[int, bytes], looks_max: int) -> Statement:
        """Drop old keys of messages that are gone, among the next after that place."""
        return self._statement("sweep_keys", kept_ms, *after, looks_max, operation="sweep")

    def expire(self, session: bytes) -> Statement:
        """Note that a session was seen expired."""
        names = (session, sublogs_of(session)[1])
        return self._statement("expire", *names, operation="expire")

    def vacuum(self, tables: Sequence[str], *, full: bool) -> Statement:
        """Free what was deleted, or rewrite the tables without it; no lock is waited for."""
        sql = self._sql["vacuum_full" if full else "vacuum"]
        return Statement(sql.replace(b"{tables}", ", ".join(tables).encode()), (), "forget")

    def rewritten(self) -> Statement:
        """Each table and its file, and whether a transaction may still need old rows."""
        return self._statement("rewritten", operation="forget")

    def position(self, *, flushed: bool) -> Statement:
        """Where the log of the primary is, after a commit."""
        return self._statement("position", flushed, operation="position")

    def fence(self) -> Statement:
        """A place in the log that only who is primary now gets confirmed."""
        return self._statement("fence", operation="position")

    def timeline(self) -> Statement:
        """Whether a server is a standby, and the timeline that it is on."""
        return self._statement("timeline", operation="position")

    def confirmed(self, place: str) -> Statement:
        """Whether a synchronous standby has the log up to there; empty for where it is now."""
        return self._statement("confirmed", place, operation="position")

    def _page(self, command: Read) -> tuple[Any, ...]:
        bounds = (command.after, command.before, command.limit)
        return (command.session, *bounds, command.forward)

    def _write(self, name: str, operation: str, session: bytes, *values: Any) -> Statement:
        return Statement(self._sql[name], (session, *values), operation, writes=True)

    def _statement(self, name: str, *values: Any, operation: str) -> Statement:
        return Statement(self._sql[name], values, operation)


def in_schema(text: str, schema: str, constants: Mapping[str, str] | None = None) -> bytes:
    """A statement or migration with the schema's name, which `address` has checked, put in."""
    for name, value in {"{schema}": f'"{schema}"', **(constants or {})}.items():
        text = text.replace(name, value)
    return text.encode()


def _spelt_out(sql: bytes, count: int, rest: bytes) -> bytes:
    """An append of so many records as values of their own, or of one array for 0."""
    records = b"ARRAY[" + b", ".join([b"%b"] * count) + b"]" if count else b"%b"
    return sql.replace(b"{records}", records).replace(b"{rest}", rest)


def _size(command: Append | Rewrite) -> int:
    return sum(map(len, command.records))


def _or_any(expect: int | None) -> int:
    return -1 if expect is None else expect


def written(command: Append | Rewrite, row: Row) -> Written | HoldfastError | None:
    """The reply of one append or rewrite, or the error that the server decided on.

    None: its session was busy, and it is to be sent again, alone.
    """
    outcome, first, last, level = row
    if outcome == "busy":
        return None
    if outcome in {"written", "repeated"}:
        return Written(first, last, Durability(level), repeated=outcome == "repeated")
    if outcome == "full":
        return EngineFull(
            f"the session has given {last} numbers and can give {limits.NUMBER_MAX} at most. "
            "Nothing was written. Go on in a new session",
            operation=command.operation,
            backend=BACKEND,
        )
    try:
        check_expect(command.expect, last, operation=command.operation, backend=BACKEND)
    except Conflict as conflict:
        return conflict
    raise AssertionError(outcome)


IN_THE_WAL: Final = (
    "the write-ahead log (pg_wal, its archive, its replicas), until those segments are written over"
)
IN_THE_TABLES: Final = (
    "the files of the tables (base/, and those of replicas), until a VACUUM FULL that meets neither "
    'a lock nor an older transaction; now="full" runs one'
)
LEFT: Final = (IN_THE_TABLES, IN_THE_WAL)


def removed(rows: Rows) -> Removed:
    """Deleted rows stay in PostgreSQL's files until they are rewritten, and in its log for longer."""
    [(_, messages, _), *beside] = rows
    return Removed(
        messages,
        sum(size for _, _, size in rows),
        memories=sum(count for _, count, _ in beside),
        left=LEFT if any(known for known, _, _ in rows) else (),
    )


def record_removed(rows: Rows) -> Removed:
    """The same for one record."""
    [(known, count, size)] = rows
    return Removed(0, size, memories=count, left=LEFT if known else ())


def page(command: Read, rows: Rows) -> Slice:
    """The first row is the session: its end and its state."""
    end, about = rows.pop(0)
    if not command.forward:
        rows.reverse()
    state, *numbers = bytes(about).decode().split()
    return Slice(SessionState(state), end, rows, *map(int, numbers))


def facts(rows: Rows) -> Facts:
    """What the server knows of a session."""
    if not rows:
        return Facts(SessionState.NEVER)
    [(state, *numbers)] = rows
    return _facts(SessionState(state), *numbers)


def _facts(
    state: SessionState,
    last: int,
    count: int,
    size: int,
    ttl_ms: int | None,
    expires_ms: int | None,
    trimmed: int,
    now_ms: int = 0,
    marks: bytes = b"",
    written_ms: int = 0,
) -> Facts:
    if state is not SessionState.LIVE:
        count = size = 0
    if not count:
        trimmed = 0
    times = (ttl_ms, expires_ms)
    return Facts(state, last, count, size, *times, trimmed, now_ms, bytes(marks), written_ms)


def copied(rows: Rows) -> Copy:
    """A whole session from the rows of its parts, which come in any order."""
    about = Facts(SessionState.NEVER)
    records: list[tuple[int, bytes]] = []
    keys: list[tuple[bytes, int, int]] = []
    for part, data, number, *rest in rows:
        if part == "record":
            records.append((number, data))
        elif part == "key":
            keys.append((data, number, rest[0]))
        else:
            about = _facts(SessionState(data.decode()), number, *rest)
    return Copy(about, sorted(records), sorted(keys))


def names(rows: Rows) -> list[bytes]:
    """Session names."""
    return [name for (name,) in rows]


READS: Final[dict[type[Command[Any]], Any]] = {
    StatSession: (lambda statements, command: statements.stat(command), facts),
    Names: (lambda statements, command: statements.names(command), names),
    ExportSession: (lambda statements, command: statements.export_session(command.session), copied),
}
"""Reads that are one statement on the primary: how they are asked, and what the rows mean."""
