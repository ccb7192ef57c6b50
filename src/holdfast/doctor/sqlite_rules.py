"""What a SQLite file would lose, from its header and its place. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.doctor import conversation_tables, storage
from holdfast.doctor.conversation_tables import Table
from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity
from holdfast.doctor.storage import Process, Storage

HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_WAL: Final = 2
FIRST_AFFECTED: Final = (3, 7, 0)
MENDED: Final = (3, 51, 3)
BACKPORTS: Final = ((3, 50, 7), (3, 44, 6))
"""Releases of older lines that have the correction, too."""

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Header:
    """What the first hundred bytes of a database say."""

    wal: bool
    page_bytes: int
    writer: Version
    """The SQLite that wrote last."""
    application_id: int
    user_version: int


@dataclass(frozen=True, slots=True)
class SqliteSeen:
    """What is to be seen of a file from outside."""

    header: Header
    place: Storage
    processes: Sequence[Process] = ()
    is_holdfast: bool = False
    """Whether it is a store of holdfast, whose every connection has synchronous=FULL."""
    tables: Sequence[Table] | None = None
    """Those of another program; None where they cannot be read."""
    standard: Version = MENDED
    """The SQLite of this Python's standard library."""


def read_header(data: bytes) -> Header | None:
    """The header; None where the file is no database."""
    if len(data) < HEADER_BYTES or not data.startswith(_MAGIC):
        return None
    (page,) = struct.unpack_from(">H", data, 16)
    (user_version,) = struct.unpack_from(">I", data, 60)
    (application_id,) = struct.unpack_from(">I", data, 68)
    (writer,) = struct.unpack_from(">I", data, 96)
    return Header(
        wal=data[18] == _WAL,
        page_bytes=65_536 if page == 1 else page,
        writer=(writer // 1_000_000, writer // 1000 % 1000, writer % 1000),
        application_id=application_id,
        user_version=user_version,
    )


def has_wal_reset_bug(version: Version) -> bool:
    """Whether a SQLite may damage a file when two connections write and checkpoint at once."""
    if any(version[:2] == mended[:2] and version >= mended for mended in BACKPORTS):
        return False
    return FIRST_AFFECTED <= version < MENDED


def of_settings(settings: Mapping[str, str]) -> Opinion:
    """The opinion on pragmas alone; what is missing is as our store sets it."""
    found = Opinion(absent={Hazard.EVICTION})
    mode = settings.get("journal_mode", "wal").lower()
    sync = settings.get("synchronous", "full").lower()
    if mode in ("memory", "off"):
        found.findings.append(_unsafe_journal(mode))
    elif sync == "off" or (mode == "wal" and sync == "normal"):
        found.findings.append(_unsynced(mode, sync))
    elif mode != "wal" and sync != "extra":
        found.findings.append(_ROLLBACK)
    return found


def judge(seen: SqliteSeen) -> Opinion:
    """Every finding about one file.

    `synchronous` belongs to each connection and is in no file: it is taken as what a writer gets
    that sets nothing, which is FULL, and what our store sets.
    """
    found = Opinion(absent={Hazard.EVICTION, Hazard.EXPIRY, Hazard.FAILOVER, Hazard.STALENESS})
    found.add(of_settings({"journal_mode": "wal" if seen.header.wal else "delete"}))
    if seen.header.wal and not seen.is_holdfast:
        found.findings.append(_PER_CONNECTION)
    if not seen.is_holdfast:
        found.add(_of_strangers(seen.tables))
    found.findings += _versions(seen)
    found.add(storage.judge(seen.place))
    return found


def _of_strangers(found: Sequence[Table] | None) -> Opinion:
    if found is None:
        return Opinion(unknown={Hazard.ORDER, Hazard.CONCURRENCY})
    if not any(table.session for table in found):
        return Opinion(absent={Hazard.ORDER, Hazard.CONCURRENCY})
    # The commands are PostgreSQL's: SQLite cannot add a key to a table that is there.
    return Opinion(
        [replace(one, commands=()) for one in conversation_tables.judge(found, one_writer=True)]
    )


_ROLLBACK: Final = Finding(
    Severity.CRITICAL,
    (Hazard.POWER,),
    "the last commit at power loss, nearly every time",
    "with a rollback journal, a commit is the removal of the journal's name, and at "
    "synchronous=FULL the directory is not synced after it: the journal comes back and undoes it",
    "journal_mode DELETE (or TRUNCATE, PERSIST), synchronous at most FULL unless a writer set EXTRA",
    "Change the file to WAL once, or let every connection set synchronous=EXTRA",
    ("PRAGMA journal_mode=WAL;", "PRAGMA synchronous=FULL;"),
)
_PER_CONNECTION: Final = Finding(
    Severity.NOTE,
    (),
    "commits since the last checkpoint at power loss, if a writer says synchronous=NORMAL",
    "synchronous is a setting of each connection, and is not in the file; a writer that sets "
    "nothing has FULL, as holdfast's own store has, but many frameworks set NORMAL",
    "journal_mode WAL, synchronous not to be seen from outside",
    "Look in the code that opens the file: PRAGMA synchronous must be FULL",
    ("PRAGMA synchronous=FULL;",),
)


def _unsynced(mode: str, sync: str) -> Finding:
    return Finding(
        Severity.CRITICAL,
        (Hazard.POWER,),
        "everything since the last checkpoint, at power loss",
        "commits are not synced before they are acknowledged",
        f"journal_mode {mode.upper()}, synchronous {sync.upper()}",
        "Set synchronous=FULL on every connection",
        ("PRAGMA synchronous=FULL;",),
    )


def _unsafe_journal(mode: str) -> Finding:
    return Finding(
        Severity.CRITICAL,
        (Hazard.SIGKILL, Hazard.POWER),
        "the whole database, if the writer ends in the middle of a commit",
        "there is no journal on disk from which a half written commit could be undone",
        f"journal_mode {mode.upper()}",
        "Change the file to WAL",
        ("PRAGMA journal_mode=WAL;",),
    )


def _versions(seen: SqliteSeen) -> list[Finding]:
    """The WAL-reset bug, in who wrote last and in who may come next."""
    if not seen.header.wal:
        return []
    if has_wal_reset_bug(seen.header.writer):
        several = len(seen.processes) > 1
        return [
            Finding(
                Severity.CRITICAL if several else Severity.WARNING,
                (Hazard.CONCURRENCY,),
                "the database, rarely: it is damaged when several connections write and "
                "checkpoint at once",
                "the SQLite that wrote last has the WAL-reset bug (3.7.0 to 3.51.2)",
                f"last written by SQLite {words(seen.header.writer)}"
                + (f", {len(seen.processes)} processes have it open" if several else ""),
                "Upgrade the SQLite of every writer to 3.51.3 or later (3.50.7 and 3.44.6 have the "
                "correction, too); apsw brings its own",
                ("pip install --upgrade apsw",),
            )
        ]
    if has_wal_reset_bug(seen.standard):
        return [
            Finding(
                Severity.NOTE,
                (),
                "nothing by those who wrote so far",
                "this Python's sqlite3 module has the WAL-reset bug; programs that write to this file "
                "with it beside others may damage it, rarely",
                f"sqlite3.sqlite_version {words(seen.standard)}",
                "Write to this file through holdfast or apsw only",
            )
        ]
    return []


def words(version: Version) -> str:
    """`3.51.3`."""
    return ".".join(map(str, version))
