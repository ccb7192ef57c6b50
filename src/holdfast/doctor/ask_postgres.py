"""Asking a PostgreSQL: each question in a READ ONLY transaction of its own, under a time limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast.backends.postgres.address import Address, read_address
from holdfast.backends.postgres.driver import Link, open_link
from holdfast.backends.postgres.durability import ServerSettings
from holdfast.backends.postgres.errors import mapped, said
from holdfast.backends.postgres.migration import SCHEMA_VERSION
from holdfast.backends.postgres.statements import in_schema
from holdfast.backends.queries import load_queries
from holdfast.doctor import books, conversation_tables, postgres_members, postgres_rules
from holdfast.doctor.books import Books
from holdfast.doctor.budget import RECORDS_MAX, SESSIONS_MAX, Budget
from holdfast.doctor.finding import Audit, Measure, ordered
from holdfast.doctor.postgres_members import Member, Replica
from holdfast.doctor.postgres_rules import PostgresSeen
from holdfast.doctor.storage import LOCAL, Storage, storage_of
from holdfast.errors import HoldfastError
from holdfast.linux import listeners, read_process
from holdfast.model import Durability

_ATTRS: Final = "target_session_attrs"
SQL: Final = load_queries(Path(__file__).with_name("postgres.sql"))


def look(url: str, namespace: bytes, budget: Budget) -> Audit:
    """The audit of one server, as this role sees it in this database."""
    address = read_address(url)
    wait_s = budget.question_s
    timeouts = {"connect_timeout": str(max(2, round(wait_s)))}  # libpq waits two seconds at least
    address = replace(
        address, conninfo={**address.conninfo, **timeouts}, reply_timeout_s=wait_s + 1
    )
    members = tuple(_members(address, budget)) if len(address.members) > 1 else ()
    with open_link(address, "doctor", _chosen(address, members)) as link:
        try:
            return _Look(link, address, budget, members).audit(namespace)
        except psycopg.Error as error:
            raise mapped(error, "doctor", writes=False) from error


def _members(address: Address, budget: Budget) -> Iterator[Member]:
    """Each server of the URL, asked by itself."""
    for conninfo in address.members:
        where = f"{conninfo['host']}:{conninfo.get('port') or 5432}"
        if budget.is_spent:
            yield Member(where, trouble="the time for this audit was over")
            continue
        try:
            with open_link(address, "doctor", {**conninfo, _ATTRS: "any"}) as link:
                link.execute("BEGIN READ ONLY")
                rows = link.execute(SQL["member"].encode()).fetchall()
            yield Member(where, *rows[0])
        except (HoldfastError, psycopg.Error) as error:
            yield Member(where, trouble=address.scrub(" ".join(str(error).split())))


def _chosen(address: Address, members: Sequence[Member]) -> dict[str, Any] | None:
    """The primary on the latest timeline; a standby where no primary answers."""
    here = {at: one for at, one in enumerate(members) if not one.trouble}
    if not here:
        return None
    at = max(here, key=lambda at: (not here[at].in_recovery, here[at].timeline or 0))
    return {**address.members[at], _ATTRS: "any"}


class _Look:
    """One look through one connection."""

    def __init__(
        self, link: Link, address: Address, budget: Budget, members: tuple[Member, ...] = ()
    ) -> None:
        self._link, self._address, self._budget = link, address, budget
        self._members = members
        self._unseen: list[str] = []

    def audit(self, namespace: bytes) -> Audit:
        """Ask everything; what is forbidden is noted."""
        seen = self._seen()
        own_books = self._books(namespace)
        opinion = postgres_rules.judge(seen)
        facts = _facts(seen)
        opinion.add(books.judge(own_books))
        if own_books is not None:
            facts |= own_books.facts()
        lags = {one.name: one.lag_s for one in seen.replicas or ()}
        if seen.in_recovery:
            lags[self._where()] = seen.standby_lag_s
        return Audit(
            engine="postgres",
            where=self._where(),
            findings=ordered(opinion.findings),
            sound=opinion.sound(),
            facts=facts,
            unseen=tuple(self._unseen),
            measures=(
                *(Measure("replica_lag_seconds", lag, name) for name, lag in lags.items()),
                *(own_books.measures(self._where()) if own_books is not None else ()),
            ),
            ack_durability=self._level(seen),
            topology=tuple(self._topology(seen)),
        )

    def _topology(self, seen: PostgresSeen) -> Iterator[str]:
        """The members in lines; none for a server that stands alone."""
        yield from (one.line() for one in seen.members)
        if not seen.in_recovery and (seen.replicas or seen.members):
            yield from postgres_members.lines(self._where(), seen.as_primary())

    def _where(self) -> str:
        info = self._link.info
        return f"{info.host}:{info.port}/{info.dbname}"

    def _seen(self) -> PostgresSeen:
        rows = self._ask("settings", "the settings", (list(postgres_rules.SETTINGS),)) or []
        settings = {name: str(value or "") for name, value, _ in rows}
        # A setting that is hidden from pg_settings is named; data_directory is for few to see.
        hidden = set(postgres_rules.SETTINGS) - set(settings) - {"data_directory"}
        self._unseen += [f"the setting {name}" for name in sorted(hidden)]
        [self_row] = self._ask("self", "the server's own facts") or [("", "", False, 0, 0, "")]
        role, database, in_recovery, pid, port, version = self_row
        settings["server_version"] = version
        return PostgresSeen(
            settings=settings,
            sources={name: source for name, _, source in rows},
            role=role,
            database=database,
            in_recovery=in_recovery,
            standby_lag_s=self._standby_lag_s() if in_recovery else 0.0,
            replicas=self._replicas(),
            members=self._members,
            others_off=tuple(self._ask("others_off", "settings of other roles") or ()),
            tables=self._tables(),
            place=self._place(settings, pid, port),
        )

    def _standby_lag_s(self) -> float:
        rows = self._ask("standby", "how far this standby is behind")
        return float(rows[0][0]) if rows else 0.0

    def _replicas(self) -> tuple[Replica, ...] | None:
        rows = self._ask("replicas", "the standbys")
        if rows is None:
            return None
        if any(state is None for _, state, *_ in rows):
            self._unseen.append("how far the standbys are behind: GRANT pg_monitor shows it")
        return tuple(Replica(*row) for row in rows)

    def _tables(self) -> tuple[conversation_tables.Table, ...] | None:
        rows = self._ask("tables", "the tables")
        return None if rows is None else tuple(map(conversation_tables.table_from, rows))

    def _place(self, settings: dict[str, str], pid: int, port: int | None) -> Storage | None:
        """The data directory, where the server is proven to be a process of this machine."""
        directory = settings.get("data_directory")
        host = self._link.info.hostaddr or self._link.info.host
        if not directory:
            self._unseen.append("the data directory: GRANT pg_read_all_settings shows it")
            return None
        server = read_process(pid)
        if server and host in LOCAL and port and server.parent in listeners(port):
            return storage_of(Path(directory), server.parent)
        self._unseen.append("the data directory: the server is not a process of this machine")
        return None

    def _books(self, namespace: bytes) -> Books | None:
        """A sample of our own store in this schema and namespace; None where there is none."""
        schema = self._address.schema
        rows = self._ask("own_schema", "whether holdfast keeps its store here", (schema,))
        if not rows or not rows[0][0]:
            return None
        versions = self._ask("version", "holdfast's schema")
        if versions is None:
            return None
        found = Books(versions[0][0] or 0, SCHEMA_VERSION)
        if found.schema != SCHEMA_VERSION:
            found.unread = True
            self._unseen.append(f"records of holdfast: they are in schema {found.schema}")
            return found
        leftovers = self._ask("leftovers", "expired sessions of holdfast")
        found.leftovers = leftovers[0][0] if leftovers else 0
        sample = (namespace, SESSIONS_MAX, RECORDS_MAX)
        newest = self._ask("newest", "records of holdfast", sample) or []
        for name, group in groupby(newest, key=lambda row: row[0]):
            _read(found, bytes(name), list(group))
        return found

    def _level(self, seen: PostgresSeen) -> Durability | None:
        rows = self._ask("unlogged", "holdfast's tables", (f'"{self._address.schema}"',))
        settings = seen.settings
        if seen.in_recovery or "fsync" not in settings or rows is None:
            return None
        return ServerSettings(
            fsync=settings["fsync"],
            synchronous_commit=settings.get("synchronous_commit", ""),
            synchronous_standby_names=settings.get("synchronous_standby_names", ""),
            full_page_writes=settings.get("full_page_writes", ""),
            read_only="",
            unlogged=rows[0][0],
            vector_types=None,
            sees_standbys=" ".join(one.name for one in seen.replicas or () if one.sync_state),
        ).reached(Durability.DISK)

    def _ask(self, name: str, what: str, values: Sequence[Any] = ()) -> list[Any] | None:
        """Rows, or None with a word about what could not be seen."""
        if self._budget.is_spent:
            self._unseen.append(f"{what}: the time for this audit was over")
            return None
        try:
            with self._read_only():
                query = in_schema(SQL[name], self._address.schema)
                return self._link.execute(query, values).fetchall()
        except psycopg.Error as error:
            if self._link.closed:
                raise
            self._unseen.append(f"{what}: {self._address.scrub(said(error))}")
            return None

    @contextlib.contextmanager
    def _read_only(self) -> Iterator[None]:
        """A transaction in which the server itself refuses every write."""
        limit = f"SET LOCAL statement_timeout = {round(self._budget.question_s * 1000)}"
        self._link.execute("BEGIN READ ONLY")
        try:
            self._link.execute(limit.encode())
            yield
        finally:
            if not self._link.closed:
                self._link.execute("ROLLBACK")


def _read(found: Books, name: bytes, rows: list[Any]) -> None:
    """The newest records of one session: without a gap, and up to its last number."""
    _, floor, last, upto, of_floor, *_ = rows[0]
    records = [(seq, record) for *_, seq, record in rows if seq is not None]
    wanted = list(range(last - min(last - floor, RECORDS_MAX) + 1, last + 1))
    if [seq for seq, _ in records] != wanted:
        found.torn.append(f"{name.decode('utf-8', 'backslashreplace')!r} lacks some of {wanted}")
    found.read(name, records)
    if upto is not None:
        found.count_lag(last, floor, upto, of_floor)


def _facts(seen: PostgresSeen) -> dict[str, str]:
    facts = {
        "version": seen.settings.get("server_version", "unknown"),
        "role": seen.role,
        **{name: seen.settings[name] or "''" for name in postgres_rules.DEFAULTS if name in seen.settings},
        "standbys": "not seen" if seen.replicas is None else str(len(seen.replicas)),
    }  # fmt: skip
    return facts | dict(conversation_tables.facts(seen.tables or ()))
