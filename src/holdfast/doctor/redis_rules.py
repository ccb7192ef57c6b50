"""What a Redis or Valkey would lose, from what it says of itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.backends.redis.durability import KEEPS, KEPT, Persistence, persistence_of
from holdfast.doctor import redis_members, storage, ttl
from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity
from holdfast.doctor.redis_members import Replica
from holdfast.doctor.storage import Storage
from holdfast.doctor.ttl import Sample
from holdfast.model import Durability

CONFIG: Final = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "dir",
)
"""What is asked for by CONFIG GET, each by itself: an old server does not know them all."""
DEFAULTS: Final = {
    "appendonly": "no",
    "appendfsync": "everysec",
    "no-appendfsync-on-rewrite": "no",
    "save": "3600 1 300 100 60 10000",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
    "min-replicas-to-write": "0",
}
"""What a server has that was told nothing."""
FULL: Final = 0.9
"""Of its memory limit: then a server is nearly full."""
CROWDED: Final = 0.5
"""Of the machine's memory: a snapshot or a rewrite may need as much again."""


@dataclass(frozen=True, slots=True)
class RedisSeen:
    """What one server said. None: it does not let us look."""

    config: Mapping[str, str] | None
    info: Mapping[str, str] | None
    sample: Sample | None = None
    place: Storage | None = None
    replicas: tuple[Replica, ...] = ()


def judge(seen: RedisSeen) -> Opinion:
    """Every finding about one server."""
    found = Opinion()
    found.add(persistence(seen))
    found.add(_failures(seen.info or {}))
    found.add(eviction(seen))
    found.add(_replicas(seen))
    found.add(ttl.judge(seen.sample))
    found.add(storage.judge(seen.place))
    found.findings += _version(seen.info or {})
    # How applications number and merge what they store is in their code, not in the engine.
    found.unknown |= {Hazard.ORDER, Hazard.CONCURRENCY}
    return found


def persistence(seen: RedisSeen) -> Opinion:
    """What the end of the process, and of the power, takes away."""
    found = persistence_of(seen.config, seen.info)
    if found is Persistence.HIDDEN:
        return Opinion(unknown={Hazard.SIGKILL, Hazard.POWER})
    if found is Persistence.SNAPSHOTS:
        return Opinion([_snapshots_only(seen)])
    return Opinion([_WEAK[found]] if found in _WEAK else [])


def _hazards(found: Persistence) -> tuple[Hazard, ...]:
    survives, _ = KEPT[found]
    killed = (Hazard.SIGKILL,) if survives < Durability.PROCESS else ()
    return (*killed, Hazard.POWER) if survives < Durability.DISK else ()


def _set(name: str, value: str) -> tuple[str, ...]:
    return (f"redis-cli CONFIG SET {name} {value}",)


def _snapshots_only(seen: RedisSeen) -> Finding:
    info = seen.info or {}
    save = (seen.config or {}).get("save", "unknown")
    changes = info.get("rdb_changes_since_last_save", "an unknown number of")
    kept = "nothing is ever written to disk" if save == "" else f"snapshots by save {save!r} only"
    return Finding(
        Severity.CRITICAL,
        _hazards(Persistence.SNAPSHOTS),
        "everything since the last snapshot, at SIGKILL and at power loss"
        if save != ""
        else "everything, at SIGKILL, at power loss and at every restart",
        f"without an append-only file the engine keeps what it acknowledged in memory; {kept}",
        f"appendonly no; {changes} change(s) are in memory only at this moment",
        "Set appendonly yes and appendfsync always, then CONFIG REWRITE so that a restart keeps it",
        (
            *_set("appendonly", "yes"),
            *_set("appendfsync", "always"),
            "redis-cli CONFIG REWRITE",
        ),
    )


