"""What a failover of a PostgreSQL would lose: its standbys, and the servers of one URL. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity

LAG_S_MAX: Final = 10.0
"""A standby that is further behind gives answers that people notice."""
_LOCAL_ONLY: Final = ("off", "local")
_CONFIRMS: Final = ("sync", "quorum")


@dataclass(frozen=True, slots=True)
class Replica:
    """A standby as the primary sees it. None: this role may not see it."""

    name: str
    state: str | None
    sync_state: str | None
    lag_s: float
    unwritten_bytes: int = 0
    """Of the primary's log, what this standby has not received."""
    unsynced_bytes: int = 0
    """What is not on its disk."""

    @property
    def confirms(self) -> bool:
        """Whether commits wait for it."""
        return self.state == "streaming" and self.sync_state in _CONFIRMS

    def line(self) -> str:
        """It in words."""
        if self.state is None:
            return f"standby {self.name}: connected; this role may not see more"
        return (
            f"standby {self.name}: {self.state}, {self.sync_state}, {self.unsynced_bytes} bytes of "
            f"the log are not on its disk, {self.lag_s:.1f} s behind"
        )


@dataclass(frozen=True, slots=True)
class Member:
    """A server that the URL names."""

    where: str
    in_recovery: bool | None = None
    timeline: int | None = None
    position: int | None = None
    receives: bool = False
    trouble: str = ""
    """Why it could not be asked."""

    @property
    def is_stray(self) -> bool:
        """Whether it is a standby of nobody."""
        return self.in_recovery is True and not self.receives

    @property
    def is_primary(self) -> bool:
        """Whether it says that it takes writes."""
        return self.in_recovery is False

    def line(self) -> str:
        """It in words."""
        if self.trouble:
            return f"member {self.where}: no answer"
        role = "primary" if self.is_primary else "standby"
        on = f" on timeline {self.timeline}" if self.timeline else ""
        return f"member {self.where}: {role}{on}{', which follows nobody' * self.is_stray}"


@dataclass(frozen=True, slots=True)
class Primary:
    """Who follows a primary, and what its commits wait for."""

    replicas: tuple[Replica, ...] | None
    commit: str
    names: str
    """`synchronous_standby_names`."""
    is_patroni: bool = False
    named: int = 1
    """How many servers the URL names."""

    @property
    def waits(self) -> bool:
        """Whether a commit of a plain writer waits for another machine."""
        return bool(self.names) and self.commit not in _LOCAL_ONLY


def lines(where: str, primary: Primary) -> Iterator[str]:
    """Who follows, and what a failover at this moment would take."""
    names = f"'{primary.names}'" if primary.names else "empty"
    by = ", run by Patroni" if primary.is_patroni else ""
    yield (
        f"primary {where}{by}: synchronous_commit {primary.commit}, "
        f"synchronous_standby_names {names}"
    )
    yield from (one.line() for one in primary.replicas or ())
    yield f"a failover now {_failover_now(primary)}"


def _failover_now(primary: Primary) -> str:
    replicas = primary.replicas
    if replicas is None or any(one.state is None for one in replicas):
        return "may lose acknowledged writes: this role may not see how far the standbys are"
    if not replicas:
        return "loses what was acknowledged since a standby was last connected: none follows now"
    behind = max(one.unwritten_bytes for one in replicas)
    sure = [one.name for one in replicas if one.confirms]
    if primary.waits and not sure:
        return (
            "loses what was acknowledged before and the promoted standby lacks; now every commit waits "
            f"for a standby that is not there ({behind} bytes of the log at this moment)"
        )
    if not primary.waits:
        return (
            "loses the last acknowledged appends that the promoted standby lacks: no commit waits "
            f"for a standby ({behind} bytes of the log at this moment)"
        )
    if primary.commit == "remote_write":
        return (
            f"loses nothing if {' or '.join(sure)} is promoted and its machine keeps running; what "
            "it has received and not synced is lost with it"
        )
    return f"loses nothing that was acknowledged, if {' or '.join(sure)} is promoted" + (
        ", which is what Patroni does" if primary.is_patroni else ""
    )


