"""A Redis Cluster of three primaries, each with a replica that takes over by itself."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from holdfast.errors import FaultNotProven
from holdfast.verify.engines.cluster import NODES, SLOTS
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.process import START_TIMEOUT_S
from holdfast.verify.engines.topologies.redis_members import (
    CHANGE_TIMEOUT_S,
    POLL_S,
    RedisMember,
    RedisTopology,
    ask,
    lagging,
)
from holdfast.verify.proof import Evidence, await_true

NODE_TIMEOUT_MS: Final = 600
MIGRATE_KEYS: Final = "100"
MIGRATE_TIMEOUT_MS: Final = "5000"


class RedisReplicatedCluster(RedisTopology):
    """Six nodes, each on a machine of its own: where two primaries share one, its loss ends the cluster."""

    topology = "cluster"
    machines = 2 * NODES

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._turn = 0
        """The shard of which the primary is the next to be struck."""

    @staticmethod
    def _of_member(options: EngineOptions) -> EngineOptions:
        own = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
            # A replica that has just come back may be all that is left of its shard.
            "cluster-replica-validity-factor": "0",
            **options.settings,
        }
        return replace(options, settings=own)

    @property
    def url(self) -> str:
        """The members; a cluster client finds out by itself who serves what."""
        hosts = ",".join(f"{one.machine}:{one.public_port}" for one in self.members)
        return f"redis+cluster://:{self._options.password}@{hosts}"

    def primary(self) -> RedisMember:
        """The primary of one shard; after each failover or switchover that of the next."""
        found = self.owner(_first_slot(self._turn))
        if found is None:
            raise FaultNotProven("the cluster agrees on no primary now")
        return found

    def epoch(self) -> int:
        """The newest epoch that a member knows."""
        return max(int(view["cluster_current_epoch"]) for _, view in self._views())

    def owner(self, slot: int) -> RedisMember | None:
        """Who serves a slot by the word of most members; None while no majority agrees."""
        votes = Counter(self._owner_by(member, slot) for member in self.members)
        [(found, count)] = votes.most_common(1)
        return found if count > len(self.members) // 2 else None

    def reshard(self, slots: int = 20) -> Evidence:
        """Move some slots that have data from one primary to another, under load."""
        source = self.primary()
        owners = (self.owner(_first_slot(shard)) for shard in range(NODES))
        target = next(one for one in owners if one is not None and one is not source)
        moving = self._used_slots(source, slots)
        keys = sum(self._move(slot, source, target) for slot in moving)
        if not keys:
            raise FaultNotProven("reshard: the primary had nothing that could be moved")

        def agreed() -> bool:
            return all(self.owner(slot) is target for slot in moving)

        if not await_true(agreed, CHANGE_TIMEOUT_S, POLL_S):
            raise FaultNotProven("reshard: the members do not agree who serves the slots")
        facts = {"before": source.port, "after": target.port, "slots": len(moving), "keys": keys}
        words = f"{len(moving)} slots with {keys} keys moved from {source.port} to {target.port}"
        return Evidence("reshard", words, facts)

    @staticmethod
    def _used_slots(source: RedisMember, count: int) -> list[int]:
        """Slots that have keys; never that by which the shard is known."""
        _, keys = source.call("SCAN", "0", "COUNT", "1000")
        firsts = [_first_slot(shard) for shard in range(NODES)]
        found = dict.fromkeys(source.call("CLUSTER", "KEYSLOT", key) for key in keys)
        return [slot for slot in found if slot not in firsts][:count]

    def _move(self, slot: int, source: RedisMember, target: RedisMember) -> int:
        """As `redis-cli --cluster reshard` does; how many keys moved."""
        target.call("CLUSTER", "SETSLOT", str(slot), "IMPORTING", source.node_id())
        source.call("CLUSTER", "SETSLOT", str(slot), "MIGRATING", target.node_id())
        moved = 0
        where = (target.machine, str(target.public_port), "", "0", MIGRATE_TIMEOUT_MS)
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", str(slot), MIGRATE_KEYS):
            source.call("MIGRATE", *where, "AUTH", self._options.password, "KEYS", *keys)
            moved += len(keys)
        for member in (target, source):
            member.call("CLUSTER", "SETSLOT", str(slot), "NODE", target.node_id())
        return moved

    def _form(self) -> None:
        for at, member in enumerate(self.members):
            member.start()
            if self.network is not None:
                self.network.serve(at, member.port)
                self.network.serve(at, member.port + member.bus_offset)
        for at, member in enumerate(self.members):
            if at < NODES:
                mine = range(_first_slot(at), _first_slot(at + 1))
                member.call("CLUSTER", "ADDSLOTS", *map(str, mine))
            member.call("CLUSTER", "SET-CONFIG-EPOCH", str(at + 1))
        first = self.members[0]
        for member in self.members[1:]:
            first.call("CLUSTER", "MEET", member.machine, str(member.public_port))
        known = f"cluster_known_nodes:{len(self.members)}"
        await_true(
            lambda: all(known in one.call("CLUSTER", "INFO").split() for one in self.members),
            START_TIMEOUT_S,
            POLL_S,
        )
        for primary, replica in zip(self.members, self.members[NODES:], strict=False):
            replica.call("CLUSTER", "REPLICATE", primary.node_id())

    def _missing(self) -> Iterator[str]:
        views = list(self._views())
        if len(views) < len(self.members):
            yield "a member does not answer"
            return
        for member, info in views:
            if info["cluster_state"] != "ok":
                yield f"{member.port} says that the cluster is not whole"
        yield from lagging(self.members)
        replicas = sum(one.followers() for one in self.members)
        if replicas < len(self.members) - NODES:
            yield f"{replicas} replicas are in step"
        flags = [line.split()[2] for one in self.members for line in _nodes(one)]
        if any("fail" in flag or "handshake" in flag for flag in flags):
            yield "a member is called failing by another"
        for slot in map(_first_slot, range(NODES)):
            if len({self._owner_by(one, slot) for one in self.members}) > 1:
                yield f"the members do not agree who serves slot {slot}"

    def _heir(self, old: RedisMember) -> Callable[[], RedisMember | None]:
        slot = _first_slot(self._turn)
        self._turn = (self._turn + 1) % NODES

        def heir() -> RedisMember | None:
            now = self.owner(slot)
            return now if now is not None and now is not old and self._is_ok() else None

        return heir

    def _hand_over(self, old: RedisMember) -> None:
        """`CLUSTER FAILOVER` at a replica: the old primary holds writes until it has them all."""
        name = old.node_id()
        replica = next(
            one
            for one in self.members
            if one.pid is not None and any(_is_own(line, name) for line in _nodes(one))
        )
        replica.call("CLUSTER", "FAILOVER")

    def _is_ok(self) -> bool:
        whole = sum(view["cluster_state"] == "ok" for _, view in self._views())
        return whole > len(self.members) // 2

    def _views(self) -> Iterator[tuple[RedisMember, dict[str, str]]]:
        """What each member that answers says of the cluster."""
        for member in self.members:
            with contextlib.suppress(OSError):
                if member.pid is not None:
                    words = ask(member.port, "CLUSTER", "INFO", password=member.password).split()
                    yield member, dict(word.partition(":")[::2] for word in words)

    def _owner_by(self, member: RedisMember, slot: int) -> RedisMember | None:
        with contextlib.suppress(OSError):
            for first, last, (_, port, *_), *_ in _slots(member) if member.pid else ():
                if first <= slot <= last:
                    return self.at(int(port))
        return None


def _first_slot(shard: int) -> int:
    return SLOTS * shard // NODES


def _slots(member: RedisMember) -> list[Any]:
    found: list[Any] = ask(member.port, "CLUSTER", "SLOTS", password=member.password)
    return found


def _nodes(member: RedisMember) -> list[str]:
    lines: list[str] = member.call("CLUSTER", "NODES").splitlines()
    return lines


def _is_own(line: str, primary: str) -> bool:
    """Whether a line of CLUSTER NODES is a member's own, and says that it follows this primary."""
    _, _, flags, follows, *_ = line.split()
    return "myself" in flags and follows == primary
