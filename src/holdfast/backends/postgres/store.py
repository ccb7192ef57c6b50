"""The store on PostgreSQL: two doors that send what a course asks for, and decide nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import psycopg

from holdfast.backends.postgres.address import Address
from holdfast.backends.postgres.course import Ask, Course, Courses
from holdfast.backends.postgres.lanes import SLOW_S, Lanes, Pending, TaskPending, ThreadPending
from holdfast.backends.postgres.lending import AsyncLending, Lending
from holdfast.backends.postgres.link import AsyncLink, Link
from holdfast.backends.postgres.mapping import BACKEND, IndexGone, mapped
from holdfast.backends.postgres.migration import Promise, make_index_anew
from holdfast.backends.postgres.replicas import Replicas
from holdfast.backends.postgres.requests import Request, Requests, Rows
from holdfast.commands import Append, Command, Settings
from holdfast.errors import EngineUnreachable, HoldfastError, OutcomeUnknown, StoreClosed
from holdfast.model import Durability

R = TypeVar("R")

_TURNS: Final = 2
"""A waiting append may sit through the group before it, and then through its own."""


class PostgresSetup:
    """What both doors know of the server, and what its settings mean for what an ack survives."""

    name = BACKEND

    def __init__(self, asked: Settings, servers: Sequence[Address], promise: Promise) -> None:
        """`servers` are the replicas, then the primary, so that the primary's index is -1."""
        self._primary = address = servers[-1]
        self.durability = promise.reached(asked.require)
        self._promise = promise
        self._require = asked.require
        self._patience_s = address.pool_timeout_s + _TURNS * address.reply_timeout_s
        self._lanes = Lanes()
        self._courses = Courses(
            Requests(address.schema, asked.namespace, asked.require, address.lock_timeout_ms),
            Replicas(len(servers) - 1, position=promise.position),
            promise.vector_types,
        )
        self._process = os.getpid()
        self._closed = False

    def weakness(self, require: Durability) -> str:
        """Why a level above `durability` cannot be kept, and the setting to change."""
        if self._promise.unlogged:
            return (
                f"the table(s) {self._promise.unlogged} are UNLOGGED and emptied after a crash. "
                "Run ALTER TABLE … SET LOGGED"
            )
        if require >= Durability.DISK and self._promise.fsync == "off":
            return (
                "the server runs with fsync=off, so a power loss can take or corrupt everything. "
                "Set fsync=on, or say require=Durability.PROCESS"
            )
        if require is Durability.REPLICA:
            return (
                "synchronous_standby_names is empty, so a commit waits for no other machine. Name "
                "the standbys there, or say require=Durability.DISK"
            )
        return "synchronous_commit is off. Set it to on, or ask for less"

    def risk(self) -> str | None:
        """A page that is torn by a power cut cannot be repaired without its full image."""
        if self._promise.full_page_writes == "off":
            return (
                "the server runs with full_page_writes=off: a power cut in the middle of writing a "
                "page can damage it beyond repair. Set full_page_writes=on, unless the file system "
                "never tears a page (ZFS)"
            )
        return None

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise StoreClosed(
                "this store was opened by another process; nothing was sent. A connection must "
                "not cross a fork: connect again in the child",
                backend=BACKEND,
            )
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")

    def _not_sent(self) -> HoldfastError:
        return EngineUnreachable(
            f"earlier writes took longer than {self._patience_s:g} s; nothing was sent. Try again",
            operation="append",
            backend=BACKEND,
        )

    def _no_answer(self) -> HoldfastError:
        return OutcomeUnknown(
            f"no answer came within {self._patience_s:g} s. It may or may not have happened: retry "
            "it with the same key",
            operation="append",
            backend=BACKEND,
        )


