"""The store on PostgreSQL: a sync and an async API that send what the steps ask for, and decide nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import psycopg

from holdfast.backends.group_commit import GroupCommit
from holdfast.backends.loops import PerLoop
from holdfast.backends.postgres.asks import Ask
from holdfast.backends.postgres.command_steps import CommandSteps
from holdfast.backends.postgres.driver import AsyncLink, Link
from holdfast.backends.postgres.durability import ServerSettings
from holdfast.backends.postgres.errors import BACKEND, IndexGone, mapped
from holdfast.backends.postgres.fence import Fence
from holdfast.backends.postgres.hosts import Hosts
from holdfast.backends.postgres.migration import remake_index
from holdfast.backends.postgres.pool import AsyncPool, Pool
from holdfast.backends.postgres.replicas import Replicas
from holdfast.backends.postgres.statements import Rows, Statement, Statements
from holdfast.backends.writes import TaskWrite, ThreadWrite, Write
from holdfast.commands import Append, Command, Settings
from holdfast.errors import OutcomeUnknown, StoreClosed
from holdfast.model import Durability
from holdfast.runner import run, run_async

R = TypeVar("R")

UNDER_WAY_MAX: Final = 3
"""Statements at a time: enough to keep the server busy, few enough to let groups form."""
SLOW_S: Final = 0.1
"""One that takes longer waits for something else than the disk, and is no longer counted."""
GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
_TURNS: Final = 2
"""A waiting append may sit through the group before it, and then through its own."""


class PostgresSetup:
    """What both APIs know of the server, and what its settings mean for what an ack survives."""

    name = BACKEND

    def __init__(self, asked: Settings, servers: Sequence[Hosts], settings: ServerSettings) -> None:
        """`servers` are the replicas, then each member of the URL by itself if there are several, then the primary.

        So the primary's index is -1.
        """
        self._primary = servers[-1]
        address = self._primary.address
        self.durability = settings.reached(asked.require)
        self._settings = settings
        self._require = asked.require
        statements = Statements(
            address.schema, asked.namespace, asked.require, address.lock_timeout_ms
        )
        may_change = len(self._primary.members) > 1 and asked.require is Durability.REPLICA
        fence = Fence(self._primary, len(asked.replicas), statements) if may_change else None
        self._commands = CommandSteps(
            statements,
            Replicas(len(asked.replicas), self._primary, position=settings.position),
            settings.vector_types,
            fence=fence,
            require=asked.require,
            failover_timeout_s=self._primary.failover_timeout_s,
            keys_kept_ms=asked.keys_kept_ms,
        )
        self._process = os.getpid()
        self._closed = False

    def weakness(self, require: Durability) -> str:
        """Why more than `durability` cannot be kept, and the setting to change."""
        return self._settings.weakness(require)

    def risk(self) -> str | None:
        """What may take the data away later although each ack is true."""
        return self._settings.risk()

    def _new_group(self) -> GroupCommit:
        """Where appends wait for each other.

        A commit holds the session's row until it is on the disk, so appends to one session
        cannot overlap in the server. Instead of waiting there, each with a connection of its
        own, they wait here.
        """
        address = self._primary.address
        once_s = address.reply_timeout_s + self._primary.failover_timeout_s
        patience_s = address.pool_timeout_s + _TURNS * once_s
        return GroupCommit(
            backend=BACKEND,
            under_way_max=UNDER_WAY_MAX,
            bytes_max=GROUP_BYTES_MAX,
            size=lambda append: sum(map(len, append.records)),
            queue_timeout_s=patience_s,
            outcome_timeout_s=patience_s,
            slow_s=SLOW_S,
            by_session=True,
        )

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise StoreClosed(
                "this store was opened by another process; nothing was sent. A connection must "
                "not cross a fork: connect again in the child",
                backend=BACKEND,
            )
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")


class PostgresBackend(PostgresSetup):
    """Commands on one database, for every thread of this process."""

    def __init__(self, asked: Settings, servers: Sequence[Hosts], settings: ServerSettings) -> None:
        super().__init__(asked, servers, settings)
        self._servers = [Pool(hosts) for hosts in servers]
        self._group = self._new_group()

    def execute(self, command: Command[R]) -> R:
        """Carry out one command and return when it is done."""
        self._check_process()
        if isinstance(command, Append) and command.keep is None:
            reply: R = self._group.run(ThreadWrite(command, command.session), self._append)
            return reply
        result: R = run(self._commands.of(command), self._do)
        return result

    def close(self) -> None:
        """Let go of the server; what is under way ends first."""
        if self._process == os.getpid():
            self._closed = True
            self._group.close()
            for server in self._servers:
                server.close()

    def _append(self, writes: Sequence[Write]) -> None:
        run(self._commands.append(writes), self._do)

    def _do(self, step: Any) -> Rows | None:
        if isinstance(step, Ask):
            try:
                return self._ask(step)
            except IndexGone:
                remake_index(self._primary)
                return self._ask(step)
        time.sleep(step.seconds)
        return None

    def _ask(self, step: Ask) -> Rows:
        server, holder = self._servers[step.server], object()
        try:
            link = server.take(holder, step.statement.operation)
            try:
                rows = _run(link, step.statement)
            except BaseException as error:
                server.after(link, error)
                raise
            server.give_back(link)
            return rows
        finally:
            server.slots.held.pop(holder, None)
            server.slots.wake_next()


class AsyncPostgresBackend(PostgresSetup):
    """The same for tasks."""

    def __init__(self, asked: Settings, servers: Sequence[Hosts], settings: ServerSettings) -> None:
        super().__init__(asked, servers, settings)
        self._servers = [AsyncPool(hosts) for hosts in servers]
        self._groups = PerLoop(self._new_group)

    async def execute(self, command: Command[R]) -> R:
        """Carry out one command without holding up the event loop."""
        self._check_process()
        if isinstance(command, Append) and command.keep is None:
            write = TaskWrite(command, command.session)
            reply: R = await self._groups.here().run_async(write, self._append)
            return reply
        result: R = await run_async(self._commands.of(command), self._do)
        return result

    async def close(self) -> None:
        """Let go of the server; what is under way ends first."""
        if self._process == os.getpid():
            self._closed = True
            for group in self._groups.all():
                group.close()
            for server in self._servers:
                await server.close()

    async def _append(self, writes: Sequence[Write]) -> None:
        await run_async(self._commands.append(writes), self._do)

    async def _do(self, step: Any) -> Rows | None:
        if isinstance(step, Ask):
            try:
                return await self._ask(step)
            except IndexGone:
                await asyncio.to_thread(remake_index, self._primary)
                return await self._ask(step)
        await asyncio.sleep(step.seconds)
        return None

    async def _ask(self, step: Ask) -> Rows:
        async with self._servers[step.server].borrow(step.statement.operation) as link:
            return await _run_async(link, step.statement)


def _run(link: Link, statement: Statement) -> Rows:
    link.warned = ""
    try:
        cursor = link.execute(statement.sql, statement.values, binary=True)
        rows = cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise mapped(error, statement.operation, writes=statement.writes) from error
    _check_done(link, statement)
    return rows


async def _run_async(link: AsyncLink, statement: Statement) -> Rows:
    link.warned = ""
    try:
        cursor = await link.execute(statement.sql, statement.values, binary=True)
        rows = await cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise mapped(error, statement.operation, writes=statement.writes) from error
    _check_done(link, statement)
    return rows


def _check_done(link: Link | AsyncLink, statement: Statement) -> None:
    """A commit whose wait for a standby was cut short is done here, and perhaps nowhere else."""
    statement.timeline = link.position[0] if link.position else 0
    if statement.writes and link.warned:
        raise OutcomeUnknown(
            f"the write is on the primary, but no standby has confirmed it ({link.warned}). Retry "
            "it with the same key",
            operation=statement.operation,
            backend=BACKEND,
        )