def judge(primary: Primary) -> Opinion:
    """What a failover of this primary takes away, and what reads of its standbys lack."""
    replicas = primary.replicas
    if replicas is None:
        return Opinion(unknown={Hazard.FAILOVER, Hazard.STALENESS})
    if not replicas:
        found = Opinion(absent={Hazard.FAILOVER, Hazard.STALENESS})
        if primary.waits:
            found.findings.append(_nobody(primary))
        return found
    found = Opinion()
    found.findings += _of_commits(primary, replicas)
    found.findings += [_lagging(one) for one in replicas if one.lag_s > LAG_S_MAX]
    if primary.named == 1:
        found.findings.append(_ONE_NAMED)
    if any(one.state is None for one in replicas):
        found.unknown.add(Hazard.STALENESS)
    return found


def _of_commits(primary: Primary, replicas: Sequence[Replica]) -> Iterator[Finding]:
    if not primary.waits:
        yield _asynchronous(primary)
        return
    if any(one.state is None for one in replicas):
        return
    sure = [one for one in replicas if one.confirms]
    if not sure:
        yield _nobody(primary)
        return
    if primary.commit == "remote_write":
        yield _REMOTE_WRITE
    others = [one for one in replicas if one.sync_state == "async"]
    if primary.is_patroni:
        yield _GOES_ON_ALONE
        return
    if others:
        yield _wrong_heir(sure, others)
    if not any(one.sync_state == "potential" for one in replicas) and len(sure) == 1:
        yield _one_confirms(sure[0])


def _nobody(primary: Primary) -> Finding:
    there = ", ".join(one.name for one in primary.replicas or ())
    return Finding(
        Severity.WARNING,
        (),
        "nothing, but every commit waits for ever",
        f"commits wait for a standby, and none is connected{f' of that name: {there}' * bool(there)}",
        f"synchronous_standby_names '{primary.names}'",
        "Start the standby; or, knowingly, take it out of synchronous_standby_names",
    )


def _asynchronous(primary: Primary) -> Finding:
    names = ", ".join(one.name for one in primary.replicas or ())
    by_hand = ("ALTER SYSTEM SET synchronous_standby_names = '*';", "SELECT pg_reload_conf();")
    by_patroni = ("patronictl edit-config --set synchronous_mode=true",)
    return Finding(
        Severity.WARNING,
        (Hazard.FAILOVER,),
        "acknowledged writes that had not reached the standby, at failover",
        "replication is asynchronous: a commit is acknowledged before a standby has it",
        f"standby {names}; synchronous_standby_names '{primary.names}', synchronous_commit "
        f"{primary.commit}",
        ("Set synchronous_mode: true in Patroni" if primary.is_patroni
         else "Name a standby in synchronous_standby_names")
        + "; holdfast.connect(…, require=Durability.REPLICA) then insists on it",
        by_patroni if primary.is_patroni else by_hand,
    )  # fmt: skip


_REMOTE_WRITE: Final = Finding(
    Severity.NOTE,
    (),
    "the last acknowledged writes, where the standby's machine stops together with the primary's",
    "a commit waits until the standby has received it, and not until it is on the standby's disk",
    "synchronous_commit remote_write",
    "Set synchronous_commit on; holdfast's own store raises it for writes at REPLICA",
    ("ALTER SYSTEM SET synchronous_commit = on;", "SELECT pg_reload_conf();"),
)
_GOES_ON_ALONE: Final = Finding(
    Severity.NOTE,
    (),
    "what is acknowledged while no standby is left, should the primary then be lost as well",
    "Patroni empties synchronous_standby_names when no standby is left, unless its mode is strict",
    "run by Patroni with synchronous_mode; whether it is strict is not to be seen here",
    "Set synchronous_mode_strict: true, or let writes ask for Durability.REPLICA: they are then "
    "refused while no standby is there",
    ("patronictl edit-config --set synchronous_mode_strict=true",),
)
_ONE_NAMED: Final = Finding(
    Severity.NOTE,
    (),
    "nothing; after a failover a store with this URL does not find the new primary",
    "the URL names one server, and there are standbys",
    "1 server in the URL",
    "Name every member: postgresql://…@host1,host2,host3/db?target_session_attrs=read-write",
)