class PostgresBackend(PostgresSetup):
    """Commands on one database, for every thread of this process."""

    def __init__(self, asked: Settings, servers: Sequence[Address], promise: Promise) -> None:
        super().__init__(asked, servers, promise)
        self._servers = [Lending(address) for address in servers]

    def execute(self, command: Command[R]) -> R:
        """Carry out one command and return when it is done."""
        self._check_process()
        if isinstance(command, Append):
            reply: R = self._append(command)
            return reply
        result: R = self._follow(self._courses.of(command))
        return result

    def close(self) -> None:
        """Let go of the server; what is under way ends first."""
        if self._process == os.getpid():
            self._closed = True
            for server in self._servers:
                server.close()

    def _append(self, command: Append) -> Any:
        pending = ThreadPending(command)
        waits = not self._lanes.enter(pending)
        while True:
            try:
                if waits:
                    self._wait(pending)
            except BaseException:
                self._lanes.abandon(pending)
                raise
            group, pending.group = pending.group, ()
            if not group:
                return pending.result()
            waits = self._lead(group)
            if not waits:
                return pending.result()

    def _wait(self, pending: ThreadPending) -> None:
        """Until it has an outcome, or is to lead a group."""
        if pending.wait(SLOW_S):
            return
        self._lanes.nudge()
        if pending.wait(self._patience_s):
            return
        if self._lanes.withdraw(pending):
            raise self._not_sent()
        if not pending.wait(self._patience_s):
            raise self._no_answer()

    def _lead(self, group: Sequence[Pending]) -> bool:
        """Write for a whole group; True if the leader itself has to go again."""
        try:
            self._follow(self._courses.append(group))
        except BaseException:
            self._lanes.leave(group, interrupted=True)
            raise
        return self._lanes.leave(group)

    def _follow(self, course: Course[R]) -> R:
        try:
            step = next(course)
            while True:
                try:
                    rows = self._do(step)
                except HoldfastError as error:
                    step = course.throw(error)
                else:
                    step = course.send(rows)
        except StopIteration as end:
            result: R = end.value
            return result

    def _do(self, step: Any) -> Rows | None:
        if isinstance(step, Ask):
            try:
                return self._ask(step)
            except IndexGone:
                make_index_anew(self._primary)
                return self._ask(step)
        time.sleep(step.seconds)
        return None

    def _ask(self, step: Ask) -> Rows:
        with self._servers[step.server].lend(step.request.operation) as link:
            return _run(link, step.request)


class AsyncPostgresBackend(PostgresSetup):
    """The same for the tasks of one event loop."""

    def __init__(self, asked: Settings, servers: Sequence[Address], promise: Promise) -> None:
        super().__init__(asked, servers, promise)
        self._servers = [AsyncLending(address) for address in servers]

    async def execute(self, command: Command[R]) -> R:
        """Carry out one command without holding up the event loop."""
        self._check_process()
        if isinstance(command, Append):
            reply: R = await self._append(command)
            return reply
        result: R = await self._follow(self._courses.of(command))
        return result

    async def close(self) -> None:
        """Let go of the server; what is under way ends first."""
        if self._process == os.getpid():
            self._closed = True
            for server in self._servers:
                await server.close()

    async def _append(self, command: Append) -> Any:
        pending = TaskPending(command)
        waits = not self._lanes.enter(pending)
        while True:
            try:
                if waits:
                    await self._wait(pending)
            except BaseException:
                self._lanes.abandon(pending)
                raise
            group, pending.group = pending.group, ()
            if not group:
                return pending.result()
            waits = await self._lead(group)
            if not waits:
                return pending.result()

    async def _wait(self, pending: TaskPending) -> None:
        """Until it has an outcome, or is to lead a group."""
        if await pending.wait(SLOW_S):
            return
        self._lanes.nudge()
        if await pending.wait(self._patience_s):
            return
        if self._lanes.withdraw(pending):
            raise self._not_sent()
        if not await pending.wait(self._patience_s):
            raise self._no_answer()

    async def _lead(self, group: Sequence[Pending]) -> bool:
        """Write for a whole group; True if the leader itself has to go again."""
        try:
            await self._follow(self._courses.append(group))
        except BaseException:
            self._lanes.leave(group, interrupted=True)
            raise
        return self._lanes.leave(group)

    async def _follow(self, course: Course[R]) -> R:
        try:
            step = next(course)
            while True:
                try:
                    rows = await self._do(step)
                except HoldfastError as error:
                    step = course.throw(error)
                else:
                    step = course.send(rows)
        except StopIteration as end:
            result: R = end.value
            return result

    async def _do(self, step: Any) -> Rows | None:
        if isinstance(step, Ask):
            try:
                return await self._ask(step)
            except IndexGone:
                await asyncio.to_thread(make_index_anew, self._primary)
                return await self._ask(step)
        await asyncio.sleep(step.seconds)
        return None

    async def _ask(self, step: Ask) -> Rows:
        async with self._servers[step.server].lend(step.request.operation) as link:
            return await _run_async(link, step.request)


def _run(link: Link, request: Request) -> Rows:
    link.warned = ""
    try:
        rows = link.execute(request.sql, request.values, binary=True).fetchall()
    except psycopg.Error as error:
        raise mapped(error, request.operation, writes=request.writes) from error
    _check_warned(link, request)
    return rows


async def _run_async(link: AsyncLink, request: Request) -> Rows:
    link.warned = ""
    try:
        rows = await (await link.execute(request.sql, request.values, binary=True)).fetchall()
    except psycopg.Error as error:
        raise mapped(error, request.operation, writes=request.writes) from error
    _check_warned(link, request)
    return rows


def _check_warned(link: Link | AsyncLink, request: Request) -> None:
    """A commit whose wait for a standby was cut short is done here, and perhaps nowhere else."""
    if request.writes and link.warned:
        raise OutcomeUnknown(
            f"the write is on the primary, but no standby has confirmed it ({link.warned}). Retry "
            "it with the same key",
            operation=request.operation,
            backend=BACKEND,
        )
