"""What a failover of a Redis would lose: its replicas, the sentinels that watch it, the shards. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.backends.redis.durability import KEPT, Persistence
from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity

SENTINELS_MIN: Final = 3
"""With fewer, the loss of one machine leaves no majority that could choose a primary."""
_NO_FAILOVER: Final = "nothing by itself, but nobody takes the place of a primary that is lost"


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as its primary sees it, and as it says itself where it could be asked."""

    where: str
    state: str
    lag_s: float
    behind_bytes: int
    """Of the primary's log, when it last said how far it is."""
    persistence: Persistence | None = None
    """None: it could not be asked."""
    priority: int | None = None
    """With 0 it is never promoted."""

    @property
    def is_online(self) -> bool:
        """Whether it is in step, as far as its primary knows."""
        return self.state == "online"

    def line(self) -> str:
        """It in words."""
        kept = "unknown" if self.persistence is None else _KEEPS[self.persistence]
        never = ", replica-priority 0: never promoted" if self.priority == 0 else ""
        return (
            f"replica {self.where}: {self.state}, at most {self.behind_bytes} bytes behind "
            f"{self.lag_s:.0f} s ago, keeps: {kept}{never}"
        )


_KEEPS: Final = {
    Persistence.HIDDEN: "hidden",
    Persistence.SNAPSHOTS: "snapshots or nothing (appendonly no)",
    Persistence.EVERY_SECOND: "appendfsync everysec",
    Persistence.UNSYNCED: "appendfsync no",
    Persistence.NOT_ON_REWRITE: "appendfsync always, but not during rewrites",
    Persistence.SYNCED: "appendfsync always",
}


