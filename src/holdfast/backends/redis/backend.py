"""Redis and Valkey: one script a command, one exchange for writes that arrive together."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

from holdfast.backends.group_commit import GroupCommit
from holdfast.backends.loops import PerLoop
from holdfast.backends.redis.address import Address, Server
from holdfast.backends.redis.command_steps import Engine
from holdfast.backends.redis.driver import AsyncDriver, Driver, Steps
from holdfast.backends.redis.durability import Assessment
from holdfast.backends.redis.errors import BACKEND
from holdfast.backends.redis.statements import Statement, statement_for
from holdfast.backends.slots import Slots
from holdfast.backends.writes import TaskWrite, ThreadWrite, Write
from holdfast.commands import Clean, Command, ImportSession, Names
from holdfast.errors import EngineUnreachable, StoreClosed
from holdfast.model import Durability

R = TypeVar("R")
CLOSE_POLL_S: Final = 0.001
GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
OUTCOME_REPLIES: Final = 6
"""A leader may connect, be sent elsewhere and wait for replies: for as many times as long as one."""


class Shared:
    """What all threads share, or the tasks of one event loop: the way to the engine, and to turns."""

    def __init__(self, address: Address, turns: Any) -> None:
        self.engine = Engine(address)
        self.turns = turns
        self.groups: dict[Server | None, GroupCommit] = {}

    def is_idle(self) -> bool:
        """Whether no write is under way or waits."""
        return all(group.is_idle() for group in list(self.groups.values()))


class RedisSetup:
    """What was seen of the engine, or of all primaries of a cluster."""

    name = BACKEND
    durability: Durability
    _address: Address
    _assessments: Sequence[Assessment]
    _may_promote = False
    is_sharded = False
    """Whether sessions are on several nodes, of which some may be reached and others not."""
    _closed = False

    def weakness(self, require: Durability) -> str:  # noqa: ARG002 - the assessment knows what was asked
        """Why more than `durability` cannot be kept, and the setting to change."""
        return min(self._assessments, key=lambda assessment: assessment.durability).weakness

    def risk(self) -> str | None:
        """What was stated and not seen; and a failover that may lose what was acknowledged."""
        for assessment in self._assessments:
            if assessment.risk:
                return assessment.risk
        if self._may_promote and self.durability < Durability.REPLICA:
            return (
                "a failover may make a replica the primary that has not received the last "
                "acknowledged writes. Say require=Durability.REPLICA to wait for one"
            )
        return None

    def _note_assessments(self, shared: Shared, assessments: Sequence[Assessment]) -> None:
        self._assessments = assessments
        self._may_promote = shared.engine.pool.may_promote
        self.is_sharded = shared.engine.pool.is_cluster
        self.durability = min(assessment.durability for assessment in assessments)

    def _group_for(self, statement: Statement, shared: Shared) -> GroupCommit:
        """Each node of a cluster has its own, so that a dead one holds up no other."""
        pool, address = shared.engine.pool, self._address
        server = pool.known_server(statement.slot) if pool.is_cluster else None
        group = shared.groups.get(server)
        if group is None:
            # Where a group waits for a disk or a replica, the next one is sent meanwhile.
            waits = any(
                assessment.wait_disk or assessment.wait_replicas for assessment in self._assessments
            )
            group = GroupCommit(
                backend=BACKEND,
                under_way_max=2 if waits else 1,
                bytes_max=GROUP_BYTES_MAX,
                size=lambda statement: statement.size,
                queue_timeout_s=address.pool_timeout_s,
                outcome_timeout_s=OUTCOME_REPLIES * address.reply_timeout_s,
            )
            group = shared.groups.setdefault(server, group)
        return group

    def _close_groups(self, every: Sequence[Shared]) -> float:
        """Refuse what comes from now on; until when what is under way may take."""
        self._closed = True
        for one in every:
            for group in list(one.groups.values()):
                group.close()
        return time.monotonic() + 2 * self._address.reply_timeout_s


def _special(engine: Engine, command: Command[Any]) -> Steps[Any] | None:
    """Commands of more than one step."""
    if isinstance(command, Names):
        return engine.names(command)
    if isinstance(command, ImportSession):
        return engine.import_session(command)
    if isinstance(command, Clean):
        return engine.clean()
    return None


def _settle(writes: Sequence[Write]) -> None:
    """Hand the outcomes of statements on, once all is known of them."""
    for write in writes:
        if write.payload.settled:
            write.settle(write.payload.result, write.payload.error)


class RedisBackend(RedisSetup):
    """Commands on Redis for every thread of this process; a forked child gets its own connections."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._driver = Driver(address)
        self._forking = threading.Lock()
        self._begin()
        try:
            self._note_assessments(
                self._shared, self._driver.run(self._shared.engine.pool.prepare())
            )
        except BaseException:
            self.close()
            raise

    def execute(self, command: Command[R]) -> R:
        """Carry out one command and return when it is done."""
        self._check_process()
        shared = self._shared
        steps = _special(shared.engine, command)
        if steps is not None:
            return cast("R", self._run(steps))
        statement = statement_for(command, shared.engine.keys)
        if command.writes:
            return cast(
                "R", self._group_for(statement, shared).run(ThreadWrite(statement), self._carry)
            )
        self._run(shared.engine.carry((statement,)))
        return cast("R", statement.outcome())

    def close(self) -> None:
        """Finish what is under way and let go of the engine."""
        if self._process != os.getpid():
            return  # the connections are the parent's
        deadline_s = self._close_groups([self._shared])
        while not self._shared.is_idle() and time.monotonic() < deadline_s:
            time.sleep(CLOSE_POLL_S)
        self._driver.run(self._shared.engine.pool.close())

    def _begin(self) -> None:
        self._process = os.getpid()
        self._closed = False
        self._shared = Shared(self._address, Slots(self._address.connections_max))

    def _carry(self, writes: Sequence[Write]) -> None:
        self._driver.run(self._shared.engine.carry([write.payload for write in writes]))
        _settle(writes)

    def _run(self, steps: Steps[R]) -> R:
        """In turn: at most so many connections at a time."""
        holder, turns = object(), self._shared.turns
        try:
            if not turns.take(holder, self._address.pool_timeout_s):
                raise _busy(self._address)
            return self._driver.run(steps)
        finally:
            turns.held.pop(holder, None)
            turns.wake_next()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            with self._forking:
                if self._process != os.getpid():
                    self._begin()  # the connections are the parent's
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")


