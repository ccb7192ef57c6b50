"""The embedded default: one file, one log, safe for threads, tasks and processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from holdfast.backends.group_commit import LOOK_S, LOOK_S_MAX, GroupCommit
from holdfast.backends.loops import PerLoop
from holdfast.backends.sqlite import index, statements
from holdfast.backends.sqlite.driver import check_whole, close_as_it_is, open_database
from holdfast.backends.sqlite.durability import (
    EXACT_FILE_SYSTEMS,
    SqliteSetup,
    durability_on,
)
from holdfast.backends.sqlite.errors import BACKEND, again_and_again, mapped
from holdfast.backends.sqlite.notes import Notes
from holdfast.backends.sqlite.pool import Pool
from holdfast.backends.sqlite.rescue import put_back
from holdfast.backends.sqlite.tables import Tables, clock_ms
from holdfast.backends.sqlite.watch import REPLACED, File, Harm, Identity, Watch
from holdfast.backends.sqlite.writer import Displaced, Pending, Writer
from holdfast.backends.writes import ServedWrite, ThreadWrite, Write, tell_loops, wake_each
from holdfast.commands import Command, MarkExpired
from holdfast.errors import (
    EngineUnreachable,
    HoldfastError,
    NotApplied,
    OutcomeUnknown,
    StoreClosed,
)
from holdfast.linux import file_system_of

R = TypeVar("R")
RETURN_TIMEOUT_S: Final = 5.0
REOPENINGS_MAX: Final = 4

GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
QUEUE_TIMEOUT_S: Final = 60.0
"""How long a write may wait for those before it, and then for its own outcome."""
CLOSE_POLL_S: Final = 0.001


class Database:
    """One opened file: its writer, its readers, and which files they have open."""

    def __init__(
        self,
        path: Path,
        namespace: bytes,
        *,
        create: bool,
        check: bool,
        busy_timeout_s: float,
        keys_kept_ms: int,
    ) -> None:
        self.connection = open_database(path, create=create, busy_timeout_s=busy_timeout_s)
        self.file_system = file_system_of(path)
        self.durability = durability_on(self.file_system)
        try:
            exact_times = self.file_system in EXACT_FILE_SYSTEMS
            self.watch = Watch(path, self.connection, exact_times=exact_times)
            if check:
                check_whole(self.connection, path)
        except BaseException:
            close_as_it_is(self.connection)
            raise
        self.writer = Writer(
            self.connection,
            namespace,
            durability=self.durability,
            busy_timeout_s=busy_timeout_s,
            in_place=lambda: self.watch.harm_now() is None,
            keys_kept_ms=keys_kept_ms,
        )
        self.pool = Pool(path, namespace, busy_timeout_s=busy_timeout_s)
        self.retired = False
        self._log_left: Identity | None = None

    def commit(self, group: Sequence[Pending]) -> Harm | None:
        """Apply a group, then look whether its files are still those that have the names."""
        self.writer.commit(group)
        harm = self.watch.harm_now()
        if harm is None and self.writer.frames:
            harm = self.watch.log_harm(self.connection, self.writer.frames)
            if harm is None and self.writer.fold_in():
                return self.watch.harm()  # the database has changed now, and by us
        return harm

    def give_up(self, harm: Harm) -> None:
        """Never use it again; raise if acknowledged writes may be lost with it.

        While no file has the database's name, nothing is given up: it may come back.
        """
        if harm.file is File.DATABASE and harm.gone:
            raise EngineUnreachable(
                f"{harm}. Nothing was written. Put it back; an empty one is not created in its "
                "place",
                backend=BACKEND,
            )
        lost = self._lost(harm)
        self.retire()
        if lost is not None:
            raise EngineUnreachable(
                f"{lost}. Nothing was written now, and the next call goes on with the files that "
                "are there then",
                backend=BACKEND,
            )

    def _lost(self, harm: Harm) -> str | None:
        """What is lost, in words; None if all that was acknowledged is in files with names."""
        if harm.file is File.DATABASE and not harm.cut:
            return f"{harm}. What is only in the old one is not in it"
        if harm.file is File.LOG and harm.cut:
            return f"{harm}. Writes acknowledged since it was last folded in may be lost"
        if not harm.cut and (why := put_back(self.watch, harm, self._is_sole)) is not None:
            return f"{harm}, and {why}. Writes acknowledged lately may be lost"
        self._log_left = self.watch.named_log()
        return None

    def _is_sole(self) -> bool:
        return not self.retired and self.writer.is_sole()

    def log_is_there(self) -> bool:
        """Whether the -wal file that it left still has its name, if it left one."""
        return self._log_left in {None, self.watch.named_log()}

    def put_back_again(self) -> None:
        """The -wal file that it left may have been deleted meanwhile."""
        if self.log_is_there():
            return
        lost = self._lost(Harm(File.LOG, self.watch.names[File.LOG], REPLACED))
        if lost is not None:
            self._log_left = None
            raise EngineUnreachable(f"{lost}. Nothing was written now", backend=BACKEND)

    def retire(self) -> None:
        """Close it, and change no file: the names may lead to others by now."""
        self.retired = True
        self.pool.close()
        self.pool.wait_returned(RETURN_TIMEOUT_S)
        close_as_it_is(self.connection)

    def close(self) -> None:
        """Close every connection; raise if acknowledged writes are lost with them."""
        harm = None if self.retired else self.watch.harm()
        try:
            if harm is not None and harm.file is not File.DATABASE:
                self.give_up(harm)
            elif harm is None and not self.retired:
                self.writer.finish()
        finally:
            if harm is not None and not self.retired:
                self.retire()
            self.watch.close()
            if not self.retired:
                self.pool.close()
                self.writer.close()


class SqliteBackend(SqliteSetup):
    """Commands on one SQLite file, for every thread of this process."""

    def __init__(
        self,
        path: Path,
        *,
        namespace: bytes,
        create: bool = True,
        busy_timeout_s: float = 5.0,
        keys_kept_ms: int = 0,
    ) -> None:
        self.path = path
        self._namespace = namespace
        self._times: Any = {"busy_timeout_s": busy_timeout_s, "keys_kept_ms": keys_kept_ms}
        self._process, self._closed = os.getpid(), False
        self._opening = threading.Lock()
        self._writing = threading.Lock()
        self._database = self._open(create=create)
        self._group = GroupCommit(
            backend=BACKEND,
            under_way_max=1,
            bytes_max=GROUP_BYTES_MAX,
            size=_size,
            queue_timeout_s=QUEUE_TIMEOUT_S,
            outcome_timeout_s=QUEUE_TIMEOUT_S,
            wake=self._wake,
        )
        self._thread: threading.Thread | None = None
        """Writes for tasks, so that no event loop waits for a disk."""
        self._starting = threading.Lock()
        self._worker = ThreadWrite(None)
        self._handed_over: list[ServedWrite] = []
        self._handed_over_again_s = 0.0
        self._notes = Notes(lambda note: self._group.run(note, self._carry))
        self._looks = PerLoop(lambda: [0.0])
        """Until when a timer looks whether any write has waited too long."""
        self.durability = self._database.durability
        self.file_system = self._database.file_system

    def execute(self, command: Command[R]) -> R:
        """Carry out one command and return when it is done."""
        self.check_usable()
        if not command.writes:
            read, note = self._read(command)
            self._notes.make(note)
            return read
        reply: R = self._group.run(ThreadWrite(Pending(command)), self._carry)
        return reply

    def submit(self, command: Command[R]) -> asyncio.Future[R]:
        """Queue a write for a task of the running event loop; the thread carries it out.

        Nothing waits for this call, so an interrupt at any point of it holds nobody up.
        """
        self.check_usable()
        write = ServedWrite(Pending(command), asyncio.get_running_loop())
        self._group.enter(write)
        if self._looks.here()[0] < time.monotonic():
            self._look_later(write.loop)
        self._call_worker()
        return write.future

    def close(self) -> None:
        """Finish what is queued, then close every connection."""
        if self._process != os.getpid():
            return  # they are the parent's: closing them here could break its locks
        self._group.close()
        if not self._group.is_idle() and self._thread is not None:
            self._call_worker()  # an interrupt may have swallowed the last call
        deadline_s = time.monotonic() + QUEUE_TIMEOUT_S
        while not self._group.is_idle() and time.monotonic() < deadline_s:
            time.sleep(CLOSE_POLL_S)
        with self._writing, self._opening:
            if not self._closed:
                self._closed = True
                self._database.close()
        self._worker.wake()

    def _call_worker(self) -> None:
        """Let the thread look for work; it is there from the first write on."""
        if not self._has_thread() and not self._start_thread():
            self._serve(ThreadWrite(None))  # no more threads: then the event loop has to wait
        self._worker.wake()

    def _has_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start_thread(self) -> bool:
        """Whether it runs. The event loops of several threads may come at once."""
        with self._starting:
            if self._has_thread():
                return True
            # An interrupt may have left a thread that nobody knows: it ends when it is woken.
            last, self._worker = self._worker, ThreadWrite(None)
            last.wake()
            name = "holdfast-sqlite-writer"
            self._thread = threading.Thread(
                target=self._work, args=(self._worker,), name=name, daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:
                return False
        return True

    def _work(self, worker: ThreadWrite) -> None:
        while not self._closed and self._worker is worker:
            self._serve(worker)
            if not worker.wait(LOOK_S if self._handed_over else -1):
                self._wake(())

    def _serve(self, worker: ThreadWrite) -> None:
        try:
            self._group.serve(worker, self._carry)
        except BaseException:
            worker.abandoned = True
            self._group.pass_on(worker)
            raise

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all writes of a loop; if an interrupt swallows it, the next write has one."""
        self._looks.here()[0] = time.monotonic() + 2 * LOOK_S_MAX
        loop.call_later(LOOK_S_MAX, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whether any has waited too long: the thread itself may be stuck, with a disk."""
        self._looks.here()[0] = 0.0
        late = self._group.give_up()
        wake_each(one for one in late if isinstance(one, ServedWrite) and one.loop is loop)
        if not self._group.is_idle():
            self._look_later(loop)

    def _wake(self, writes: Iterable[Write]) -> None:
        """An event loop swallows an interrupt that comes while it hands them over: it is told again.

        One that does not run now is not: it has what it was told before, and would only keep more.
        """
        handed_over = [
            one for one in self._handed_over if not (one.future.done() or one.loop.is_closed())
        ]
        now_s = time.monotonic()
        if now_s - self._handed_over_again_s > LOOK_S:
            self._handed_over_again_s = now_s
            tell_loops(one for one in handed_over if one.loop.is_running())
        self._handed_over = handed_over + tell_loops(writes)

    def _carry(self, writes: Sequence[Write]) -> None:
        pending: list[Pending] = [write.payload for write in writes]
        try:
            with self._writing:
                self._commit(pending)
        except BaseException:
            for write, one in zip(writes, pending, strict=True):
                write.again = isinstance(one.error, NotApplied)
            raise
        for write, one in zip(writes, pending, strict=True):
            if one.is_answered:
                write.settle(one.reply, one.error)

    def _commit(self, group: Sequence[Pending]) -> None:
        try:
            harm = self._commit_in_place(group)
        except HoldfastError as error:
            for pending in group:
                pending.error = error
            return
        if harm is not None:
            self._doubt(group, harm)

    def _commit_in_place(self, group: Sequence[Pending]) -> Harm | None:
        for _ in range(REOPENINGS_MAX):
            database = self._healed(self._database.watch.harm_now())
            with suppress(Displaced):
                return database.commit(group)
        raise again_and_again(self.path)

    def _doubt(self, group: Sequence[Pending], harm: Harm) -> None:
        """It went into files that lost their names: an ack only if they have them again."""
        try:
            self._healed(harm)
        except HoldfastError as error:
            for pending in group:
                if pending.error is None:
                    pending.error = OutcomeUnknown(
                        f"{harm}, while this was written. It may or may not be kept: retry it "
                        f"with the same key ({error})",
                        operation=pending.command.operation,
                        backend=BACKEND,
                    )
                    pending.error.__cause__ = error

    def _read(self, command: Command[R]) -> tuple[R, MarkExpired | None]:
        database = self._database
        if (harm := database.watch.harm_lately()) is not None or database.retired:
            with self._writing:
                database = self._healed(self._database.watch.harm_lately() or harm)
        try:
            try:
                return _read_at_once(database, command)
            except apsw.SQLError as error:
                if not index.is_missing(error):
                    raise
                with self._writing:
                    database.writer.remake_index()
                return _read_at_once(database, command)
        except apsw.Error as error:
            raise mapped(error, command.operation) from error
        except StoreClosed:
            if database.retired and not self._closed:
                return self._read(command)
            raise

    def _healed(self, harm: Harm | None) -> Database:
        """The database with its files where they were, or others that came into their place.

        The caller keeps every writer out.
        """
        if harm is None and not self._database.retired:
            return self._database
        with self._opening:
            if self._closed:
                self._refuse()
            old = self._database
            if harm is not None and not old.retired:
                old.give_up(harm)
            for _ in range(REOPENINGS_MAX):
                fresh = self._continued(old)
                if fresh is not None:
                    old.watch.close()
                    self._database = fresh
                    return fresh
        raise again_and_again(self.path)

    def _continued(self, old: Database) -> Database | None:
        """A newer one with all that the old one left; None if that was deleted meanwhile."""
        old.put_back_again()
        try:
            fresh = self._open(create=False, check=True)
        except HoldfastError:
            if old.log_is_there():
                raise
            return None
        if old.log_is_there():
            return fresh
        fresh.retire()
        fresh.watch.close()
        return None

    def _open(self, *, create: bool, check: bool = False) -> Database:
        return Database(self.path, self._namespace, create=create, check=check, **self._times)

    def check_usable(self) -> None:
        """Raise `StoreClosed` if it is closed, or belongs to the process that forked this one."""
        if self._closed or self._process != os.getpid():
            self._refuse()

    def _refuse(self) -> None:
        if self._process != os.getpid():
            raise StoreClosed(
                "this store was opened by another process; nothing was sent. A SQLite connection "
                "must not cross a fork: connect again in the child",
                backend=BACKEND,
            )
        raise StoreClosed("this store is closed; nothing was sent. Connect again")


def _read_at_once(database: Database, command: Command[R]) -> tuple[R, MarkExpired | None]:
    """One transaction, hence one instant; and what has to be noted of it."""

    def read(_: apsw.Connection, tables: Tables) -> tuple[R, MarkExpired | None]:
        now_ms = clock_ms()
        reply: R = statements.READS[type(command)](tables, command, now_ms)
        return reply, statements.to_mark(tables, command, reply, now_ms)

    return database.pool.read(read)


def _size(pending: Pending) -> int:
    """Bytes that a write adds, nearly; what is no append counts little."""
    return sum(map(len, getattr(pending.command, "records", ())))
