"""Each command as steps on the tables. Decisions come first: nothing is changed before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast import limits
from holdfast.backends.sqlite.ledger import Ledger
from holdfast.backends.sqlite.tables import Row, Tables
from holdfast.commands import (
    MEMORIES,
    Append,
    Clean,
    Command,
    Copy,
    Derive,
    EraseRecord,
    ExportSession,
    Facts,
    Forget,
    ImportSession,
    Keep,
    MarkExpired,
    Names,
    Read,
    ReadNumbers,
    Removed,
    Rewrite,
    Slice,
    StatSession,
    Written,
    check_expect,
    floor_of,
    is_there,
    orphaned,
    seen_expired,
    sublogs_of,
    unfit,
    written_since,
)
from holdfast.errors import EngineFull
from holdfast.model import Durability, SessionState
from holdfast.recall.index_commands import Candidate, Extend, Position, ReadPosition, Search

BACKEND: Final = "sqlite"
NEVER: Final = Facts(SessionState.NEVER)
IN_THE_LOG: Final = (
    "the -wal file: another connection was reading just then; a later write of this store that finds "
    "nobody reading empties it, and so does closing this store then, or the last connection"
)
LAST_MAX: Final = limits.NUMBER_MAX - limits.BATCH_MESSAGES_MAX
"""Up to here a session has numbers for any batch."""


def append(ledger: Ledger, command: Append, now_ms: int, durability: Durability) -> Written:
    """Number and add records, unless the key was used before."""
    row = ledger.session(command.session)
    if row is not None and command.key is not None:
        used = ledger.key(row, command.key)
        if used is not None:
            return Written(*used, durability, repeated=True)
    if command.expect is not None or (row is not None and row.last > LAST_MAX):
        _check(command, row, now_ms)
    if row is None:
        row = ledger.add_session(command.session)
    elif row.expires_ms is not None and row.state_at(now_ms) is SessionState.EXPIRED:
        row.clear(SessionState.EXPIRED)
        ledger.remove_messages(row)
    written = _add(ledger, row, command, now_ms, durability)
    if command.key is not None:
        ledger.add_key(row, command.key, written.first, written.last, now_ms)
    if command.keep is not None:
        _keep(ledger, row, command.keep, written.first, now_ms)
    return written


def _keep(ledger: Ledger, row: Row, keep: Keep, first: int, now_ms: int) -> None:
    """Cut off what is not to be kept, unless it is gone already."""
    if row.floor < keep.floor < row.last:
        ledger.trim(row, keep.floor)
    if keep.seen is not None:
        row.marks = keep.mark(row.marks, first, row.last, now_ms)
    ledger.save(row)


def rewrite(ledger: Ledger, command: Rewrite, now_ms: int, durability: Durability) -> Written:
    """Remove what is visible and add records in its place."""
    row = ledger.session(command.session)
    if command.expect is not None or (row is not None and row.last > LAST_MAX):
        _check(command, row, now_ms)
    if row is None:
        row = ledger.add_session(command.session)
    else:
        row.clear(row.state_at(now_ms))
        ledger.remove_messages(row)
    return _add(ledger, row, command, now_ms, durability)


def _check(command: Append | Rewrite, row: Row | None, now_ms: int) -> None:
    end = 0 if row is None else row.end_at(now_ms)
    check_expect(command.expect, end, operation=command.operation, backend=BACKEND)
    if row is not None and row.last + len(command.records) > limits.NUMBER_MAX:
        raise EngineFull(
            f"the session has given {row.last} numbers and can give {limits.NUMBER_MAX} at most. "
            "Nothing was written. Go on in a new session",
            operation=command.operation,
            backend=BACKEND,
        )


def _add(
    ledger: Ledger, row: Row, command: Append | Rewrite, now_ms: int, durability: Durability
) -> Written:
    first, lived, before_ms = row.last + 1, row.state == "live", row.expires_ms
    ledger.add_messages(row, command.records, now_ms)
    if row.state != "live" or row.ttl_ms is not None or command.ttl_ms > 0 or row.floor:
        if row.is_digest:
            ledger.show_name(row, command.session)
        row.state = SessionState.LIVE.value
        row.set_ttl(command.ttl_ms, now_ms)
        ledger.save(row)
        if lived and row.expires_ms != before_ms:
            _move_expiry(ledger, command.session, row, now_ms)
    return Written(first, row.last, durability)


def _move_expiry(ledger: Ledger, session: bytes, row: Row, now_ms: int) -> None:
    """Summaries expire with their session, unless they have expired or are gone already."""
    beside = ledger.session(sublogs_of(session)[1])
    if beside is not None and beside.state_at(now_ms) is SessionState.LIVE:
        beside.ttl_ms, beside.expires_ms = row.ttl_ms, row.expires_ms
        ledger.save(beside)


def derive(ledger: Ledger, command: Derive, now_ms: int, durability: Durability) -> Written:
    """Add a summary, if what it was made from is still there; it expires with that."""
    source = ledger.session(command.session)
    if source is None or not source.floor < command.source <= source.end_at(now_ms):
        raise orphaned(command.source, backend=BACKEND)
    _, sublog = sublogs_of(command.session)
    added = append(ledger, Append(sublog, (command.record,), command.key), now_ms, durability)
    row = ledger.session(sublog)
    if row is not None and not added.repeated:
        row.ttl_ms, row.expires_ms = source.ttl_ms, source.expires_ms
        ledger.save(row)
    return added


def forget(ledger: Ledger, command: Forget, now_ms: int, _durability: Durability) -> Removed:
    """Erase records; the rows stay as tombstones, the keys stay used, both for a time."""
    logs = (command.session, *sublogs_of(command.session))
    if command.lasts is not None:
        rows = [ledger.session(name) for name in logs[:2]]
        if command.lasts != tuple(0 if row is None else row.last for row in rows):
            raise written_since(backend=BACKEND)
    session, *beside = [_erase(ledger, name, now_ms, hide=command.hide) for name in logs]
    known = [facts for facts in (session, *beside) if facts is not None]
    return Removed(
        session.count if session else 0,
        sum(facts.bytes for facts in known),
        memories=sum(facts.count for facts in beside if facts is not None),
        left=(IN_THE_LOG,) if known else (),
    )


def clean(_ledger: Ledger, _command: Clean, _now_ms: int, _durability: Durability) -> Removed:
    """The writer empties the -wal file after the commit."""
    return Removed(0, 0, left=(IN_THE_LOG,))


def _erase(ledger: Ledger, name: bytes, now_ms: int, *, hide: bool) -> Facts | None:
    """What could be seen of a log, which is empty now; None if there never was one."""
    row = ledger.session(name)
    if row is None:
        return None
    visible = row.facts_at(now_ms)
    row.clear(SessionState.FORGOTTEN)
    row.ttl_ms = row.expires_ms = row.gone_ms = None  # from now on, also if it had expired before
    ledger.remove_messages(row)
    if hide and not row.is_digest:
        ledger.hide_name(row, name)
    ledger.save(row)
    return visible


def erase_record(
    ledger: Ledger, command: EraseRecord, now_ms: int, _durability: Durability
) -> Removed:
    """Erase one record where it stands; the numbers of the others stay."""
    row = ledger.session(command.session)
    if row is None or not row.floor < command.number <= row.end_at(now_ms):
        return Removed(0, 0, left=() if row is None else (IN_THE_LOG,))
    size = ledger.erase_record(row, command.number)
    return Removed(0, size or 0, memories=0 if size is None else 1, left=(IN_THE_LOG,))


def extend(ledger: Ledger, command: Extend, now_ms: int, _durability: Durability) -> Position:
    """Add what the index keeps of some records, if it is where the caller saw it."""
    row = ledger.session(command.session)
    if row is None or row.end_at(now_ms) < command.upto:
        return Position()
    if not row.floor - row.trimmed <= command.floor <= row.floor:
        return Position()
    if command.from_scratch:
        ledger.remove_entries(row)
    there = ledger.index_position(row)
    if there.upto != command.after or there.model not in {"", command.model}:
        return there
    entries = [entry for entry in command.entries if entry.seq > row.floor]
    if command.session.startswith(MEMORIES):
        entries = ledger.not_erased(row, entries)
    ledger.add_entries(row, replace(command, entries=entries))
    return Position(command.model, command.upto, command.floor)


def index_position(tables: Tables, command: ReadPosition, now_ms: int) -> Position:
    """How far the index of a log is; nowhere, where nothing can be seen of the log."""
    row = tables.session(command.session)
    return tables.index_position(row) if row is not None and row.end_at(now_ms) else Position()


def search(tables: Tables, command: Search, now_ms: int) -> list[Candidate]:
    """What the index finds in a log that can be seen."""
    row = tables.session(command.session)
    if row is None or not row.end_at(now_ms) or tables.index_position(row).model != command.model:
        return []
    return tables.candidates(row, command)


def read_numbers(tables: Tables, command: ReadNumbers, now_ms: int) -> Sequence[tuple[int, bytes]]:
    """Some records of what is visible."""
    row = tables.session(command.session)
    if row is None or not row.end_at(now_ms):
        return ()
    return tables.picked(row, command.numbers)


def import_session(
    ledger: Ledger, command: ImportSession, now_ms: int, _durability: Durability
) -> bool:
    """Write a whole session, if there is none of that name."""
    if ledger.session(command.session) is not None:
        there = export_session(ledger, ExportSession(command.session), now_ms)
        return not is_there(there, command.copy, backend=BACKEND)
    facts, rows = command.copy.facts, command.copy.rows
    floor = _checked_floor(command.copy)
    row = ledger.add_session(command.session)
    row.ttl_ms, row.expires_ms, row.state = facts.ttl_ms, facts.expires_ms, facts.state.value
    row.floor = row.last = row.cut = floor
    row.base = floor - facts.trimmed
    if row.state_at(now_ms) is SessionState.EXPIRED:
        row.last, rows = facts.last, ()
        row.clear(SessionState.EXPIRED)
    ledger.save(row)
    ledger.add_messages(row, [record for _, record in rows], now_ms)
    for key in command.copy.keys:
        ledger.add_key(row, *key, now_ms)
    return True


def _checked_floor(copy: Copy) -> int:
    """Decided first: what the constraints of the tables refuse fails the group, and goes again alone."""
    facts, rows = copy.facts, copy.rows
    floor = floor_of(copy, backend=BACKEND)
    if not 0 <= floor <= facts.last <= limits.NUMBER_MAX:
        raise unfit("a number that no message can have", backend=BACKEND)
    if facts.state is SessionState.NEVER or (rows and facts.state is not SessionState.LIVE):
        raise unfit(f"{facts.state.value} with {len(rows)} messages", backend=BACKEND)
    if facts.state is SessionState.FORGOTTEN and (facts.ttl_ms, facts.expires_ms) != (None, None):
        raise unfit("forgotten, with a time to live", backend=BACKEND)
    if facts.trimmed and not (0 <= facts.trimmed <= floor and rows):
        raise unfit("more cut off than there was", backend=BACKEND)
    if not all(1 <= first <= last <= facts.last for _, first, last in copy.keys):
        raise unfit("a key of other messages than it has", backend=BACKEND)
    if not _is_time(facts.ttl_ms, 1, limits.TTL_MS_MAX):
        raise unfit("a time to live that nobody can give", backend=BACKEND)
    if not _is_time(facts.expires_ms, 0, limits.EXPIRES_MS_MAX):
        raise unfit("an expiry that no clock shows", backend=BACKEND)
    return floor


def _is_time(value_ms: int | None, low_ms: int, high_ms: int) -> bool:
    return value_ms is None or low_ms <= value_ms <= high_ms


def mark_expired(
    ledger: Ledger, command: MarkExpired, _now_ms: int, _durability: Durability
) -> None:
    """Unless another client has written to it since it was seen. A sweep frees the room later."""
    for name in (command.session, sublogs_of(command.session)[1]):
        row = ledger.session(name)
        if row is not None and _is_due(row, command.seen_ms):
            row.clear(SessionState.EXPIRED)
            ledger.save(row)


def to_mark(tables: Tables, command: Any, reply: object, now_ms: int) -> MarkExpired | None:
    """The note that has to be made of what a read has found expired, if nobody made it yet."""
    is_empty = isinstance(command, ReadNumbers) and not reply  # it does not say why
    if seen_expired(reply) is None and not is_empty:
        return None
    row = tables.session(command.session)
    due = row is not None and _is_due(row, now_ms)
    return MarkExpired(command.session, now_ms) if due else None


def _is_due(row: Row, now_ms: int) -> bool:
    return row.state == "live" and row.state_at(now_ms) is SessionState.EXPIRED


def read(tables: Tables, command: Read, now_ms: int) -> Slice:
    """A page of what is visible."""
    row = tables.session(command.session)
    if row is None:
        return Slice(SessionState.NEVER, 0, ())
    end = row.end_at(now_ms)
    rows: Sequence[tuple[int, bytes]] = ()
    if end:
        rows = tables.records(
            row,
            after=command.after or 0,
            before=command.before,
            limit=command.limit,
            forward=command.forward,
        )
    return Slice(row.state_at(now_ms), end, rows, row.floor, row.trimmed)


def stat(tables: Tables, command: StatSession, now_ms: int) -> Facts:
    """The facts of a session."""
    row = tables.session(command.session)
    return NEVER if row is None else row.facts_at(now_ms)


def names(tables: Tables, command: Names, now_ms: int) -> list[bytes]:
    """A page of session names."""
    return tables.names(
        command.prefix, command.after, command.limit, gone=command.gone, now_ms=now_ms
    )


def export_session(tables: Tables, command: ExportSession, now_ms: int) -> Copy:
    """A whole session."""
    row = tables.session(command.session)
    if row is None:
        return Copy(NEVER, (), ())
    rows: Sequence[tuple[int, bytes]] = ()
    if row.end_at(now_ms):
        rows = tables.records(row, after=0, before=None, limit=None, forward=True)
    return Copy(row.facts_at(now_ms), rows, tables.keys(row))


WRITES: Final[dict[type[Command[Any]], Callable[[Ledger, Any, int, Durability], Any]]] = {
    Append: append,
    Rewrite: rewrite,
    Derive: derive,
    Extend: extend,
    Forget: forget,
    Clean: clean,
    EraseRecord: erase_record,
    ImportSession: import_session,
    MarkExpired: mark_expired,
}
READS: Final[dict[type[Command[Any]], Callable[[Tables, Any, int], Any]]] = {
    Read: read,
    StatSession: stat,
    Names: names,
    ExportSession: export_session,
    ReadNumbers: read_numbers,
    ReadPosition: index_position,
    Search: search,
}