class AsyncRedisBackend(RedisSetup):
    """The same for tasks. A connection belongs to the event loop that opened it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._driver = AsyncDriver(address)
        self._process = os.getpid()
        self._per_loop = PerLoop(
            lambda: Shared(address, asyncio.Semaphore(address.connections_max))
        )

    async def open(self) -> None:
        """Connect, and see what the engine keeps."""
        shared = self._per_loop.here()
        try:
            self._note_assessments(shared, await self._driver.run(shared.engine.pool.prepare()))
        except BaseException:
            await self.close()
            raise

    async def execute(self, command: Command[R]) -> R:
        """Carry out one command without holding up the event loop."""
        if self._process != os.getpid():
            raise StoreClosed(
                "this store was opened by another process; nothing was sent. Connect again here"
            )
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")
        shared = self._per_loop.here()
        steps = _special(shared.engine, command)
        if steps is not None:
            async with self._turn(shared):
                return cast("R", await self._driver.run(steps))
        statement = statement_for(command, shared.engine.keys)
        if command.writes:
            write = TaskWrite(statement)
            return cast("R", await self._group_for(statement, shared).run_async(write, self._carry))
        async with self._turn(shared):
            await self._driver.run(shared.engine.carry((statement,)))
        return cast("R", statement.outcome())

    async def close(self) -> None:
        """Finish what is under way and let go of the engine."""
        shared = self._per_loop.here()
        deadline_s = self._close_groups(self._per_loop.all())
        while not shared.is_idle() and time.monotonic() < deadline_s:  # noqa: ASYNC110 - as above
            await asyncio.sleep(CLOSE_POLL_S)
        await self._driver.run(shared.engine.pool.close())

    async def _carry(self, writes: Sequence[Write]) -> None:
        await self._driver.run(
            self._per_loop.here().engine.carry([write.payload for write in writes])
        )
        _settle(writes)

    @asynccontextmanager
    async def _turn(self, shared: Shared) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._address.pool_timeout_s):
                await shared.turns.acquire()
        except TimeoutError:
            raise _busy(self._address) from None
        try:
            yield
        finally:
            shared.turns.release()


def _busy(address: Address) -> EngineUnreachable:
    return EngineUnreachable(
        f"all {address.connections_max} connections were busy for {address.pool_timeout_s:g} s. "
        "Nothing was sent. Try again, or raise connections_max in the URL",
        backend=BACKEND,
    )
