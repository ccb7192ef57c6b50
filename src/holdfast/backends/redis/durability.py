"""What an ack of this engine survives: decided from what the engine says of itself. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.model import Durability

CONFIG_NAMES: Final = (
    b"appendonly",
    b"appendfsync",
    b"no-appendfsync-on-rewrite",
    b"maxmemory-policy",
)
KEEPS: Final = "noeviction"
MANY_NAMES_VERSION: Final = 7
"""From here on CONFIG GET takes several names, and looks for no pattern where there is none."""
FLAGS_VERSION: Final = 7
"""From here on a script may say that it is for a full memory, too."""
_FENCE: Final = b"""#!lua flags=allow-oom
redis.set_repl(redis.REPL_NONE) redis.call('SET', KEYS[1], '')
redis.set_repl(redis.REPL_SLAVE) redis.call('DEL', KEYS[1])"""
"""Goes to the replicas and changes nothing there, so no member writes it to its file, or syncs for it."""


class Waitaof(enum.Enum):
    """What WAITAOF is worth on an engine."""

    NONE = "none"
    """It is not there, or there is no append-only file to wait for."""
    EARLY = "early"
    """It answers before the sync: under everysec, Redis 7.4 and every Valkey up to 9.1 do."""
    TRUE = "true"
    """What it confirms is on the disk."""


class Persistence(enum.Enum):
    """How an engine keeps what it has acknowledged."""

    HIDDEN = "hidden"
    """It does not let us read its configuration."""
    SNAPSHOTS = "snapshots"
    EVERY_SECOND = "every second"
    UNSYNCED = "unsynced"
    NOT_ON_REWRITE = "not on rewrite"
    SYNCED = "synced"


def persistence_of(config: Mapping[str, str] | None, info: Mapping[str, str] | None) -> Persistence:
    """How an engine keeps what it has acknowledged, from what it says of itself."""
    config = config or {}
    aof = config.get("appendonly") or ("no" if (info or {}).get("aof_enabled") == "0" else None)
    if aof == "no":
        return Persistence.SNAPSHOTS
    if aof is None or "appendfsync" not in config:
        return Persistence.HIDDEN
    if config["appendfsync"] == "everysec":
        return Persistence.EVERY_SECOND
    if config["appendfsync"] != "always":
        return Persistence.UNSYNCED
    if config.get("no-appendfsync-on-rewrite") == "yes":
        return Persistence.NOT_ON_REWRITE
    return Persistence.SYNCED


@dataclass(frozen=True, slots=True)
class Seen:
    """What one engine said. None: it does not let us look."""

    config: Mapping[str, str] | None
    info: Mapping[str, str] | None
    waitaof: Waitaof = Waitaof.NONE
    promotable: int = 0
    """How many replicas may become the primary by what the coordinator knows; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What acks survive, what has to be waited for to make that true, and what is missing."""

    durability: Durability
    wait_disk: bool = False
    wait_replicas: int = 0
    """So many replicas have to confirm: each that may become the primary, whichever is chosen."""
    weakness: str = ""
    risk: str | None = None
    unread: bool = False
    """Whether a read may show what is on no replica, although one may become the primary."""


QUESTIONS: Final[tuple[tuple[bytes, ...], ...]] = (
    (b"INFO",),
    *((b"CONFIG", b"GET", name) for name in CONFIG_NAMES),
)
PROBE: Final[tuple[bytes, ...]] = (b"WAITAOF", b"1", b"0", b"1")
"""On a connection that has not written it answers at once, or says that it cannot."""


def seen_from(replies: Sequence[Any]) -> Seen:
    """The answers to `QUESTIONS`; an error in the place of one means that we may not look."""
    info, *pairs = replies
    config: dict[str, str] | None = {}
    for pair in pairs:
        if isinstance(pair, Exception) or config is None:
            config = None
        elif len(pair) == 2:  # noqa: PLR2004 - a name and its value
            config[pair[0].decode()] = pair[1].decode()
    return Seen(
        config or None,
        None if isinstance(info, Exception) else parse_info(info),
    )


def recheck(seen: Seen) -> tuple[bytes, ...]:
    """What to ask beside each write: the settings without which an ack is worth nothing."""
    if seen.config is None:
        return ()
    if version_of(seen.info or {}) >= (MANY_NAMES_VERSION,):
        return (b"CONFIG", b"GET", b"appendonly", b"appendfsync")
    return (b"CONFIG", b"GET", b"append*")


def fence(seen: Seen, key: bytes) -> tuple[bytes, ...]:
    """What is written for a read: replicas that confirm it are still those of this primary."""
    if version_of(seen.info or {}) >= (FLAGS_VERSION,):
        return (b"EVAL", _FENCE, b"1", key)
    return (b"SET", key, b"", b"PX", b"1000")


def version_of(info: Mapping[str, str]) -> tuple[int, ...]:
    """The version of Redis that an engine speaks as: Valkey says 7.2."""
    parts = info.get("redis_version", "").split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


def changed(seen: Seen, reply: Any) -> Seen | None:
    """What the engine says now, if that is not what was seen before."""
    if isinstance(reply, Exception):
        return replace(seen, config=None)
    before = seen.config or {}
    words = [word.decode() for word in reply]
    now = {**before, **{n: v for n, v in zip(words[::2], words[1::2], strict=True) if n in before}}
    return None if now == before else replace(seen, config=now)


def may_wait(seen: Seen) -> bool:
    """Whether a WAITAOF could ever be confirmed: with appendfsync no, the engine never syncs."""
    return (seen.config or {}).get("appendfsync") != "no"


def syncs_always(seen: Seen) -> bool:
    """Then WAITAOF is true by itself, and helps where rewrites hold the syncs up."""
    return (seen.config or {}).get("appendfsync") == "always"


def parse_info(text: bytes) -> dict[str, str]:
    """`INFO` as a dictionary."""
    lines = text.decode("utf-8", "replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def decide(seen: Seen, require: Durability, stated: Durability | None) -> Assessment:
    """What acks survive when at least `require` is wanted. What is seen goes before what is stated."""
    if evicts := _evicting(seen):
        return Assessment(Durability.MEMORY, weakness=evicts)
    alone, weakness = _by_itself(seen, stated)
    risk = _stated_risk(seen, stated) if alone is stated else None
    disk = alone >= Durability.DISK or seen.waitaof is Waitaof.TRUE
    if require <= alone:
        return Assessment(alone, weakness=weakness, risk=risk)
    if require <= Durability.DISK:
        if disk:
            return Assessment(Durability.DISK, wait_disk=True)
        return Assessment(alone, weakness=weakness, risk=risk)
    return _with_replica(seen, alone, weakness if not disk else "", risk)


def _with_replica(seen: Seen, alone: Durability, weakness: str, risk: str | None) -> Assessment:
    if weakness:
        return Assessment(alone, weakness=weakness)
    online, wanted = online_replicas(seen.info or {}), max(seen.promotable, 1)
    if online < wanted:
        missing = "no replica is connected to this engine. Start one (replicaof)"
        if online:
            missing = (
                f"{online} of the {wanted} replicas that may become the primary follow this engine: "
                "a failover to another would lose the write. Wait until they do"
            )
        return Assessment(
            Durability.DISK,
            wait_disk=alone < Durability.DISK,
            weakness=f"{missing}, or say require=Durability.DISK",
            unread=seen.promotable > 0,
        )
    return Assessment(
        Durability.REPLICA, wait_disk=alone < Durability.DISK, wait_replicas=wanted, risk=risk
    )


def online_replicas(info: Mapping[str, str]) -> int:
    """`slave0:ip=…,port=…,state=online,…`; one that is still being sent the data does not count."""
    return sum(
        name.startswith("slave") and ",state=online," in value for name, value in info.items()
    )


def _evicting(seen: Seen) -> str:
    policy = (seen.config or {}).get("maxmemory-policy") or (seen.info or {}).get(
        "maxmemory_policy", KEEPS
    )
    if policy == KEEPS:
        return ""
    return (
        f"maxmemory-policy is {policy}, so the engine throws sessions away when its memory is "
        f"full. Set maxmemory-policy {KEEPS} (CONFIG SET maxmemory-policy {KEEPS}, and in "
        "redis.conf)"
    )


def _by_itself(seen: Seen, stated: Durability | None) -> tuple[Durability, str]:
    """What a plain reply is worth, without waiting for anything; and why it is not more."""
    found = _persistence(seen)
    if found is Persistence.HIDDEN:
        return _hidden(stated)
    survives, weakness = KEPT[found]
    return survives, weakness + (
        _EVERYSEC_WAIT[seen.waitaof] if found is Persistence.EVERY_SECOND else ""
    )


def _persistence(seen: Seen) -> Persistence:
    """Without CONFIG, INFO does not overrule what the URL states: `_stated_risk` tells of it."""
    return Persistence.HIDDEN if seen.config is None else persistence_of(seen.config, seen.info)


KEPT: Final = {
    Persistence.SNAPSHOTS: (
        Durability.MEMORY,
        (
            "appendonly is no, so everything since the last snapshot is gone with the engine's "
            "process. Set appendonly yes and appendfsync always (CONFIG SET appendonly yes, CONFIG "
            "SET appendfsync always, and in redis.conf)"
        ),
    ),
    Persistence.EVERY_SECOND: (
        Durability.MEMORY,
        (
            "appendfsync is everysec, so power loss takes the last second or two, and SIGKILL may too: "
            "while a sync is under way the engine answers before it writes. Set appendfsync always "
            "(CONFIG SET appendfsync always, and in redis.conf)"
        ),
    ),
    Persistence.UNSYNCED: (
        Durability.PROCESS,
        (
            "appendfsync is no, so the engine never syncs its file. Set appendfsync always (CONFIG "
            "SET appendfsync always, and in redis.conf)"
        ),
    ),
    Persistence.NOT_ON_REWRITE: (
        Durability.PROCESS,
        (
            "no-appendfsync-on-rewrite is yes, so nothing is synced while the engine rewrites its "
            "file. Set no-appendfsync-on-rewrite no (CONFIG SET no-appendfsync-on-rewrite no, and "
            "in redis.conf)"
        ),
    ),
    Persistence.SYNCED: (Durability.DISK, ""),
}
"""What a plain reply survives, and why not more. The backend and the doctor decide by this table."""
_EVERYSEC_WAIT: Final = {
    Waitaof.NONE: ", or use Redis 8, whose WAITAOF lets us wait for the sync",
    Waitaof.EARLY: ". This engine has WAITAOF, but it was seen to answer before the sync",
    Waitaof.TRUE: "",
}


def _hidden(stated: Durability | None) -> tuple[Durability, str]:
    if stated is not None:
        return stated, f"the URL states durability={stated.name.lower()}, and no more"
    return Durability.MEMORY, (
        "the engine does not let us read its configuration (CONFIG is forbidden), so what it keeps "
        "is unknown. If you know it, state it in the URL: ?durability=disk"
    )


def _stated_risk(seen: Seen, stated: Durability | None) -> str | None:
    if stated is None or _persistence(seen) is not Persistence.HIDDEN:
        return None
    off = (seen.info or {}).get("aof_enabled") == "0"
    return (
        f"durability={stated.name.lower()} was stated in the URL; the engine does not let us see "
        "whether it is so" + (", and says that it has no append-only file" if off else "")
    )
