"""PostgreSQL: `postgresql://user:password@host:port/database?schema=holdfast`."""

from __future__ import annotations

import asyncio

from holdfast.backends.postgres.address import read_address
from holdfast.backends.postgres.backend import AsyncPostgresBackend, PostgresBackend
from holdfast.backends.postgres.durability import ServerSettings
from holdfast.backends.postgres.errors import BACKEND
from holdfast.backends.postgres.fence import each_member
from holdfast.backends.postgres.hosts import Hosts
from holdfast.backends.postgres.migration import check_replica, open_database
from holdfast.commands import Settings
from holdfast.errors import EngineUnreachable, Refused


def _open(asked: Settings) -> tuple[list[Hosts], ServerSettings]:
    """The replicas and then the primary, of the current schema and able to be written to."""
    primary = Hosts(read_address(asked.url.reveal()))
    replicas = [Hosts(read_address(url.reveal()), replica=True) for url in asked.replicas]
    settings, identity = open_database(primary)
    if settings.read_only:
        raise Refused(
            f"this server cannot be written to ({settings.read_only}). Nothing was written. Connect "
            "to the primary; a standby goes into `replicas`",
            operation="connect",
            backend=BACKEND,
        )
    for replica in replicas:
        try:
            check_replica(replica.address, identity, may_change=len(primary.members) > 1)
        except EngineUnreachable:
            continue  # it may come up later; until then the primary answers
    return [*replicas, *each_member(primary), primary], settings


def open_backend(asked: Settings) -> PostgresBackend:
    """The backend for a URL, opened: the server answers, has our schema, and can be written to."""
    return PostgresBackend(asked, *_open(asked))


async def open_backend_async(asked: Settings) -> AsyncPostgresBackend:
    """The same for the async API; opening is done once, in a thread."""
    return AsyncPostgresBackend(asked, *await asyncio.to_thread(_open, asked))
