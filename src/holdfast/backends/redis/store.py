"""Redis and Valkey: one script a command, one exchange for writes that arrive together."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar, cast

from holdfast.backends.redis.edges import AsyncEdge, Edge, Steps
from holdfast.backends.redis.engine import Engine
from holdfast.backends.redis.lanes import TaskLanes, ThreadLanes
from holdfast.backends.redis.level import Level
from holdfast.backends.redis.mapping import BACKEND
from holdfast.backends.redis.requests import Request, request_for
from holdfast.backends.redis.target import Address, Target
from holdfast.commands import Command, Names, Put
from holdfast.errors import EngineUnreachable, StoreClosed
from holdfast.model import Durability

R = TypeVar("R")
CLOSE_POLL_S: Final = 0.001


class RedisSetup:
    """What was seen of the engine, or of all primaries of a cluster."""

    name = BACKEND
    durability: Durability
    _levels: Sequence[Level]
    _engine: Engine

    def weakness(self, require: Durability) -> str:  # noqa: ARG002 - the level knows what was asked
        """Why a level above `durability` cannot be kept, and the setting to change."""
        return min(self._levels, key=lambda level: level.durability).weakness

    def risk(self) -> str | None:
        """What was stated and not seen; and a failover that may lose what was acknowledged."""
        for level in self._levels:
            if level.risk:
                return level.risk
        if self._engine.nodes.may_promote and self.durability < Durability.REPLICA:
            return (
                "a failover may make a replica the primary that has not received the last "
                "acknowledged writes. Say require=Durability.REPLICA to wait for one"
            )
        return None

    def _take_levels(self, levels: Sequence[Level]) -> None:
        self._levels = levels
        self.durability = min(level.durability for level in levels)

    def _special(self, command: Command[Any]) -> Steps[Any] | None:
        """Commands of more than one step."""
        if isinstance(command, Names):
            return self._engine.names(command)
        if isinstance(command, Put):
            return self._engine.put(command)
        return None

    def _lane_count(self) -> int:
        """Where a group waits for a disk or a replica, the next one is sent meanwhile."""
        return 2 if any(level.wait_disk or level.wait_replica for level in self._levels) else 1

    def _lane_of(self, request: Request) -> Address | None:
        """Each node of a cluster has lanes of its own, so that a dead one holds up no other."""
        nodes = self._engine.nodes
        return nodes.known_place(request.slot) if nodes.is_cluster else None


class RedisBackend(RedisSetup):
    """Commands on Redis for every thread of this process; a forked child gets its own connections."""

    def __init__(self, target: Target) -> None:
        self._engine = Engine(target)
        self._edge = Edge(target)
        self._forking = threading.Lock()
        self._begin()
        try:
            self._take_levels(self._edge.run(self._engine.nodes.prepare()))
        except BaseException:
            self.close()
            raise

    def execute(self, command: Command[R]) -> R:
        """Carry out one command and return when it is done."""
        self._check_process()
        steps = self._special(command)
        if steps is not None:
            with self._turn():
                return cast("R", self._edge.run(steps))
        request = request_for(command, self._engine.keys)
        if command.writes:
            self._lanes_for(self._lane_of(request)).run(request)
        else:
            with self._turn():
                self._edge.run(self._engine.carry((request,)))
        return cast("R", request.outcome())

    def close(self) -> None:
        """Finish what is under way and let go of the engine."""
        if self._process != os.getpid():
            return  # the connections are the parent's
        self._closed = True
        deadline_s = time.monotonic() + 2 * self._engine.target.reply_timeout_s
        while not all(lanes.is_quiet() for lanes in self._lanes.values()):
            if time.monotonic() > deadline_s:
                break
            time.sleep(CLOSE_POLL_S)
        self._edge.run(self._engine.nodes.close())

    def _begin(self) -> None:
        target = self._engine.target
        self._process = os.getpid()
        self._closed = False
        self._turns = threading.BoundedSemaphore(target.connections_max)
        self._lanes: dict[Address | None, ThreadLanes] = {}

    def _lanes_for(self, address: Address | None) -> ThreadLanes:
        lanes = self._lanes.get(address)
        if lanes is None:
            target = self._engine.target
            lanes = ThreadLanes(
                lambda requests: self._edge.run(self._engine.carry(requests)),
                lanes=self._lane_count(),
                queue_timeout_s=target.pool_timeout_s,
                reply_timeout_s=target.reply_timeout_s,
            )
            lanes = self._lanes.setdefault(address, lanes)
        return lanes

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=self._engine.target.pool_timeout_s):
            raise _busy(self._engine.target)
        try:
            yield
        finally:
            self._turns.release()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            with self._forking:
                if self._process != os.getpid():
                    self._engine.nodes.disown()
                    self._begin()
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")


class AsyncRedisBackend(RedisSetup):
    """The same for the tasks of one event loop."""

    def __init__(self, target: Target) -> None:
        self._engine = Engine(target)
        self._edge = AsyncEdge(target)
        self._process = os.getpid()
        self._turns = asyncio.Semaphore(target.connections_max)
        self._lanes: dict[Address | None, TaskLanes] = {}

    async def open(self) -> None:
        """Connect, and see what the engine keeps."""
        try:
            self._take_levels(await self._edge.run(self._engine.nodes.prepare()))
        except BaseException:
            await self.close()
            raise

    async def execute(self, command: Command[R]) -> R:
        """Carry out one command without holding up the event loop."""
        if self._process != os.getpid():
            raise StoreClosed(
                "this store was opened by another process; nothing was sent. Connect again here"
            )
        steps = self._special(command)
        if steps is not None:
            async with self._turn():
                return cast("R", await self._edge.run(steps))
        request = request_for(command, self._engine.keys)
        if command.writes:
            await self._lanes_for(self._lane_of(request)).run(request)
        else:
            async with self._turn():
                await self._edge.run(self._engine.carry((request,)))
        return cast("R", request.outcome())

    async def close(self) -> None:
        """Finish what is under way and let go of the engine."""
        for lanes in list(self._lanes.values()):
            await lanes.finish()
        await self._edge.run(self._engine.nodes.close())

    def _lanes_for(self, address: Address | None) -> TaskLanes:
        if address not in self._lanes:
            self._lanes[address] = TaskLanes(
                lambda requests: self._edge.run(self._engine.carry(requests)),
                lanes=self._lane_count(),
                queue_timeout_s=self._engine.target.pool_timeout_s,
            )
        return self._lanes[address]

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._engine.target.pool_timeout_s):
                await self._turns.acquire()
        except TimeoutError:
            raise _busy(self._engine.target) from None
        try:
            yield
        finally:
            self._turns.release()


def _busy(target: Target) -> EngineUnreachable:
    return EngineUnreachable(
        f"all {target.connections_max} connections were busy for {target.pool_timeout_s:g} s. "
        "Nothing was sent. Try again, or raise connections_max in the URL",
        backend=BACKEND,
    )
