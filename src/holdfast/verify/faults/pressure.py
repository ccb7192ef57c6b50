"""Faults of scarcity: no connection left, no memory left."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.blocks import Block
from holdfast.verify.engines.drivers import postgres_connection, redis_client
from holdfast.verify.proof import Evidence

if TYPE_CHECKING:
    import psycopg
    import redis

CONNECTIONS_MAX: Final = 512
"""So many connections are held at most; a Redis that allows more is told to allow fewer."""
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.001
_REDIS_REFUSAL: Final = b"-ERR max number of clients"


class _Held(Protocol):
    """Connections of one engine, all of them in our hands."""

    def take(self) -> Evidence: ...

    def give_back(self) -> None: ...


class ConnectionsHeld(Block):
    """Every connection that an engine allows is held by us; a new client is turned away."""

    def __init__(self, url: str, *, connections_max: int = CONNECTIONS_MAX) -> None:
        """Name the engine by its URL; `apply` takes its connections."""
        scheme = url.partition(":")[0]
        self._held: _Held
        if scheme in ("redis", "valkey"):
            self._held = _RedisConnections(url, connections_max)
        elif scheme in ("postgres", "postgresql"):
            self._held = _PostgresConnections(url, connections_max)
        else:
            raise UsageError(
                f"connections of {scheme!r} cannot be counted; redis and postgresql can"
            )

    def apply(self) -> Evidence:
        """Take all of them; proven by the engine's own count and its refusal of one more."""
        try:
            return self._held.take()
        except BaseException:
            self._held.give_back()
            raise

    def release(self) -> None:
        """Let go of them. Releasing twice does nothing."""
        self._held.give_back()

    def close(self) -> None:
        """Let go of them."""
        self.release()

    def _enter(self) -> object:
        return self.apply()


class _RedisConnections:
    """Plain sockets: Redis counts and refuses a client before it says a word."""

    def __init__(self, url: str, connections_max: int) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._url, self._max = url, connections_max
        self._control: redis.Redis | None = None
        self._before: str | None = None
        self._sockets: list[socket.socket] = []

    def take(self) -> Evidence:
        control = self._control = redis_client(self._url)
        allowed = int(control.config_get("maxclients")["maxclients"] or 0)
        if allowed > self._max:
            self._before = str(allowed)
            allowed = self._max
            control.config_set("maxclients", allowed)
        rejected = int(control.info("stats")["rejected_connections"])
        self._open_all(control, allowed)
        refusal = self._one_more()
        now = {**control.info("clients"), **control.info("stats")}
        if not refusal.startswith(_REDIS_REFUSAL) or now["rejected_connections"] <= rejected:
            raise FaultNotProven(f"connections: one more was answered with {refusal!r}")
        return Evidence(
            fault="connections",
            seen=f"{now['connected_clients']} of {allowed} clients are connected, one more was refused",
            facts={
                "held": len(self._sockets),
                "connected_clients": now["connected_clients"],
                "maxclients": allowed,
                "rejected_connections": now["rejected_connections"],
                "refusal": refusal.decode(errors="replace").strip(),
            },
        )

    def give_back(self) -> None:
        for held in self._sockets:
            held.close()
        self._sockets.clear()
        if self._control is not None:
            with contextlib.suppress(Exception):  # the engine may have been killed meanwhile
                if self._before is not None:
                    self._control.config_set("maxclients", self._before)
            self._control.close()
            self._control = self._before = None

    def _open_all(self, control: redis.Redis, allowed: int) -> None:
        """Open until the engine counts as many as it allows."""
        deadline = time.monotonic() + _TIMEOUT_S
        while (connected := int(control.info("clients")["connected_clients"])) < allowed:
            if time.monotonic() > deadline:
                raise FaultNotProven(
                    f"connections: {connected} of {allowed} after {_TIMEOUT_S:g} s"
                )
            missing = allowed - connected
            self._sockets += [socket.create_connection(self._address, 5) for _ in range(missing)]
            # The engine counts a client when its loop has come round to it.
            self._settle(control, connected + missing, deadline)

    @staticmethod
    def _settle(control: redis.Redis, expected: int, deadline: float) -> None:
        while int(control.info("clients")["connected_clients"]) < expected:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def _one_more(self) -> bytes:
        with socket.create_connection(self._address, 5) as extra:
            extra.settimeout(5)
            try:
                return extra.recv(256)
            except OSError as error:
                return repr(error).encode()