_EVERYSEC: Final = Finding(
    Severity.CRITICAL,
    _hazards(Persistence.EVERY_SECOND),
    "the last second or two at power loss; rarely as much at SIGKILL",
    "the file is synced once a second, after the reply; while a sync is under way the engine "
    "answers before it has even written",
    "appendfsync everysec",
    "Set appendfsync always, then CONFIG REWRITE",
    (*_set("appendfsync", "always"), "redis-cli CONFIG REWRITE"),
)
_NEVER: Final = Finding(
    Severity.CRITICAL,
    _hazards(Persistence.UNSYNCED),
    "whatever the kernel has not written back by itself, up to half a minute, at power loss",
    "the engine never syncs its append-only file",
    "appendfsync no",
    "Set appendfsync always, then CONFIG REWRITE",
    (*_set("appendfsync", "always"), "redis-cli CONFIG REWRITE"),
)
_ON_REWRITE: Final = Finding(
    Severity.CRITICAL,
    _hazards(Persistence.NOT_ON_REWRITE),
    "everything since the beginning of a rewrite or snapshot, at a power loss during it",
    "although appendfsync is always, nothing is synced while a child process writes",
    "no-appendfsync-on-rewrite yes",
    "Set no-appendfsync-on-rewrite no, then CONFIG REWRITE",
    (*_set("no-appendfsync-on-rewrite", "no"), "redis-cli CONFIG REWRITE"),
)
_WEAK: Final = {
    Persistence.EVERY_SECOND: _EVERYSEC,
    Persistence.UNSYNCED: _NEVER,
    Persistence.NOT_ON_REWRITE: _ON_REWRITE,
}


def _failures(info: Mapping[str, str]) -> Opinion:
    """What the engine itself says has gone wrong."""
    signs = {
        "aof_last_write_status": "its append-only file",
        "aof_last_bgrewrite_status": "a new append-only file",
        "rdb_last_bgsave_status": "a snapshot",
    }
    return Opinion(
        [
            Finding(
                Severity.CRITICAL,
                (Hazard.SIGKILL, Hazard.POWER) if name != "aof_last_bgrewrite_status" else (),
                "what the engine could not write",
                f"it failed to write {what}: usually a full disk or missing rights",
                f"{name}:{info[name]}",
                "Look into the engine's log, make room, and see that the status is ok again",
            )
            for name, what in signs.items()
            if info.get(name, "ok") != "ok"
        ]
    )


def eviction(seen: RedisSeen) -> Opinion:
    """What a full memory takes away."""
    config, info = seen.config or {}, seen.info or {}
    policy = config.get("maxmemory-policy") or info.get("maxmemory_policy")
    limit = config.get("maxmemory") or info.get("maxmemory")
    if policy is None or limit is None:
        return Opinion(unknown={Hazard.EVICTION})
    found = Opinion()
    if policy != KEEPS:
        found.findings.append(_evicts(policy, int(limit), int(info.get("evicted_keys", 0))))
    used, limit_bytes = int(info.get("used_memory", 0)), int(limit)
    if limit_bytes and used >= FULL * limit_bytes:
        found.findings.append(_nearly_full(used, limit_bytes))
    machine = int(info.get("total_system_memory", 0))
    if not limit_bytes and machine and used >= CROWDED * machine:
        found.findings.append(_no_headroom(used, machine))
    return found


def _evicts(policy: str, limit_bytes: int, evicted: int) -> Finding:
    which = "sessions with a time to live" if policy.startswith("volatile") else "any session"
    armed = f"{evicted} key(s) were evicted since it started" if limit_bytes else (
        "there is no limit at present, so nothing is evicted until one is set; "
        "holdfast's own store refuses such a server"
    )  # fmt: skip
    return Finding(
        Severity.CRITICAL if limit_bytes else Severity.WARNING,
        (Hazard.EVICTION,) if limit_bytes else (),
        f"{which}, without a word, when the memory is full",
        f"the policy {policy} throws keys away instead of refusing writes",
        f"maxmemory-policy {policy}, maxmemory {limit_bytes}; {armed}",
        f"Set maxmemory-policy {KEEPS}, then CONFIG REWRITE",
        (*_set("maxmemory-policy", KEEPS), "redis-cli CONFIG REWRITE"),
    )


