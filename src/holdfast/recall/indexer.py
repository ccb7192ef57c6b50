"""Keeps the index up to date: a thread of an open store, while there is something to index.

It gives way. It waits a moment before it begins, so that appends that come together are indexed
together. It works for a moment at a time, and while appends arrive it rests for longer than it
kept a processor busy. While a recall runs, it stands aside. Its priority stays that of the
process: where other programs have work, a thread of lower priority would hold on to the
interpreter's lock for longer, and threads that a model starts would keep that priority for good.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

from holdfast.commands import AsyncBackend, Backend, Command, Facts, StatSession
from holdfast.errors import StoreClosed
from holdfast.recall.embedders import Embedder
from holdfast.recall.index_commands import Erase, Position, ReadPosition
from holdfast.recall.indexing import index_log, model_of
from holdfast.runner import Index, Steps, index_for, run_commands
from holdfast.runner import execute as execute_async

R = TypeVar("R")

BATCHES: Final = (8, 64)
"""Records that are indexed in one step: the first and the most."""
TURN_S: Final = 0.1
"""How long one log is indexed, unless a single step takes longer."""
LOGS_MAX: Final = 10_000
"""Logs that wait to be indexed; of one more, the next recall takes care."""
GATHER_S: Final = 0.05
REST: Final = 3.0
"""While appends arrive: rest for so many times as long as the work kept a processor busy."""
ASIDE_MAX_S: Final = 1.0
IDLE_S: Final = 1.0
"""With nothing to do for so long, the thread ends; the next append starts another."""
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
CLOSE_S: Final = 5.0
"""How long a close waits for the batch under way; what comes of it later is not used."""


class Carrier(Protocol):
    """Carries out a command on the log, for a thread; gives up with `StoreClosed` once `ended`."""

    def __call__(self, command: Command[R], ended: threading.Event) -> R:
        """The reply."""


class Indexer:
    """Indexes the logs that it is told of. Nothing that goes wrong here reaches the application.

    `recall` indexes as well, and says what is wrong.
    """

    def __init__(self, execute: Carrier, index: Index | None, embedder: Embedder) -> None:
        self._carry_out = execute
        self._index = index
        self._embedder = embedder
        self._begin()

    def _begin(self) -> None:
        """Also in the child of a fork: the thread is the parent's, and so may be any lock."""
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting: set[bytes] = set()
        self._guests: dict[object, None] = {}
        self._changing = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._noted = 0
        self._process = os.getpid()  # last: a thread that sees it sees all of the above

    def note(self, log: bytes) -> None:
        """A log has grown. Part of every append, so it does next to nothing."""
        if self._process != os.getpid():
            self._begin()
        self._noted += 1  # only whether it changes matters, so no lock
        if log in self._waiting or len(self._waiting) >= LOGS_MAX:
            return
        self._waiting.add(log)
        self._queue.put(log)
        if self._thread is None:
            self._start()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While the foreground indexes, nothing is begun here."""
        guests, guest = self._guests, object()
        try:
            guests[guest] = None
            yield
        finally:
            guests.pop(guest, None)

    def close(self) -> None:
        """End the thread, after the batch under way if that does not take long."""
        if self._process != os.getpid():
            return
        self._ended.set()
        with self._changing:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(None)
            thread.join(CLOSE_S)

    def execute(self, command: Command[R]) -> R:
        """Carry out one step, unless the store was closed meanwhile."""
        if self._ended.is_set():
            raise StoreClosed("this store is closed; the index goes on when it is opened again")
        apart = index_for(command, self._index)
        return self._carry_out(command, self._ended) if apart is None else apart.execute(command)

    def _start(self) -> None:
        with self._changing:
            if self._thread is not None or self._ended.is_set():
                return
            # A daemon keeps no process alive. But with a thread inside a model's C++ when the
            # interpreter goes away, the process may end with an abort (pytorch issue 38228).
            thread = threading.Thread(target=self._work, name="holdfast-indexer", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no room for a thread: the append is done, and recall indexes
                return
            self._thread = thread
            atexit.register(self.close)

    def _work(self) -> None:
        rest_s, pause_s = GATHER_S, PAUSE_S
        while (log := self._next(rest_s)) is not None:
            noted, begin_s = self._noted, time.thread_time()
            try:
                steps = _a_little(log, self._embedder, apart=self._index is not None)
                left = run_commands(steps, self, None)
            except StoreClosed:
                break
            except Exception:  # noqa: BLE001 - an embedder may raise anything; recall says what
                self._put_back(log)
                rest_s, pause_s = pause_s, min(2 * pause_s, PAUSE_MAX_S)
                continue
            if left:
                self._put_back(log)
            rest_s, pause_s = 0.0, PAUSE_S
            if self._noted != noted or self._queue.empty():
                rest_s = max(GATHER_S, REST * (time.thread_time() - begin_s))
        self._leave()

    def _next(self, rest_s: float) -> bytes | None:
        """A log to index, after a rest; None if there was nothing for a while, or at the end."""
        try:
            log = self._queue.get(timeout=IDLE_S)
        except Empty:
            return None
        self._ended.wait(rest_s)
        aside_s = time.monotonic() + ASIDE_MAX_S  # where recalls never end, not for ever
        while self._guests and not self._ended.is_set() and time.monotonic() < aside_s:
            self._ended.wait(GATHER_S)
        if log is None or self._ended.is_set():
            return None
        self._waiting.discard(log)  # before it is looked at: what comes from now on is noted again
        return log

    def _put_back(self, log: bytes) -> None:
        if log not in self._waiting:
            self._waiting.add(log)
            self._queue.put(log)

    def _leave(self) -> None:
        """First there is no thread, then nothing may be waiting: so nothing waits for no thread."""
        with self._changing:
            self._thread = None
            atexit.unregister(self.close)
        if not self._queue.empty():
            self._start()


def _a_little(log: bytes, embedder: Embedder, *, apart: bool) -> Steps[int]:
    """Index for a moment; return how many records are left.

    An index with vectors of another model is left to the next recall: two programs with different
    models would take it from one another with every append. One that is `apart` from the log does
    not see that another process forgets meanwhile what is on its way here.
    """
    position: Position = yield ReadPosition(log)
    if position.model not in {"", model_of(embedder)}:
        return 0
    facts: Facts = yield StatSession(log)
    until_s = time.monotonic() + TURN_S
    _, left = yield from index_log(log, facts, embedder, until_s=until_s, batches=BATCHES)
    if apart:
        now: Facts = yield StatSession(log)
        if now.last - now.count > facts.last - facts.count:
            yield Erase(log, now.last - now.count)
    return left


def on_this_thread(backend: Backend) -> Carrier:
    """How the sync API carries out commands for an indexer."""
    return lambda command, _ended: backend.execute(command)


def in_loop(backend: AsyncBackend) -> Carrier:
    """How the async API does: in the event loop that is running now, while the thread waits."""
    import asyncio  # noqa: PLC0415 - the sync API does without it

    loop = asyncio.get_running_loop()

    def execute(command: Command[R], ended: threading.Event) -> R:
        work = execute_async(command, backend)
        try:
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:
            work.close()
            raise StoreClosed("the event loop of this store is closed") from error
        while not future.done():
            wait([future], timeout=GATHER_S)
            if not future.done() and (loop.is_closed() or ended.is_set()):
                raise StoreClosed("the event loop of this store is closed, or does not run")
        try:
            return future.result()
        except CancelledError as error:
            raise StoreClosed("the event loop of this store is closed") from error

    return execute