def _wrong_heir(sure: Sequence[Replica], others: Sequence[Replica]) -> Finding:
    return Finding(
        Severity.NOTE,
        (),
        "acknowledged writes, should the wrong standby be promoted",
        "commits wait for one standby and not for the other",
        f"synchronous: {', '.join(one.name for one in sure)}; asynchronous: "
        f"{', '.join(one.name for one in others)}",
        "Promote the one that has received most (pg_last_wal_receive_lsn()), never by name",
    )


def _one_confirms(standby: Replica) -> Finding:
    return Finding(
        Severity.NOTE,
        (),
        "nothing; every commit waits as soon as this standby is lost",
        "only one standby may confirm",
        f"{standby.name} is the only synchronous one",
        "Name two of which any confirms",
        ("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (standby1, standby2)';",
         "SELECT pg_reload_conf();"),
    )  # fmt: skip


def _lagging(replica: Replica) -> Finding:
    return Finding(
        Severity.WARNING,
        (Hazard.STALENESS,),
        "the newest messages, for clients that read from the standby",
        "it is behind the primary",
        f"standby {replica.name} is {replica.lag_s:.0f} s behind",
        "Read your own writes from the primary, or with the token of the ack (replicas=… in "
        "holdfast.connect does so)",
    )


def of_members(members: Sequence[Member]) -> Opinion:
    """Two primaries, or a server of the URL that is away."""
    found = Opinion()
    primaries = [one for one in members if one.is_primary]
    if len(primaries) > 1:
        latest = max(one.timeline or 0 for one in primaries)
        says = ", ".join(f"{one.where} on timeline {one.timeline}" for one in primaries)
        old = [one.where for one in primaries if one.timeline != latest]
        found.findings.append(
            Finding(
                Severity.CRITICAL,
                (Hazard.FAILOVER, Hazard.STALENESS),
                "what is acknowledged by the server that was deposed",
                "two servers of the URL take writes, and only one of them is followed",
                f"primaries: {says}",
                f"Stop {', '.join(old) or 'one of them'} now, and let it follow again by pg_rewind "
                "or a new copy",
            )
        )
    if members and not primaries:
        found.findings.append(_NO_PRIMARY)
    found.findings += [_stray(one) for one in members if one.is_stray]
    away = [one for one in members if one.trouble]
    if away:
        found.findings.append(
            Finding(
                Severity.WARNING,
                (),
                "nothing yet; one machine less can take over",
                "a server that the URL names does not answer",
                "; ".join(f"{one.where}: {one.trouble}" for one in away),
                "Start it, or take it out of the URL",
            )
        )
    return found


_NO_PRIMARY: Final = Finding(
    Severity.WARNING,
    (),
    "nothing; no write is taken until a server is promoted",
    "none of the servers that answer is a primary: a failover is under way, or nobody can be chosen",
    "only standbys answer",
    "Look again in a few seconds. If it stays, look whether the coordinator has its majority, or promote "
    "the standby that has received most",
)


def _stray(member: Member) -> Finding:
    return Finding(
        Severity.WARNING,
        (Hazard.FAILOVER, Hazard.STALENESS),
        "what was acknowledged since it stopped to follow, should it be promoted or read from",
        "a standby that the URL names receives no log",
        f"{member.where} has no WAL receiver",
        "Look into its log: primary_conninfo, a slot that is gone, or a timeline that it cannot join",
    )