class _PostgresConnections:
    """Real sessions: PostgreSQL gives a slot when the startup is done."""

    def __init__(self, url: str, connections_max: int) -> None:
        self._url, self._max = url, connections_max
        self._sessions: list[psycopg.Connection] = []

    def take(self) -> Evidence:
        import psycopg  # noqa: PLC0415 - only who uses PostgreSQL needs its driver

        refusal = ""
        while not refusal:
            if len(self._sessions) >= self._max:
                raise FaultNotProven(f"connections: {self._max} are held and none was refused")
            try:
                self._sessions.append(postgres_connection(self._url))
            except psycopg.OperationalError as error:
                refusal = str(error).strip()
        if not self._sessions:
            raise FaultNotProven(f"connections: the first one failed: {refusal}")
        return self._evidence(refusal)

    def give_back(self) -> None:
        for session in self._sessions:
            session.close()
        self._sessions.clear()

    def _evidence(self, refusal: str) -> Evidence:
        row = (
            self._sessions[0]
            .execute(
                "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
                " current_setting('max_connections')::int,"
                " current_setting('superuser_reserved_connections')::int"
            )
            .fetchone()
        )
        connected, allowed, reserved = row or (0, 0, 0)
        if connected < allowed - reserved:
            raise FaultNotProven(
                f"connections: {connected} of {allowed} and yet the next one failed: {refusal}"
            )
        return Evidence(
            fault="connections",
            seen=f"{connected} of {allowed} clients are connected, one more was refused",
            facts={
                "held": len(self._sessions),
                "connected_clients": connected,
                "max_connections": allowed,
                "refusal": refusal,
            },
        )


class MemoryLimit(Block):
    """A Redis that has less memory than it needs: it evicts keys, or refuses writes.

    With `policy="noeviction"` writes fail with OOM; with any other, keys of others vanish.
    """

    def __init__(self, url: str, *, policy: str = "allkeys-lru", share: float = 0.5) -> None:
        """`share` of the data is to have no room; `apply` sets the limit."""
        if not 0 < share <= 1:
            raise UsageError(f"share lies above 0 and up to 1, not {share!r}")
        self._url, self._policy, self._share = url, policy, share
        self._before: dict[str, Any] = {}

    def apply(self) -> Evidence:
        """Set the limit; proven by `evicted_keys`, or by the refusal of a write."""
        with redis_client(self._url) as client:
            self._before = {
                name: client.config_get(name)[name] for name in ("maxmemory", "maxmemory-policy")
            }
            try:
                client.config_set("maxmemory-policy", self._policy)
                if self._policy == "noeviction":
                    return self._refuse_writes(client)
                return self._evict(client)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """The limits of before. What was evicted stays gone. Releasing twice does nothing."""
        if self._before:
            with redis_client(self._url) as client:
                for name, value in self._before.items():
                    client.config_set(name, value)
            self._before = {}

    def close(self) -> None:
        """The limit of before."""
        self.release()

    def _enter(self) -> object:
        return self.apply()

    def _evict(self, client: redis.Redis) -> Evidence:
        """Lower the limit until keys go: a small key may hide in memory that is not data."""
        before = int(client.info("stats")["evicted_keys"])
        keys = client.dbsize()
        memory = client.info("memory")
        deadline = time.monotonic() + _TIMEOUT_S
        limit = memory["used_memory"] - int(memory["used_memory_dataset"] * self._share)
        while keys and time.monotonic() < deadline:
            client.config_set("maxmemory", max(limit, 1))
            evicted = int(client.info("stats")["evicted_keys"]) - before
            if evicted > 0:
                return Evidence(
                    fault="eviction",
                    seen=f"evicted_keys grew by {evicted}; {client.dbsize()} of {keys} keys are left",
                    facts={
                        "evicted_keys": evicted,
                        "keys_before": keys,
                        "maxmemory_bytes": limit,
                        "policy": self._policy,
                    },
                )
            limit = int(limit * 0.95)
        raise FaultNotProven(f"eviction: of {keys} keys none was evicted under {self._policy}")

    def _refuse_writes(self, client: redis.Redis) -> Evidence:
        import redis  # noqa: PLC0415 - only who uses Redis needs its driver

        client.config_set("maxmemory", 1)
        key = f"holdfast-probe-{secrets.token_hex(8)}"
        try:
            client.set(key, "x")
        except redis.exceptions.OutOfMemoryError as error:
            return Evidence(
                fault="out-of-memory",
                seen=f"a write was refused: {error}",
                facts={"policy": self._policy, "maxmemory_bytes": 1},
            )
        client.unlink(key)
        raise FaultNotProven("out of memory: a write was taken in spite of maxmemory 1")
