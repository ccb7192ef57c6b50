"""The async API of one SQLite file: what may block runs in a thread, if there can be one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.backends.sqlite.durability import SqliteSetup
from holdfast.backends.sqlite.pool import READERS_MAX
from holdfast.commands import Command

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class AsyncSqliteBackend(SqliteSetup):
    """For tasks: writes queue for the writer's thread, reads run in a few threads."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self.path, self.file_system = backend.path, backend.file_system
        self._threads = _readers()
        self.durability = backend.durability

    def execute(self, command: Command[R]) -> Awaitable[R]:
        """Carry out one command without holding up the event loop."""
        if command.writes:
            return self._backend.submit(command)
        self._backend.check_usable()  # in the child of a fork the threads are gone, unnoticed
        try:
            loop = asyncio.get_running_loop()
            return loop.run_in_executor(self._threads, self._backend.execute, command)
        except RuntimeError:  # there can be no more threads: then the event loop has to wait
            self._threads = _readers()  # those that there are would keep the command, and do it too
            return _at_once(self._backend.execute, command)

    async def close(self) -> None:
        """Finish what is queued, then close every connection."""
        await in_thread(self._backend.close)
        self._threads.shutdown(wait=False)


def in_thread(call: Callable[[*Ts], R], *args: *Ts) -> Awaitable[R]:
    """Call it in a thread of the event loop's own, or at once if there can be no more threads."""
    try:
        return asyncio.get_running_loop().run_in_executor(None, call, *args)
    except RuntimeError:
        return _at_once(call, *args)


async def _at_once(call: Callable[[*Ts], R], *args: *Ts) -> R:
    return call(*args)


def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(READERS_MAX, thread_name_prefix="holdfast-sqlite-reader")