@dataclass(frozen=True, slots=True)
class Sentinel:
    """What one sentinel says of the service."""

    where: str
    primary: str
    epoch: int
    quorum: int
    flags: str
    others: tuple[str, ...]
    """The sentinels that it knows besides itself."""
    replicas: int
    """Those that it knows: one that it does not is left behind by a failover."""


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Those that the URL names: what each says, and who said nothing."""

    service: str
    seeds: int
    views: tuple[Sentinel, ...]
    silent: Mapping[str, str] = field(default_factory=dict)
    """Where, and why nothing is known of it."""

    @property
    def known(self) -> int:
        """How many there are, by the word of the one that knows most."""
        return max((len(one.others) + 1 for one in self.views), default=self.seeds)

    @property
    def majority(self) -> int:
        """So many must agree on who is promoted."""
        return self.known // 2 + 1


@dataclass(frozen=True, slots=True)
class Node:
    """A member of a cluster, by the word of one of them."""

    where: str
    flags: tuple[str, ...]
    primary: str
    """The id of the node that it follows; empty for a primary."""
    slots: int
    name: str

    @property
    def is_failed(self) -> bool:
        """Whether the others have given it up."""
        return "fail" in self.flags


def replica_lines(replicas: Sequence[Replica]) -> Iterator[str]:
    """Who follows, and what a failover at this moment would take."""
    yield from (one.line() for one in replicas)
    heirs = [one for one in replicas if one.is_online and one.priority != 0]
    if not heirs:
        yield "a failover now: not possible, no replica that may be promoted follows this primary"
        return
    most = max(heirs, key=lambda one: one.behind_bytes)
    yield (
        "a failover now loses the last acknowledged writes that the promoted replica lacks (at most "
        f"{most.behind_bytes} bytes of the log); of acks at REPLICA none"
    )


def of_replicas(
    replicas: Sequence[Replica], primary: Persistence, config: Mapping[str, str]
) -> Opinion:
    """What is wrong with the members behind a primary."""
    found = Opinion()
    for one in replicas:
        if not one.is_online:
            found.findings.append(_not_online(one))
        if one.persistence not in (None, Persistence.HIDDEN) and primary is not Persistence.HIDDEN:
            assert one.persistence is not None  # noqa: S101 - for mypy
            if KEPT[one.persistence][0] < KEPT[primary][0]:
                found.findings.append(_keeps_less(one, one.persistence))
    if replicas and primary is Persistence.SNAPSHOTS and config.get("save") == "":
        found.findings.append(_EMPTY_PRIMARY)
    if replicas and all(one.priority == 0 for one in replicas):
        found.findings.append(_NEVER_PROMOTED)
    return found


def _not_online(replica: Replica) -> Finding:
    return Finding(
        Severity.WARNING,
        (Hazard.FAILOVER,),
        "what was acknowledged since it stopped to follow, should it be promoted",
        "a replica is connected and not in step: it is still being sent the data",
        f"replica {replica.where}: {replica.state}, {replica.behind_bytes} bytes behind",
        "Wait until it is online; where it stays so, look into its log and the primary's",
    )


def _keeps_less(replica: Replica, persistence: Persistence) -> Finding:
    host, _, port = replica.where.rpartition(":")
    tool = f"redis-cli -h {host} -p {port} CONFIG"
    return Finding(
        Severity.WARNING,
        (Hazard.FAILOVER,),
        "after a failover to it, what is acknowledged from then on, as soon as it is killed or loses "
        "its power",
        "this replica keeps less on its disk than the primary does",
        f"replica {replica.where}: {_KEEPS[persistence]}",
        "Give every member the settings of the primary",
        (f"{tool} SET appendonly yes", f"{tool} SET appendfsync always", f"{tool} REWRITE"),
    )


_EMPTY_PRIMARY: Final = Finding(
    Severity.CRITICAL,
    (Hazard.FAILOVER,),
    "everything, on every replica as well, when the primary is restarted before a failover",
    "the primary keeps nothing on its disk: it comes back empty, and its replicas copy that",
    "save '', appendonly no, and replicas that follow",
    "Set appendonly yes on every member; until then never let a primary restart by itself",
    ("redis-cli CONFIG SET appendonly yes", "redis-cli CONFIG REWRITE"),
)
_NEVER_PROMOTED: Final = Finding(
    Severity.WARNING,
    (),
    _NO_FAILOVER,
    "every replica has replica-priority 0, which sentinels never choose",
    "replica-priority 0",
    "Give one replica at least a priority above 0",
    ("redis-cli -h REPLICA CONFIG SET replica-priority 100",),
)


def sentinel_lines(seen: Sentinels) -> Iterator[str]:
    """Who watches, and whom they call primary."""
    for one in seen.views:
        yield (
            f"sentinel {one.where}: names {one.primary} in epoch {one.epoch}, quorum {one.quorum}, "
            f"knows {len(one.others)} other(s) and {one.replicas} replica(s)"
        )
    yield from (f"sentinel {where}: {why}" for where, why in seen.silent.items())
    yield (
        f"sentinels: {len(seen.views)} of {seen.known} answer, {seen.majority} must agree on a "
        "failover"
    )


def of_sentinels(seen: Sentinels, *, replicas: bool) -> Opinion:
    """Whether there would be a failover at all, a needless one, or two primaries."""
    if not seen.views:
        return Opinion()
    checks = (_disagreement, _too_few, _quorum, _unnamed)
    found = Opinion([one for check in checks if (one := check(seen)) is not None])
    if not replicas:
        found.findings.append(_NO_REPLICA)
    return found


_NO_REPLICA: Final = Finding(
    Severity.WARNING,
    (Hazard.FAILOVER,),
    "everything, when the primary's machine is lost",
    "sentinels watch a primary that no replica follows, so nobody can take its place",
    "connected_slaves 0",
    "Start a replica (replicaof), or mend the way from it to the primary",
)


def _disagreement(seen: Sentinels) -> Finding | None:
    named = dict.fromkeys(one.primary for one in seen.views)
    if len(named) == 1:
        return None
    views = ", ".join(f"{one.where} names {one.primary} (epoch {one.epoch})" for one in seen.views)
    return Finding(
        Severity.CRITICAL,
        (Hazard.FAILOVER, Hazard.STALENESS),
        "what the deposed primary acknowledges, when it follows the other",
        "sentinels name different primaries: clients of either write, and one side is thrown away",
        views,
        "Look again in a few seconds: a failover may be under way. If it stays, find the sentinel "
        "that is cut off",
    )


def _too_few(seen: Sentinels) -> Finding | None:
    if len(seen.views) < seen.majority:
        return Finding(
            Severity.WARNING, (), _NO_FAILOVER,
            f"{seen.majority} sentinels must agree, and {len(seen.views)} answer",
            _silent(seen), "Start them, mend the way to them, or correct the URL",
        )  # fmt: skip
    if seen.known < SENTINELS_MIN:
        return Finding(
            Severity.WARNING, (), _NO_FAILOVER,
            "where the machine of one sentinel is lost with the primary, the rest is no majority",
            f"{seen.known} sentinel(s)", "Run three, on three machines",
        )  # fmt: skip
    if seen.silent:
        return Finding(
            Severity.NOTE, (), "nothing; a further sentinel that is lost may end failovers",
            "a sentinel tells nothing of the service", _silent(seen), "Start it, or correct the URL",
        )  # fmt: skip
    return None


def _silent(seen: Sentinels) -> str:
    return ", ".join(f"{where}: {why}" for where, why in seen.silent.items())


def _quorum(seen: Sentinels) -> Finding | None:
    quorum = max(one.quorum for one in seen.views)
    least = min(one.quorum for one in seen.views)
    commands = tuple(
        f"redis-cli -h {one.where.rpartition(':')[0]} -p {one.where.rpartition(':')[2]} "
        f"SENTINEL SET {seen.service} quorum {seen.majority}"
        for one in seen.views
        if one.quorum != seen.majority
    )
    change = f"Set the quorum to {seen.majority}, a majority, at every sentinel"
    if least < seen.majority and seen.known > 1:
        return Finding(
            Severity.WARNING, (Hazard.FAILOVER,),
            "acknowledged writes, by a failover that nobody needed",
            f"{least} sentinel(s) that cannot reach the primary are enough to begin one, while "
            "clients still write to it",
            f"quorum {least} of {seen.known} sentinels", change, commands,
        )  # fmt: skip
    if quorum >= seen.known and seen.known > 1:
        return Finding(
            Severity.WARNING, (), _NO_FAILOVER,
            "every sentinel must call the primary down, and one of them may be lost with it",
            f"quorum {quorum} of {seen.known} sentinels", change, commands,
        )  # fmt: skip
    return None


def _unnamed(seen: Sentinels) -> Finding | None:
    if seen.seeds >= seen.known:
        return None
    others = dict.fromkeys(place for one in seen.views for place in (one.where, *one.others))
    return Finding(
        Severity.WARNING,
        (Hazard.FAILOVER,),
        "what a deposed primary acknowledges, while the sentinels of this URL still name it",
        "the URL names fewer sentinels than there are, so most of those that it names may be cut "
        "off from the others and not know of a failover",
        f"{seen.seeds} of {seen.known} sentinels are in the URL",
        f"Name all of them: {', '.join(sorted(others))}",
    )


def cluster_lines(nodes: Sequence[Node], state: str) -> Iterator[str]:
    """Which node serves how much, and who has failed."""
    names = {one.name: one.where for one in nodes}
    for one in sorted(nodes, key=lambda one: (one.primary, one.where)):
        if one.slots:
            yield f"node {one.where}: primary of {one.slots} slots{', failed' * one.is_failed}"
        elif one.is_failed:
            yield f"node {one.where}: replica of {names.get(one.primary, '?')}, failed"
    primaries = [one for one in nodes if one.slots and not one.is_failed]
    yield (
        f"cluster: state {state}, {len(primaries)} primaries, "
        f"{len(primaries) // 2 + 1} must agree on a failover"
    )


def of_cluster(nodes: Sequence[Node], state: str) -> Opinion:
    """Shards that nobody could take over, and a cluster that serves not everything."""
    found = Opinion()
    if state not in ("ok", "unknown"):
        found.findings.append(
            Finding(
                Severity.WARNING,
                (),
                "nothing; sessions cannot be written or read now",
                "some slots are served by no node, or most primaries are not reached",
                f"cluster_state:{state}",
                "Look into CLUSTER NODES: start what has failed",
            )
        )
    heirs = {one.primary for one in nodes if one.primary and not one.is_failed}
    alone = [one for one in nodes if one.slots and not one.primary and one.name not in heirs]
    if alone:
        found.findings.append(
            Finding(
                Severity.WARNING,
                (Hazard.FAILOVER,),
                "the sessions of a shard, when its machine is lost",
                "no replica follows its primary, so nobody can take its place",
                f"without a replica: {', '.join(one.where for one in alone)}",
                "Give each shard a replica, two for writes at REPLICA that go on after a failover",
                tuple(
                    f"redis-cli --cluster add-node NEW {one.where} --cluster-slave "
                    f"--cluster-master-id {one.name}"
                    for one in alone
                ),
            )
        )
    return found
