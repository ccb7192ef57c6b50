"""SQLite, embedded: `sqlite:///relative.db`, `sqlite:////absolute/path.db`."""

from __future__ import annotations

from holdfast.backends.sqlite.address import read_address
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.backends.sqlite.tasks import AsyncSqliteBackend, in_thread
from holdfast.commands import Settings


def open_backend(asked: Settings) -> SqliteBackend:
    """The backend for a URL, opened: the file is there, of our schema, and writable."""
    return SqliteBackend(namespace=asked.namespace, **read_address(asked))


async def open_backend_async(asked: Settings) -> AsyncSqliteBackend:
    """The same for the async API; opening waits for a disk, so a thread does it."""
    return AsyncSqliteBackend(await in_thread(open_backend, asked))
