"""The driver's errors as ours: not done, or unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from holdfast.errors import (
    Damaged,
    EngineFull,
    EngineUnreachable,
    HoldfastError,
    OutcomeUnknown,
    Refused,
    UsageError,
)

BACKEND: Final = "sqlite"

_WORDS: Final[tuple[tuple[tuple[type[apsw.Error], ...], type[HoldfastError], str], ...]] = (
    (
        (apsw.FullError,),
        EngineFull,
        "the disk is full; nothing was written. Free some room and try again",
    ),
    (
        (apsw.BusyError, apsw.LockedError),
        EngineUnreachable,
        "another process kept the lock for longer than we wait; nothing was written. Try again",
    ),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        Refused,
        "the database cannot be written to; nothing was written. Make file and directory writable",
    ),
    (
        (apsw.NotADBError,),
        Damaged,
        "the file is no SQLite database (another program's, or damaged); nothing was written",
    ),
    (
        (apsw.CorruptError, apsw.FormatError),
        Damaged,
        "the database file is damaged; nothing was written. Keep a copy, then restore a backup",
    ),
    (
        (apsw.ConstraintError,),
        UsageError,
        "no session can have such numbers; nothing was written",
    ),
    (
        (apsw.CantOpenError,),
        EngineUnreachable,
        "the database file cannot be opened; nothing was written",
    ),
)
_CUT: Final = (
    "a file of the database is shorter than it should be: another program cut it; nothing was written. "
    "Keep a copy, then restore a backup"
)
_FAILED: Final = "the engine failed; nothing was written"
_COMMIT_FAILED: Final = (
    "the commit failed on its way to the disk. It may or may not have happened: "
    "retry it with the same key"
)


def mapped(error: apsw.Error, operation: str, *, committing: bool = False) -> HoldfastError:
    """Our error for one of the driver's.

    Before COMMIT SQLite rolls back whatever happens: definite. At COMMIT a failed sync
    leaves frames in the -wal file, where recovery may find them whole: unknown. Only a full
    disk is definite there too, since then the frame that commits was not written.
    """
    kind, words = _kind_and_words(error)
    if committing and kind is not EngineFull:
        kind, words = OutcomeUnknown, _COMMIT_FAILED
    mapped_error = kind(
        f"{words} ({type(error).__name__}: {error})", operation=operation, backend=BACKEND
    )
    mapped_error.__cause__ = error
    return mapped_error


def _kind_and_words(error: apsw.Error) -> tuple[type[HoldfastError], str]:
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ:
        return Damaged, _CUT
    for theirs, kind, words in _WORDS:
        if isinstance(error, theirs):
            return kind, words
    return EngineUnreachable, _FAILED


def again_and_again(path: Path) -> EngineUnreachable:
    """Of a database that does not stay where it is."""
    return EngineUnreachable(
        f"{path}: its files were deleted or replaced again and again. Nothing was written. Find out "
        "who does that",
        backend=BACKEND,
    )