def _nearly_full(used: int, limit: int) -> Finding:
    return Finding(
        Severity.WARNING,
        (),
        "nothing yet; soon every write is refused, or something is evicted",
        f"{used / limit:.0%} of the memory limit is used",
        f"used_memory {used}, maxmemory {limit}",
        "Raise maxmemory, or remove what is not needed",
        (f"redis-cli CONFIG SET maxmemory {2 * limit}",),
    )


def _no_headroom(used: int, machine: int) -> Finding:
    return Finding(
        Severity.WARNING,
        (),
        "nothing yet; the kernel ends the whole server when the machine's memory is full",
        f"there is no limit, and {used / machine:.0%} of the machine's memory is used: while a "
        "snapshot or a rewrite is written, what changes is there twice",
        f"used_memory {used}, total_system_memory {machine}, maxmemory 0",
        f"Set maxmemory, with maxmemory-policy {KEEPS}: then writes are refused, loudly",
        (f"redis-cli CONFIG SET maxmemory {round(CROWDED * machine)}",),
    )


def _replicas(seen: RedisSeen) -> Opinion:
    """What a failover takes away."""
    if seen.info is None:
        return Opinion(unknown={Hazard.FAILOVER, Hazard.STALENESS})
    if seen.info.get("role", "master") != "master":
        return Opinion([_is_replica(seen.info)])
    replicas = replica_lags(seen.info)
    if not replicas:
        return Opinion(absent={Hazard.FAILOVER, Hazard.STALENESS})
    config = seen.config or {}
    found = redis_members.of_replicas(seen.replicas, persistence_of(seen.config, seen.info), config)
    found.findings.append(_asynchronous(len(replicas), config))
    return found


def _asynchronous(replicas: int, config: Mapping[str, str]) -> Finding:
    least = config.get("min-replicas-to-write", "unknown")
    guarded = least not in ("0", "unknown")
    lag_s = config.get("min-replicas-max-lag", "some")
    return Finding(
        Severity.NOTE if guarded else Severity.WARNING,
        (Hazard.FAILOVER,),
        "acknowledged writes that had not reached the replica, at failover",
        "replication is asynchronous: the primary answers before a replica has it. "
        + (
            f"min-replicas-to-write bounds the loss to {lag_s} s of a primary that is cut off "
            "and does not end it"
            if guarded
            else "A primary that is cut off goes on to acknowledge, and all of that is lost"
        ),
        f"{replicas} replica(s), min-replicas-to-write {least}",
        "Let each write wait for every replica that may be promoted: holdfast.connect(…, "
        "require=Durability.REPLICA), or WAIT after it; and set min-replicas-to-write 1",
        () if guarded else _set("min-replicas-to-write", "1"),
    )


def _is_replica(info: Mapping[str, str]) -> Finding:
    return Finding(
        Severity.WARNING,
        (Hazard.STALENESS, Hazard.FAILOVER),
        "the newest messages, for clients that read here",
        "this server is a replica: it follows its primary after the primary has answered",
        f"role {info.get('role')}, master_link_status {info.get('master_link_status', 'unknown')}",
        "Give the primary's URL, or a Sentinel's; read from a replica only what may be old",
    )


def replica_lags(info: Mapping[str, str]) -> dict[str, float]:
    """Seconds since each replica was last heard of; `slave0:ip=…,port=…,state=…,lag=1`."""
    lags = {}
    for name, value in info.items():
        if name.startswith("slave") and name[5:].isdigit():
            fields = dict(part.partition("=")[::2] for part in value.split(","))
            place = f"{fields.get('ip')}:{fields.get('port')}"
            lags[place] = float(fields.get("lag", "nan"))
    return lags


def _version(info: Mapping[str, str]) -> list[Finding]:
    version = info.get("redis_version", "")
    parts = version.split(".")
    if not parts[0].isdigit() or (int(parts[0]), int(parts[1])) >= (6, 2):
        return []
    return [
        Finding(
            Severity.WARNING,
            (),
            "nothing that is known; nobody looks any more",
            "this version is no longer mended, and holdfast is tested from 6.2 on",
            f"redis_version {version}",
            "Upgrade to Redis 7.2 or later, or Valkey 8 or later",
        )
    ]
