"""Opening a database: the schema made or brought up to date, and its settings read.

Done once per store, with a connection of its own, before the first command.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

import psycopg

from holdfast.backends.postgres import pgvector
from holdfast.backends.postgres.address import Address
from holdfast.backends.postgres.driver import Link, open_link, open_to
from holdfast.backends.postgres.durability import ServerSettings
from holdfast.backends.postgres.errors import BACKEND, INDEX_TABLES, mapped
from holdfast.backends.postgres.hosts import Hosts
from holdfast.backends.postgres.statements import SQL, Row, in_schema
from holdfast.backends.queries import load_migrations
from holdfast.errors import EngineUnreachable, FormatTooNew, HoldfastError, Refused

MIGRATIONS: Final = load_migrations(Path(__file__).with_name("schema"))
SCHEMA_VERSION: Final = len(MIGRATIONS)
RECALL_VERSION: Final = 2
"""The migration that made the tables of the index."""
_TABLE: Final = re.compile(r"^CREATE TABLE .*?;$", re.MULTILINE | re.DOTALL)
MIGRATION_TIMEOUT_S: Final = 60.0
"""How long one process waits for another that is bringing the schema up to date, and for those at work."""
MIGRATION_REST_S: Final = 0.5


def open_database(hosts: Hosts) -> tuple[ServerSettings, str | None]:
    """Bring the schema up to date where needed; the server's settings and its identity.

    Safe when many processes do so at once. A role that may not create anything is enough
    where the schema is there already.
    """
    schema = hosts.address.schema
    with open_to(hosts, "connect") as link:
        try:
            _make_ready(link, schema)
            row = link.execute(in_schema(SQL["setup"], schema), (f'"{schema}"',))
            types = pgvector.offer(link, schema)
            settings = ServerSettings(types, *(str(value or "") for value in row.fetchone() or ()))
            return settings, identity(link)
        except psycopg.Error as error:
            raise mapped(error, "connect", writes=False) from error


def remake_index(hosts: Hosts) -> None:
    """Empty tables for the index, if one is missing; every index is then built from its log."""
    address = hosts.address
    with open_to(hosts, "recall") as link:
        link.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        try:
            with link.transaction():
                _lock(link)
                names = [f'"{address.schema}".{name}' for name in INDEX_TABLES]
                there = [link.execute("SELECT to_regclass(%s)", (one,)).fetchone() for one in names]
                if (None,) in there:  # otherwise another process has done it
                    link.execute(f"DROP TABLE IF EXISTS {', '.join(names)}".encode())
                    for table in _TABLE.findall(MIGRATIONS[RECALL_VERSION - 1]):
                        link.execute(in_schema(table, address.schema))
            pgvector.offer(link, address.schema)
        except psycopg.Error as error:
            raise mapped(error, "recall", writes=False) from error


def identity(link: Link) -> str | None:
    """What tells one database cluster from another; None where the role may not ask."""
    try:
        [(system,)] = link.execute(SQL["system"].encode()).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        return None
    return str(system)


def check_replica(address: Address, primary: str | None, *, may_change: bool = False) -> None:
    """Raise `Refused` for a server that is no replica of ours, `EngineUnreachable` if it is down.

    Where the primary may change, one of the same cluster that was promoted will be a replica again.
    """
    with open_link(address, "connect") as link:
        try:
            in_recovery = link.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
            theirs = identity(link)
        except psycopg.Error as error:
            raise mapped(error, "connect", writes=False) from error
    if may_change and primary is not None and theirs == primary:
        return
    if not in_recovery or (primary and theirs and theirs != primary):
        raise _error(
            Refused,
            "a URL in `replicas` leads to a server that is no replica of the primary: "
            f"{'another database cluster' if in_recovery else 'it is no standby'}. Nothing was "
            "written. Leave it out, or correct it",
        )


def _make_ready(link: Link, schema: str) -> None:
    in_recovery, known, _ = _whose(link, schema)
    if known:
        version = _version(link, schema)
        if version == SCHEMA_VERSION:
            return
    if in_recovery:
        raise _error(
            Refused,
            "this server is a standby without the tables of this release: it cannot be written "
            "to. Nothing was written. Connect to the primary, and name this one in `replicas`",
        )
    link.reply_timeout_s, usual_s = MIGRATION_TIMEOUT_S * 2, link.reply_timeout_s
    # Each statement must see what the one that held the lock before has done.
    link.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    try:
        with link.transaction():
            _migrate(link, schema)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_allowed(schema) from error
    link.reply_timeout_s = usual_s


def _migrate(link: Link, schema: str) -> None:
    """In one transaction, under a lock: the second process finds it done."""
    _lock(link)
    _, known, there = _whose(link, schema)
    if not there:
        link.execute(f'CREATE SCHEMA "{schema}"'.encode())
    if known:
        if link.execute(in_schema(SQL["may_change"], schema)).fetchone() != (True,):
            raise _not_allowed(schema)
        _keep_others_out(link, schema)
    for version in range(_version(link, schema) + 1 if known else 1, SCHEMA_VERSION + 1):
        link.execute(in_schema(MIGRATIONS[version - 1], schema))
        add = f'INSERT INTO "{schema}".holdfast_schema (version) VALUES ({version})'  # noqa: S608
        link.execute(add.encode())


def _lock(link: Link) -> None:
    link.execute(SQL["migration_lock"].encode(), (str(round(MIGRATION_TIMEOUT_S * 1000)),))


def _keep_others_out(link: Link, schema: str) -> None:
    """Hold every table of the log, in the order in which all writes and reads take them.

    One lock after another, as the migrations come to them, would be a circle with a client that
    is at work. Each try is short: who waits for such a lock holds up all who come after.
    """
    deadline_s = time.monotonic() + MIGRATION_TIMEOUT_S
    while True:
        try:
            with link.transaction():  # inside another one: a savepoint, which gives the locks back
                link.execute(in_schema(SQL["tables_lock"], schema))
        except psycopg.errors.LockNotAvailable as error:
            if time.monotonic() > deadline_s:
                raise _error(
                    EngineUnreachable,
                    f"the tables of schema {schema} could not be brought up to date: for "
                    f"{MIGRATION_TIMEOUT_S:.0f} s others had transactions open on them (a backup, "
                    "a session that is idle in transaction; pg_stat_activity names them). Nothing "
                    "was changed. End them, or try again later",
                ) from error
            time.sleep(MIGRATION_REST_S)
        else:
            return


def _whose(link: Link, schema: str) -> Row:
    [row] = link.execute(SQL["whose"].encode(), (schema, schema)).fetchall()
    found: Row = row
    return found


def _version(link: Link, schema: str) -> int:
    """The version of a schema of ours; raises for one that a later release made."""
    [(version,)] = link.execute(in_schema(SQL["version"], schema)).fetchall()
    if version is not None and version > SCHEMA_VERSION:
        raise _error(
            FormatTooNew,
            f"schema {schema} has version {version}, from a later release; this one knows up to "
            f"{SCHEMA_VERSION}. Nothing was written. Upgrade holdfast",
        )
    return version or 0


def _not_allowed(schema: str) -> HoldfastError:
    return _error(
        Refused,
        f"schema {schema} does not have the tables of this release yet, and this role may not "
        "create them. Nothing was written. Connect once with a role that may (GRANT CREATE ON "
        "DATABASE, or the owner of the schema); docs/howto/postgres.md lists what this one needs",
    )


def _error(kind: type[HoldfastError], words: str) -> HoldfastError:
    return kind(words, operation="connect", backend=BACKEND)
