"""The one writing connection of a process: groups of writes, each group in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

import apsw

from holdfast.backends.sqlite import index, statements
from holdfast.backends.sqlite.errors import BACKEND, mapped
from holdfast.backends.sqlite.ledger import Ledger
from holdfast.backends.sqlite.tables import clock_ms
from holdfast.commands import Clean, Command, EraseRecord, Forget, MarkExpired
from holdfast.errors import EngineUnreachable, HoldfastError, OutcomeUnknown
from holdfast.model import Durability

R = TypeVar("R")
SWEEP_INTERVAL_S: Final = 1.0
SWEEP_MESSAGES_MAX: Final = 1000
SCRUB_TIMEOUT_S: Final = 0.25
CLEANING_TIMEOUT_S: Final = 5.0
"""The same where a forget was asked to clean the files before it returns."""
EMPTY_INTERVAL_S: Final = 1.0
"""So often at most the -wal file is emptied because of what was removed without a forget."""
SCRUB_POLL_S: Final = 0.002
NOTE_TIMEOUT_S: Final = 0.25
"""So long at most a read waits for the note that what it saw has expired."""
FRAMES_MAX: Final = 1000
"""So many pages in the -wal file, and they are folded in."""
UNANSWERED: Final = object()
ERASING: Final = (Forget, EraseRecord, Clean)


class Pending:
    """One write of a group: its command, then either its reply or its error."""

    __slots__ = ("command", "error", "reply")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.reply: Any = UNANSWERED
        self.error: HoldfastError | None = None

    @property
    def is_answered(self) -> bool:
        """Otherwise nobody knows: that is no ack."""
        return self.error is not None or self.reply is not UNANSWERED

    @property
    def operation(self) -> str:
        """Of its command."""
        return self.command.operation


class Displaced(Exception):
    """The files have lost their names; nothing was written."""


class Writer:
    """Carries out groups of writes; every write gets a reply or an error, and none both."""

    def __init__(
        self,
        connection: apsw.Connection,
        namespace: bytes,
        *,
        durability: Durability,
        busy_timeout_s: float,
        in_place: Callable[[], bool],
        keys_kept_ms: int = 0,
    ) -> None:
        self._connection = connection
        self._in_place = in_place
        self._execute = connection.cursor().execute
        self._ledger = Ledger(connection, namespace, keys_kept_ms)
        self._durability = durability
        self._forgot = False
        self._busy_timeout_s = busy_timeout_s
        self._sweep_at_s = self._empty_at_s = 0.0
        self._to_empty = False
        """The -wal file holds pages from before something was removed."""
        self.frames = 0
        """In the -wal file after the last commit; 0 if that wrote nothing."""
        connection.set_wal_hook(self._committed)

    def commit(self, group: Sequence[Pending], *, again: bool = True) -> None:
        """Apply a group in one transaction and sync it once.

        Where tables of the index are gone they are created again, and it is applied again. Raises
        Displaced if the files lost their names while this waited for its turn: others may have
        gone on with the same -wal file and another database.
        """
        committing = False
        self.frames = 0
        try:
            if self._connection.in_transaction or not self._ledger.is_clean:
                self._roll_back()  # an interrupt came in the way of it
            self._begin(group)
            self._apply(group)
            committing = True
            self._execute("COMMIT")
            self._ledger.committed()
        except apsw.Error as error:
            self._roll_back()
            if again and index.is_missing(error) and self.remake_index() is None:
                self.commit(group, again=False)
            else:
                self._explain(group, error, committing=committing)
        except Displaced:
            self._roll_back()
            raise
        except BaseException as error:
            self._roll_back()
            _fail(group, _interrupted(error, committing=committing))
            raise
        else:
            self._to_empty |= self._ledger.has_removed
            if self._forgot:
                self._scrub(group)
            elif self._to_empty and time.monotonic() >= self._empty_at_s:
                self._empty(0.0)

    def _begin(self, group: Sequence[Pending]) -> None:
        if all(isinstance(pending.command, MarkExpired) for pending in group):
            self._within(NOTE_TIMEOUT_S, lambda: self._execute("BEGIN IMMEDIATE"))
        else:
            self._execute("BEGIN IMMEDIATE")
        if not self._in_place():
            raise Displaced

    def remake_index(self) -> apsw.Error | None:
        """The tables of the index were gone: now they are there and empty, or why they are not."""
        try:
            index.remake(self._connection)
        except apsw.Error as error:
            return error
        return None

    def is_sole(self) -> bool:
        """Whether nobody else has committed since our last commit."""
        try:
            self._execute("PRAGMA user_version").fetchall()  # looks at the index again
        except apsw.Error:
            return False
        return self._ledger.is_current()

    def fold_in(self) -> bool:
        """Now and then move what is in the -wal file into the database; whether it was tried.

        Not inside COMMIT, as SQLite would: the files are looked at first, since pages that
        another program cut off would be moved as zeros.
        """
        if self.frames < FRAMES_MAX:
            return False
        with suppress(apsw.Error):  # then a later one does it; nothing depends on it
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return True

    def finish(self) -> None:
        """What a later write would do for the -wal file: other processes do not know of it."""
        if self._to_empty:
            self._empty(SCRUB_TIMEOUT_S)

    def close(self) -> None:
        """Close the connection; the last one to close folds the -wal file in."""
        self._connection.close()

    def _committed(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self.frames = frames
        return apsw.SQLITE_OK

    def _apply(self, group: Sequence[Pending]) -> None:
        now_ms = clock_ms()
        self._ledger.begin()
        self._forgot = False
        for pending in group:
            command = pending.command
            pending.error = None
            try:
                pending.reply = statements.WRITES[type(command)](
                    self._ledger, command, now_ms, self._durability
                )
                self._forgot |= isinstance(command, ERASING)
            except HoldfastError as error:  # a decision: it was taken before anything changed
                pending.error = error
        if time.monotonic() >= self._sweep_at_s:
            self._sweep(now_ms)
        self._ledger.flush()

    def _sweep(self, now_ms: int) -> None:
        """Free the room of a session that is gone now and then, a bounded bit inside a write."""
        swept = self._ledger.sweep(now_ms, SWEEP_MESSAGES_MAX)
        self._sweep_at_s = time.monotonic() + (0.0 if swept else SWEEP_INTERVAL_S)

    def _scrub(self, group: Sequence[Pending]) -> None:
        """Empty the -wal file, so that no copy of what was forgotten is left in it.

        Deleted rows were overwritten in the commit. A reader that is at work holds the old
        pages; then a later write does it, and `left` says that it is not done yet.
        """
        erasing = [pending for pending in group if isinstance(pending.command, ERASING)]
        patient = any(isinstance(one.command, Clean) for one in erasing)
        if self._empty(CLEANING_TIMEOUT_S if patient else SCRUB_TIMEOUT_S):
            for pending in erasing:
                if pending.error is None:
                    pending.reply = replace(pending.reply, left=())

    def _within(self, timeout_s: float, work: Callable[[], R]) -> R:
        """Do it with that patience for others who hold the lock."""
        try:
            self._connection.set_busy_timeout(round(timeout_s * 1000))
            return work()
        finally:
            self._connection.set_busy_timeout(round(self._busy_timeout_s * 1000))

    def _empty(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        emptied = self._within(0.0, lambda: self._emptied(deadline_s))
        self._to_empty, self._empty_at_s = not emptied, time.monotonic() + EMPTY_INTERVAL_S
        self.frames = 0 if emptied else self.frames
        return emptied

    def _emptied(self, deadline_s: float) -> bool:
        """Whether the -wal file is empty now.

        The files are looked at before each attempt: SQLite itself, while it waits, would not see
        that others went on with the same -wal file and another database.
        """
        while self._in_place():
            with suppress(apsw.Error):
                [(busy, _, _)] = self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
                if not busy:
                    return True
            if time.monotonic() > deadline_s:
                return False
            time.sleep(SCRUB_POLL_S)
        return False

    def _explain(self, group: Sequence[Pending], error: apsw.Error, *, committing: bool) -> None:
        if isinstance(error, apsw.FullError | apsw.ConstraintError) and len(group) > 1:
            for pending in group:  # the one that is unfit or too large must not take others with it
                try:
                    self.commit((pending,))
                except Displaced:  # those before it are committed, so the group cannot go again
                    pending.error = EngineUnreachable(
                        "the files of the database were deleted or replaced; nothing was written. "
                        "Try again",
                        backend=BACKEND,
                    )
            return
        for pending in group:
            pending.error = mapped(error, pending.command.operation, committing=committing)

    def _roll_back(self) -> None:
        self._ledger.discard()
        if self._connection.in_transaction:
            try:
                self._execute("ROLLBACK")
            except apsw.Error:
                # SQLite has rolled back by itself, or will when the connection is closed; an
                # uncommitted transaction is visible to nobody either way.
                return


def _fail(group: Sequence[Pending], error: HoldfastError) -> None:
    for pending in group:
        pending.error = error


def _interrupted(error: BaseException, *, committing: bool) -> HoldfastError:
    kind: Any = OutcomeUnknown if committing else EngineUnreachable
    outcome = "it may or may not have happened" if committing else "nothing was written"
    mapped_error: HoldfastError = kind(
        f"the write was interrupted; {outcome} ({error!r})", backend=BACKEND
    )
    mapped_error.__cause__ = error
    return mapped_error
