"""What a PostgreSQL would lose, from what it says of itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.doctor import conversation_tables, postgres_members, storage
from holdfast.doctor.conversation_tables import Table
from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity
from holdfast.doctor.postgres_members import Member, Primary, Replica
from holdfast.doctor.storage import Storage

DEFAULTS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "synchronous_standby_names": "",
    "default_transaction_isolation": "read committed",
    "data_sync_retry": "off",
    "zero_damaged_pages": "off",
}
"""What a server has that was told nothing."""
_PATRONI: Final = ("cluster_name", "track_commit_timestamp", "max_locks_per_transaction")
"""Patroni starts the server itself, and gives it these as arguments; hardly anybody else does."""
SETTINGS: Final = (
    *DEFAULTS, *_PATRONI, "data_checksums", "data_directory", "server_version_num",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PostgresSeen:
    """What a server said to this role in this database."""

    settings: Mapping[str, str]
    sources: Mapping[str, str]
    """Who set a setting: `default`, `configuration file`, `user`, `database`, `database user`."""
    role: str = ""
    database: str = ""
    in_recovery: bool = False
    standby_lag_s: float = 0.0
    replicas: tuple[Replica, ...] | None = ()
    members: tuple[Member, ...] = ()
    """The servers of the URL, where it names several."""
    others_off: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] | None = ()
    place: Storage | None = None

    def as_primary(self) -> Primary:
        """What decides about a failover."""
        return Primary(
            self.replicas,
            commit=self.settings.get("synchronous_commit", "unknown"),
            names=self.settings.get("synchronous_standby_names", ""),
            is_patroni=all(self.sources.get(name) == "command line" for name in _PATRONI),
            named=max(1, len(self.members)),
        )


def of_settings(settings: Mapping[str, str]) -> Opinion:
    """The opinion on settings alone; what is missing is as PostgreSQL has it by default."""
    opinion = durability(PostgresSeen({**DEFAULTS, **settings}, {}))
    opinion.absent |= {Hazard.EVICTION, Hazard.EXPIRY}
    return opinion


def judge(seen: PostgresSeen) -> Opinion:
    """Every finding about one server."""
    found = Opinion(absent={Hazard.EVICTION, Hazard.EXPIRY})
    found.add(durability(seen))
    found.add(_standby(seen) if seen.in_recovery else postgres_members.judge(seen.as_primary()))
    found.add(postgres_members.of_members(seen.members))
    found.findings += _others(seen)
    found.findings += _version(seen.settings)
    found.findings += _notes(seen.settings)
    if seen.tables is None:
        found.unknown |= {Hazard.ORDER, Hazard.CONCURRENCY}
    elif any(table.session for table in seen.tables):
        found.findings += conversation_tables.judge(seen.tables)
    else:
        found.absent |= {Hazard.ORDER, Hazard.CONCURRENCY}
    found.add(storage.judge(seen.place))
    return found


def durability(seen: PostgresSeen) -> Opinion:
    """What the end of the process, and of the power, takes away."""
    found = Opinion()
    commit = seen.settings.get("synchronous_commit")
    if commit is None:
        found.unknown |= {Hazard.SIGKILL, Hazard.POWER}
    elif commit == "off":
        found.findings.append(_commit_off(seen))
    if "fsync" not in seen.settings:
        found.unknown.add(Hazard.POWER)
    for name, (loses, why) in _SWITCHES.items():
        if seen.settings.get(name, "on") == "off":
            found.findings.append(
                Finding(
                    Severity.CRITICAL, (Hazard.POWER,), loses, why, f"{name} off",
                    f"Set {name} on, for the whole server",
                    (f"ALTER SYSTEM SET {name} = on;", "SELECT pg_reload_conf();"),
                )
            )  # fmt: skip
    if seen.settings.get("data_sync_retry") == "on":
        found.findings.append(_SYNC_RETRY)
    return found


_SWITCHES: Final = {
    "fsync": (
        "at power loss all that the kernel has not written back, and often the whole database",
        "the server does not wait for the disk; what is on it after a crash may be no database",
    ),
    "full_page_writes": (
        "pages that were being written at power loss: rows are damaged without a word",
        "a page that was written in part cannot be restored from the log",
    ),
}
_SYNC_RETRY: Final = Finding(
    Severity.CRITICAL,
    (Hazard.POWER,),
    "what a failed write to the disk held",
    "after a failed sync the kernel may have dropped the data; to try again finds nothing wrong",
    "data_sync_retry on",
    "Set data_sync_retry off, and restart the server",
    ("ALTER SYSTEM SET data_sync_retry = off;",),
)


def _commit_off(seen: PostgresSeen) -> Finding:
    return Finding(
        Severity.CRITICAL,
        (Hazard.SIGKILL, Hazard.POWER),
        "the last fraction of a second (three times wal_writer_delay) at SIGKILL and at power loss",
        "a commit is acknowledged before its log is written. Holdfast's own store raises this "
        "for its writes; every other writer is exposed",
        f"synchronous_commit off, set by: {seen.sources.get('synchronous_commit', 'unknown')}",
        "Set synchronous_commit on where it was set",
        _reset(seen),
    )


def _reset(seen: PostgresSeen) -> tuple[str, ...]:
    """The statement that undoes a setting where it was made."""
    role, database = f'"{seen.role}"', f'"{seen.database}"'
    by_source = {
        "user": f"ALTER ROLE {role} RESET synchronous_commit;",
        "database": f"ALTER DATABASE {database} RESET synchronous_commit;",
        "database user": f"ALTER ROLE {role} IN DATABASE {database} RESET synchronous_commit;",
        "client": "-- remove synchronous_commit from the options of the URL",
    }
    whole = ("ALTER SYSTEM SET synchronous_commit = on;", "SELECT pg_reload_conf();")
    one = by_source.get(seen.sources.get("synchronous_commit", ""))
    return (one,) if one else whole


def _standby(seen: PostgresSeen) -> Opinion:
    if seen.members:  # the primary's URL it is; that it is away is a finding about the members
        return Opinion(unknown={Hazard.FAILOVER, Hazard.STALENESS})
    return Opinion(
        [
            Finding(
                Severity.WARNING,
                (Hazard.STALENESS, Hazard.FAILOVER),
                "the newest messages, for clients that read here",
                "this server is a standby: it replays what the primary has committed, later",
                f"in recovery, {seen.standby_lag_s:.0f} s behind",
                "Give the primary's URL; a standby belongs into replicas=… of holdfast.connect",
            )
        ]
    )


def _others(seen: PostgresSeen) -> list[Finding]:
    if not seen.others_off or seen.settings.get("synchronous_commit") == "off":
        return []
    database, role = seen.others_off[0]
    return [
        Finding(
            Severity.NOTE,
            (),
            "what others write, at SIGKILL and at power loss",
            "this role waits for its commits; these do not",
            f"synchronous_commit off for {role} in {database}, {len(seen.others_off)} in all",
            "See whether one of them writes conversations",
        )
    ]


def _version(settings: Mapping[str, str]) -> list[Finding]:
    version = int(settings.get("server_version_num", 0))
    if 140_000 <= version < 140_004:  # noqa: PLR2004 - 14.0 to 14.3
        why = "CREATE INDEX CONCURRENTLY may leave rows out of the index; mended in 14.4"
    elif 0 < version < 110_002:  # noqa: PLR2004 - 11.2
        why = "a failed write to the disk may be taken for done; mended in 11.2, 10.7 and 9.6.12"
    else:
        return []
    return [
        Finding(
            Severity.WARNING, (Hazard.DAMAGE,), "rows that were acknowledged", why,
            f"server_version_num {version}", "Upgrade to the last minor release",
        )
    ]  # fmt: skip


def _notes(settings: Mapping[str, str]) -> list[Finding]:
    found = []
    if settings.get("default_transaction_isolation") in ("read committed", "read uncommitted"):
        found.append(
            Finding(
                Severity.NOTE,
                (),
                "nothing; a transaction that reads a session twice may see two versions of it",
                "each statement has its own snapshot",
                f"default_transaction_isolation {settings['default_transaction_isolation']}",
                "Read what belongs together in one statement, or in BEGIN ISOLATION LEVEL "
                "REPEATABLE READ",
            )
        )
    if settings.get("data_checksums") == "off":
        found.append(
            Finding(
                Severity.NOTE, (), "nothing; a damaged page is not noticed",
                "pages carry no checksum", "data_checksums off",
                "Stop the server and switch them on", ("pg_checksums --enable",),
            )
        )  # fmt: skip
    if settings.get("zero_damaged_pages") == "on":
        found.append(
            Finding(
                Severity.CRITICAL, (Hazard.DAMAGE,), "whole pages of rows, without an error",
                "a damaged page is taken for an empty one", "zero_damaged_pages on",
                "Set zero_damaged_pages off", ("ALTER SYSTEM RESET zero_damaged_pages;",),
            )
        )  # fmt: skip
    return found
