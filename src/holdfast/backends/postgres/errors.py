"""The driver's errors as ours: not done, or unknown."""

from __future__ import annotations

import re
from typing import Final

import psycopg

from holdfast.errors import (
    Damaged,
    EngineFull,
    EngineUnreachable,
    HoldfastError,
    OutcomeUnknown,
    Refused,
    UsageError,
)

BACKEND: Final = "postgres"


class Contended(EngineUnreachable):
    """The server gave up in favour of another transaction. Nothing was written."""


class ConnectionLost(EngineUnreachable):
    """The connection broke while something was read. Nothing was written."""


class Locked(EngineUnreachable):
    """Another transaction held the session's lock for too long. Nothing was written."""


class NoLongerKept(Refused):
    """The server does not keep what is required; just after a failover, not yet. Nothing was written."""


class IndexGone(Refused):
    """Another program dropped tables of the index, which are created again. Nothing was written."""


class ReplyTimeout(psycopg.OperationalError):
    """The server gave no answer in time."""


INDEX_TABLES: Final = ("followed", "entries", "words")
"""`followed` has the positions of indexes; the name is that of the stored schema."""
_INDEX_TABLE: Final = re.compile(rf"\.({'|'.join(INDEX_TABLES)})\b")
_UNKNOWN: Final = "It may or may not have happened: retry it with the same key"
_BY_STATE: Final[tuple[tuple[str, type[HoldfastError], str], ...]] = (
    # The longer prefix stands before the shorter.
    ("HF001", NoLongerKept, "the server no longer keeps what is required; nothing was written. Set it back"),
    ("40", Contended, "the server gave up in favour of another transaction; nothing was written. Try again"),
    ("23514", UsageError, "no session can have such numbers; nothing was written"),
    ("22", UsageError, "a value that the server cannot hold; nothing was written"),
    ("23505", Contended, "another client used that key at the same time; nothing was written. Try again"),
    ("53100", EngineFull, "the server's disk is full; nothing was written. Free some room and try again"),
    ("53200", EngineFull, "the server is out of memory; nothing was written. Try again, or write less at once"),
    ("53", EngineUnreachable, "the server has no room for another connection; nothing was written. Try again"),
    ("54", EngineFull, "more than the server can take at once; nothing was written. Write less at once"),
    ("25006", Refused, "the server is read-only (a standby, or default_transaction_read_only); nothing was written"),
    ("42501", Refused, "the role may not do that; nothing was written. Grant it what docs/howto/postgres.md lists"),
    ("55P03", Locked, "another transaction held the session's lock for too long; nothing was written. Try again"),
    ("57014", EngineUnreachable, "the server stopped the statement (its time limit, or an operator); nothing was written. Try again"),
    ("57P", EngineUnreachable, "the server is going down or coming up; nothing was written. Try again"),
    ("28", EngineUnreachable, "the server refused the role or its password; nothing was written. Correct the URL"),
    ("3D000", EngineUnreachable, "there is no such database; nothing was written. Create it, or correct the URL"),
    ("XX001", Damaged, "the server found its own files damaged; nothing was written. Keep a copy, then restore a backup"),
    ("XX002", Damaged, "the server found an index damaged; nothing was written. Run REINDEX"),
    ("42P01", Refused, "the tables of holdfast are gone from that schema; nothing was written. Connect again"),
    ("42883", Refused, "the functions of holdfast are gone from that schema; nothing was written. Connect again"),
    ("3F000", Refused, "the schema of holdfast is gone; nothing was written. Connect again"),
    ("42P07", UsageError, "that schema holds tables of another program; nothing was written. Name a schema of its own in the URL"),
)  # fmt: skip


def mapped(error: BaseException, operation: str, *, writes: bool) -> HoldfastError:
    """Our error for one that came after a statement was sent.

    The server rolls a statement back when it reports an ERROR: definite. FATAL and PANIC
    can come after the commit (a shutdown while it waits for a standby), and a lost
    connection at any time: unknown. So is, for a write, whatever is not in the table.
    """
    kind, words = _kind_and_words(error, writes=writes)
    return _error(kind, words, error, operation)


def unreachable(error: Exception, operation: str, words: str) -> HoldfastError:
    """Our error for a connection that could not be opened: nothing was sent. `words` are clean."""
    kind, meaning = _by_state(getattr(error, "sqlstate", None)) or (
        EngineUnreachable,
        "no connection to the server; nothing was written",
    )
    if kind is Refused:
        kind = EngineUnreachable
    mine = kind(f"{meaning} ({words})", operation=operation, backend=BACKEND)
    mine.__cause__ = error
    return mine


def _kind_and_words(error: BaseException, *, writes: bool) -> tuple[type[HoldfastError], str]:
    if isinstance(error, ReplyTimeout):
        return (OutcomeUnknown, f"no answer came in time. {_UNKNOWN}") if writes else (
            EngineUnreachable, "no answer came in time")  # fmt: skip
    known = (
        _by_state(error.sqlstate)
        if isinstance(error, psycopg.Error) and _rolled_back(error)
        else None
    )
    if known is not None:
        if isinstance(error, psycopg.errors.UndefinedTable) and _INDEX_TABLE.search(str(error)):
            return IndexGone, known[1]
        return known
    if not writes:
        return ConnectionLost, "the connection was lost, or the server failed"
    return (
        OutcomeUnknown,
        f"the connection was lost, or the server failed in an unknown way. {_UNKNOWN}",
    )


def _rolled_back(error: psycopg.Error) -> bool:
    return error.diag.severity_nonlocalized == "ERROR"


def _by_state(state: str | None) -> tuple[type[HoldfastError], str] | None:
    for prefix, kind, words in _BY_STATE:
        if state is not None and state.startswith(prefix):
            return kind, words
    return None


def _error(
    kind: type[HoldfastError], words: str, error: BaseException, operation: str
) -> HoldfastError:
    mapped_error = kind(f"{words} ({said(error)})", operation=operation, backend=BACKEND)
    mapped_error.__cause__ = error
    return mapped_error


def said(error: BaseException) -> str:
    """The first line of what the driver says: the lines after it may quote what was stored."""
    state = getattr(error, "sqlstate", None)
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}{f' {state}' if state else ''}: {lines[0]}"
