"""Why it probably happened and what to change, by what was seen. A table; first match wins.

A check sees what a store does, not its code: every cause here is a likely one, and is called so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.verify.result import LASTING

_REDIS: Final = frozenset({"redis", "valkey"})
_ENGINE_GONE: Final = frozenset({"kill", "restart", "power", "power-explore"})
_POWER: Final = frozenset({"power", "power-explore"})
_UNANSWERED: Final = frozenset({"pause", "network", "lost-ack", "connections"})
"""Faults after which a client may still wait for an answer."""
_UPON_CLIENTS: Final = frozenset({"kill-clients", "pause-client"})
"""Scenarios that harm clients one at a time and leave the engine alone."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause, and the setting or the pattern in code to change."""

    cause: str
    change: str


@dataclass(frozen=True, slots=True)
class _When:
    """What must have been seen for a row to apply. An empty field asks for nothing.

    `faults` are those between the write and the read; `calm` asks that there were none, or none
    that could harm: the engine was left alone, and the writer went on after them.
    `rivals` asks that others wrote to the session at the same time.
    """

    says: Cause
    names: frozenset[str] = frozenset()
    promise: str = ""
    stores: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()
    configs: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    scenarios: frozenset[str] = frozenset()
    calm: bool = False
    rivals: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of one finding."""

    name: str
    promise: str
    store: str
    engine: str
    config: str
    faults: frozenset[str]
    scenario: str
    rivals: bool
    calm: bool


def likely(
    promise: str,
    environment: Mapping[str, Any],
    anomaly: Mapping[str, Any] | None = None,
    *,
    scenario: str = "",
) -> Cause:
    """The likely cause of an anomaly, or of a promise that was broken in a scenario without one.

    It speaks to the people who can change the store: its user, its framework's maintainers, or us.
    """
    engine = environment.get("engine") or {}
    info = anomaly or {}
    met = [str(fault["name"]) for fault in info.get("faults") or ()]
    faults = frozenset(met or LASTING & {str(info.get("fault"))})
    where = str(info.get("scenario", scenario))
    unharmed = where in _UPON_CLIENTS and bool(info.get("writer_went_on"))
    seen = _Seen(
        name=str(info.get("name", "")),
        promise=promise,
        store=str(environment.get("store", "")),
        engine=str(engine.get("kind", "")),
        config=str(engine.get("config", "")),
        faults=faults,
        scenario=where,
        calm=not faults or unharmed,
        rivals=any(one["f"] == "append" for one in info.get("nearby") or ()),
    )
    says = next((row.says for row in _TABLE if _matches(row, seen)), _NOT_KNOWN)
    if seen.store != "framework" or says is _NOT_KNOWN:
        return says
    return Cause(says.cause, f"This is the framework's code: report it there. {says.change}")


def of_promise(promise: str, one: Mapping[str, Any], environment: Mapping[str, Any]) -> Cause:
    """The likely cause behind a broken promise: that of the first root, or of the scenario."""
    roots = (a for a in one["anomalies"] if a.get("follows_from") is None)
    scenarios = one["evidence"].get("scenarios", {})
    broken = next((s for s, seen in scenarios.items() if seen.get("verdict") == "broken"), "")
    return likely(promise, environment, next(roots, None), scenario=broken)


def _matches(row: _When, seen: _Seen) -> bool:
    return all(
        (
            not row.names or seen.name in row.names,
            not row.promise or seen.promise == row.promise,
            not row.stores or seen.store in row.stores,
            not row.engines or seen.engine in row.engines,
            not row.configs or seen.config in row.configs,
            not row.faults or bool(seen.faults & row.faults),
            not row.scenarios or seen.scenario in row.scenarios,
            seen.calm or not row.calm,
            not row.rivals or seen.rivals,
        )
    )


_NOT_KNOWN: Final = Cause(
    "The check saw what happened and cannot tell why.",
    "Run the command below again with the same seed and follow the operations of the witness in "
    "the store's own log.",
)
_LOST: Final = frozenset({"lost", "rollback"})
_TABLE: Final = (
    _When(
        Cause(
            "This configuration writes nothing to disk (appendonly no, no snapshots), so the "
            "engine's memory died with its process.",
            "Set appendonly yes and appendfsync always; or require MEMORY only, and say so to "
            "the people who rely on it.",
        ),
        names=_LOST,
        engines=_REDIS,
        configs=frozenset({"no-persistence"}),
        faults=_ENGINE_GONE,
    ),
    _When(
        Cause(
            "Snapshots only (appendonly no): everything since the last RDB snapshot lived in the "
            "engine's memory and died with its process.",
            "Set appendonly yes with appendfsync always, which syncs before it answers; everysec "
            "still loses about the last second when the power goes.",
        ),
        names=_LOST,
        engines=_REDIS,
        configs=frozenset({"rdb-only"}),
        faults=_ENGINE_GONE,
    ),
    _When(
        Cause(
            "The append-only file is synced once a second (or not at all while it is rewritten), "
            "so an ack comes before its bytes are on disk.",
            "Set appendfsync always and no-appendfsync-on-rewrite no, or wait for WAITAOF before "
            "acknowledging.",
        ),
        names=_LOST,
        engines=_REDIS,
        configs=frozenset({"aof-everysec", "mixed", "aof-rewriting"}),
        faults=frozenset({"power", "power-explore"}),
    ),
    _When(
        Cause(
            "The server acknowledges a commit before its log is on disk.",
            "Set synchronous_commit = on and fsync = on.",
        ),
        names=_LOST,
        engines=frozenset({"postgres"}),
        configs=frozenset({"synchronous-commit-off", "fsync-off"}),
        faults=_ENGINE_GONE,
    ),
    _When(
        Cause(
            "This is Holdfast's own store, and no setting of its engine explains it: a defect of "
            "Holdfast.",
            "Please report it with the command below and the JSON of --json.",
        ),
        stores=frozenset({"holdfast"}),
    ),
    _When(
        Cause(
            "The ack came before the bytes were on disk: the synchronous level is below FULL, or "
            "the file, or its directory after a file was made, renamed or removed, was not synced.",
            "On SQLite PRAGMA synchronous=FULL, and EXTRA unless journal_mode=WAL; for files of "
            "your own fsync the file and then its directory, and acknowledge after that.",
        ),
        names=_LOST,
        engines=frozenset({"sqlite", "chroma", ""}),
        faults=_POWER,
    ),
    _When(
        Cause(
            "The server syncs every commit, so the store's own session turned that off "
            "(synchronous_commit), or acknowledged before its COMMIT was answered.",
            "Remove SET synchronous_commit from the store and from its role's settings, and "
            "acknowledge after COMMIT has returned.",
        ),
        names=_LOST,
        engines=frozenset({"postgres"}),
        faults=_ENGINE_GONE,
    ),
    _When(
        Cause(
            "Two clients read the session, each added its own messages and wrote the whole back: "
            "the later write covered the earlier one (a lost update). If only messages of some "
            "length or kind are gone, or only the oldest, the store left those out.",
            "Append in one step that the engine keeps together: one INSERT in a transaction, one "
            "RPUSH or Lua script; or write with a version check and retry on conflict.",
        ),
        names=_LOST,
        rivals=True,
        calm=True,
    ),
    _When(
        Cause(
            "The ack was given before the write was in the engine: a background thread, a queue "
            "or a buffer in the process that was killed still held it.",
            "Acknowledge only after the engine has confirmed the commit, in the same call.",
        ),
        names=_LOST,
        faults=frozenset({"kill", "pause", "crash-at-line"}) | _POWER,
    ),
    _When(
        Cause(
            "The server that answered was replaced by another, or cut off from it: the ack came "
            "before a replica had the write.",
            "Wait for replicas before acknowledging (Redis: WAIT; PostgreSQL: "
            "synchronous_standby_names), and stop writing where none answers.",
        ),
        names=_LOST,
        faults=frozenset({"failover", "switchover", "partition"}),
    ),
    _When(
        Cause(
            "An error of the engine was swallowed while it was away, refused connections or had a "
            "full or failing disk, and the append was acknowledged all the same.",
            "Let the error out. If nobody knows whether the write happened, raise an error that "
            "says so, and let the caller retry with the same key.",
        ),
        names=_LOST,
        faults=frozenset({"network", "connections", "restart", "lost-ack", "disk"}),
    ),
    _When(
        Cause(
            "Nothing was wrong with the engine, so the store itself dropped it: a whole-session "
            "write that covers another client's, an ack before the write, only the last N kept, or "
            "messages of some length or kind left out without an error.",
            "Append instead of rewriting the session, in one transaction or script, acknowledge "
            "after the engine has confirmed it, and refuse by an error what is not kept.",
        ),
        names=_LOST,
        calm=True,
    ),
    _When(
        Cause(
            "The batch is written in several steps, and the power went before the last of them was "
            "synced: the synced part of the batch is there, the write that was not synced is gone.",
            "Write the batch as one transaction, or as one record of your file with its length "
            "and a checksum; sync it once, before the ack, and drop an incomplete record on "
            "reading.",
        ),
        promise="atomic",
        faults=_POWER,
    ),
    _When(
        Cause(
            "The messages of one append are written one by one, so a reader (or a crash) can come "
            "in between.",
            "Write the batch in one transaction, one multi-row statement or one script.",
        ),
        promise="atomic",
    ),
    _When(
        Cause(
            "Order comes from somewhere else than the write: a clock of the application, an "
            "unordered query, or numbers taken before the transaction that uses them.",
            "Let the engine number messages inside the write, and sort by that number only; "
            "created_at is information.",
        ),
        promise="ordered",
    ),
    _When(
        Cause(
            "The request was sent twice by the driver or by a retry of the store's own, after a "
            "reply that was late or lost.",
            "Turn off retries of writes (of the driver, redis-py: retry=None), or write with a key "
            "that the engine checks.",
        ),
        names=frozenset({"doubled"}),
    ),
    _When(
        Cause(
            "The driver or the store sent it again after a lost reply, and the key was not checked "
            "in the same step as the write.",
            "Store the key in the same transaction as the messages, under a unique constraint, and "
            "turn off retries of the driver for writes.",
        ),
        promise="exactly-once",
        faults=_UNANSWERED,
    ),
    _When(
        Cause(
            "A retry was taken for a new append: the key is ignored, or is checked in another "
            "step than the write.",
            "Store the key in the same transaction as the messages, under a unique constraint, and "
            "return the first ack when it is there already.",
        ),
        promise="exactly-once",
    ),
    _When(
        Cause(
            "The engine could not be reached, and the read was answered all the same: its error was "
            "swallowed, or a cache spoke instead.",
            "Let the error of a read out: an empty history is an answer only where the engine gave it.",
        ),
        promise="fresh",
        faults=_ENGINE_GONE | _UNANSWERED | {"disk"},
    ),
    _When(
        Cause(
            "The read was answered from something older than the engine's own state: a cache in "
            "the process, a replica that lags behind, or a write still in a queue.",
            "Read where the write was acknowledged, drop the cache on every append, or hand the "
            "ack's token to the replica.",
        ),
        promise="fresh",
    ),
    _When(
        Cause(
            "The history is read in pages that shift while others write (OFFSET, SKIP, positions "
            "in a list), so a page lacks what moved.",
            "Page by number (WHERE number > last), or read in one statement or transaction.",
        ),
        names=frozenset({"hole"}),
    ),
    _When(
        Cause(
            "The newest N were taken from the wrong end, or counted before the write that they "
            "should hold.",
            "ORDER BY number DESC LIMIT N and turn the page around; on Redis LRANGE -N -1.",
        ),
        names=frozenset({"window"}),
    ),
    _When(
        Cause(
            "A connection was used again after a time-out: the answer to an earlier request was "
            "read as the answer to this one.",
            "Close a connection after a time-out, an interrupt or a cancelled call; never put it "
            "back into the pool.",
        ),
        names=frozenset({"phantom", "leak"}),
        faults=_UNANSWERED,
    ),
    _When(
        Cause(
            "A read shows what was never written, or what its writer was told had failed: a read "
            "of uncommitted data, another's record, or a definite error that was not definite.",
            "Read committed data only, and call an outcome unknown unless it is sure that nothing "
            "was written.",
        ),
        names=frozenset({"phantom"}),
    ),
    _When(
        Cause(
            "Keys of different sessions fall together: joined without escaping, matched by prefix "
            "or pattern, cut off, or compared without regard to case.",
            "Use the session id as an exact, escaped value; never LIKE, KEYS or a joined path.",
        ),
        promise="isolated",
    ),
    _When(
        Cause(
            "The serializer changes what it is given: str() on structures, numbers, NUL or lone "
            "surrogates, Unicode normalisation, a column that truncates; or one unreadable record "
            "is skipped without a word.",
            "Store JSON in bytes and compare after reading; refuse by an error what cannot be kept.",
        ),
        promise="faithful",
    ),
    _When(
        Cause(
            "Reads refresh the time to live, or one of several keys has none.",
            "Refresh it by writes only, in the same transaction or script, on every key of the "
            "session.",
        ),
        names=frozenset({"expired-late"}),
    ),
    _When(
        Cause(
            "The time to live is not refreshed by the write, is set on one of several keys, or is "
            "counted on a clock other than the engine's.",
            "Set it in the same transaction or script as the messages, on every key of the session.",
        ),
        promise="expiring",
    ),
    _When(
        Cause(
            "The forget took only a part (one page, one of several keys or tables), or something "
            "wrote back what was from before it: a late retry whose key had been deleted too, a "
            "whole-session write, or a cache.",
            "Delete all of the session in one transaction or script; keep a tombstone and the used "
            "keys, and refuse what began before.",
        ),
        promise="forgotten",
    ),
    _When(
        Cause(
            "Errors of the engine are swallowed or misnamed: an empty answer instead of an error, "
            '"not done" for what may have been done, or a connection that is never reopened.',
            "Let every error out as done, not done or unknown, and replace broken connections.",
        ),
        promise="loud",
    ),
    _When(
        Cause(
            "The index fell behind the log, or missed writes while it was away.",
            "Derive it from the log, remember how far it came, and catch up after a crash.",
        ),
        promise="recallable",
    ),
)
