"""One Redis primary, two replicas, and three sentinels that agree who is primary."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Self

from holdfast.errors import FaultNotProven
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST, Port, reserve_port
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.engines.topologies.redis_members import (
    RedisMember,
    RedisTopology,
    ask,
    lagging,
)
from holdfast.verify.rundir import write_private

SERVICE: Final = "holdfast"
QUORUM: Final = 2
DOWN_AFTER_MS: Final = 500
FAILOVER_TIMEOUT_MS: Final = 1500
"""Sentinels try again, and allow the next failover, after twice as long."""
APART_MS: Final = 350
"""So much longer each waits than the one before, so that they do not ask for votes at the same moment."""
PERIODS_MS: Final = {
    # A sentinel connects to a new primary once in a ping period: with its usual second it would call
    # that primary down before it has asked it anything.
    "ping-period": "100",
    "ask-period": "200",
    "info-period": "500",
    "publish-period": "500",
}
TUNABLE_VERSION: Final = 7
OLD_DOWN_AFTER_MS: Final = 2500
"""For a Redis of which these cannot be set."""
_DOWN: Final = ("s_down", "o_down", "disconnected")


class Sentinel(RedisEngine):
    """One sentinel. It is told of the others, so that it need not wait to hear from them."""

    def __init__(self, options: EngineOptions, port: Port, machine: str) -> None:
        super().__init__(replace(options, config="no-persistence", settings={}, port=port.number))
        self.reserved = port
        self.machine = machine
        self.name = secrets.token_hex(20)
        self.peers: list[Sentinel] = []
        self.watched: list[RedisMember] = []
        """The primary first, then its replicas."""

    def start(self) -> Self:
        """Run it, with its periods as short as its patience."""
        if self.pid is None:
            super().start()
            if self._is_tunable:
                self.call("SENTINEL", "DEBUG", *(w for pair in PERIODS_MS.items() for w in pair))
        return self

    @property
    def _is_tunable(self) -> bool:
        return int(self.binary.version.partition(".")[0]) >= TUNABLE_VERSION

    def close(self) -> None:
        """End it at once and remove what it left, with its port."""
        super().close()
        self.reserved.release()

    def _command(self) -> list[str]:
        # It writes into this file whatever it learns, so the file is made once.
        conf = self.data_dir / "sentinel.conf"
        if not conf.exists():
            write_private(conf, "\n".join(self._lines()) + "\n")
        return [str(self.binary.path), str(conf), "--sentinel"]

    def _lines(self) -> list[str]:
        primary, *replicas = self.watched
        down_after_ms = DOWN_AFTER_MS if self._is_tunable else OLD_DOWN_AFTER_MS
        timeout_ms = FAILOVER_TIMEOUT_MS + APART_MS * self.peers.index(self)
        lines = [f"port {self.port}", f"bind {HOST}", f"dir {self.data_dir}"]
        if self.machine != HOST:
            lines += [f"bind-source-addr {self.machine}"]
            lines += [f"sentinel announce-ip {self.machine}", f"sentinel announce-port {self.port}"]
        lines += [
            f"requirepass {self.password}",
            f"sentinel sentinel-pass {self.password}",
            f"sentinel myid {self.name}",
            f"sentinel monitor {SERVICE} {primary.machine} {primary.public_port} {QUORUM}",
            f"sentinel auth-pass {SERVICE} {self.password}",
            f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
            f"sentinel failover-timeout {SERVICE} {timeout_ms}",
            f"sentinel parallel-syncs {SERVICE} {len(replicas)}",
        ]
        known = [f"{one.machine} {one.public_port}" for one in replicas]
        lines += [f"sentinel known-replica {SERVICE} {place}" for place in known]
        others = [one for one in self.peers if one is not self]
        return lines + [
            f"sentinel known-sentinel {SERVICE} {one.machine} {one.port} {one.name}"
            for one in others
        ]


class RedisSentinel(RedisTopology):
    """Three machines, each with a Redis and a sentinel. Two sentinels must agree on a failover."""

    topology = "sentinel"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self.sentinels = [
            Sentinel(options, reserve_port(), member.machine) for member in self.members
        ]

    @property
    def url(self) -> str:
        """The sentinels and the name of the service; they ask for the members' password, too."""
        hosts = ",".join(f"{self._host(one)}:{one.port}" for one in self.sentinels)
        login = f":{self._options.password}"
        return f"redis+sentinel://{login}@{hosts}/{SERVICE}/0?sentinel_auth=yes"

    @staticmethod
    def _host(sentinel: Sentinel) -> str:
        return sentinel.machine

    def primary(self) -> RedisMember:
        """The member that a majority of sentinels names and that says so itself."""
        found = self._agreed()
        if found is None or not found.is_primary():
            raise FaultNotProven("the sentinels agree on no primary now")
        return found

    def epoch(self) -> int:
        """The configuration epoch of the service: the newest that a sentinel knows."""
        return max(int(view["config-epoch"]) for view in self._views())

    def _processes(self) -> list[RedisEngine]:
        return [*self.members, *self.sentinels]

    def _form(self) -> None:
        primary, *replicas = self.members
        primary.start()
        if self.network is not None:
            self.network.serve(0, primary.port)
        for at, replica in enumerate(replicas, 1):
            replica.follows = primary
            replica.start()
            if self.network is not None:
                self.network.serve(at, replica.port)
        for at, sentinel in enumerate(self.sentinels):
            sentinel.peers, sentinel.watched = self.sentinels, self.members
            if self.network is not None:
                self.network.serve(at, sentinel.port)

    def _restart_members(self, down: Sequence[RedisMember]) -> None:
        """Each follows the one that the sentinels name; where they name none, all stay as they were."""
        named = self._agreed()
        for member in self.members if named is not None else ():
            member.follows = None if member is named else named
        if named is not None and named in down:  # the primary first: the others ask it for its data
            named.start()

    def _missing(self) -> Iterator[str]:
        named = self._agreed()
        if named is None or not named.is_primary():
            yield "the sentinels agree on no primary"
            return
        yield from lagging(self.members)
        wanted = len(self.members) - 1
        if named.followers() < wanted:
            yield "the primary misses a replica"
        views = self._views()
        if len(views) < len(self.sentinels):
            yield "a sentinel does not answer"
        for sentinel, seen in zip(self.sentinels, views, strict=False):
            if self.at(int(seen["port"])) is not named:
                yield f"sentinel {sentinel.port} names another primary"
            if seen["num-other-sentinels"] != str(len(self.sentinels) - 1):
                yield f"sentinel {sentinel.port} misses another"
            if any(word in seen["flags"] for word in (*_DOWN, "failover_in_progress")):
                yield f"sentinel {sentinel.port} calls the primary {seen['flags']}"
            up = [one for one in self._replicas(sentinel) if not _is_down(one)]
            if len(up) < wanted:
                yield f"sentinel {sentinel.port} sees {len(up)} replicas"

    def _heir(self, old: RedisMember) -> Callable[[], RedisMember | None]:
        def heir() -> RedisMember | None:
            now = self._agreed()
            return now if now is not None and now is not old and now.is_primary() else None

        return heir

    def _hand_over(self, old: RedisMember) -> None:
        """`SENTINEL FAILOVER`: refused while one is under way, or too soon after the last."""
        del old
        self.sentinels[0].call("SENTINEL", "FAILOVER", SERVICE)

    def _agreed(self) -> RedisMember | None:
        """The primary by the word of a majority of sentinels."""
        votes = [int(view["port"]) for view in self._views()]
        named = max(votes, key=votes.count, default=0)
        return self.at(named) if votes.count(named) >= QUORUM else None

    def _views(self) -> list[dict[str, str]]:
        """What each sentinel that answers says of the service."""
        views = []
        for sentinel in self.sentinels:
            with contextlib.suppress(OSError):
                if sentinel.pid is not None:
                    words = ("SENTINEL", "MASTER", SERVICE)
                    views.append(_pairs(ask(sentinel.port, *words, password=sentinel.password)))
        return views

    def _replicas(self, sentinel: Sentinel) -> list[dict[str, str]]:
        words = ("SENTINEL", "REPLICAS", SERVICE)
        return [_pairs(one) for one in ask(sentinel.port, *words, password=sentinel.password)]


def _is_down(view: dict[str, str]) -> bool:
    return any(word in view["flags"] for word in _DOWN) or view["master-link-status"] != "ok"


def _pairs(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))
