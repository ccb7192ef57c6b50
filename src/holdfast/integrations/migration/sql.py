"""Histories in a table of SQLite or PostgreSQL: one row a message, or one array a session.

A SQLite file is opened read only, without a byte changed beside it either; PostgreSQL in one READ
ONLY transaction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from holdfast.connection import scheme_of
from holdfast.errors import EngineUnreachable, UsageError
from holdfast.integrations.migration.found import Found, Row
from holdfast.secrets import SecretUrl

LOCK_WAIT_S: Final = 30
"""How long a table that another client has locked is waited for."""
_WAL_HEADER: Final = slice(18, 20)
"""Where a file of SQLite says how it is written: 2 for a log beside it."""


@dataclass(frozen=True, slots=True)
class Table:
    """How a framework lays a history out."""

    name: str
    session: str
    message: str
    array: bool = False
    """All messages of a session in one row."""


class Engine(Protocol):
    """An engine that answers questions."""

    error: type[Exception]

    def ask(self, query: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a SELECT."""

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table; empty where there is none."""

    def close(self) -> None:
        """Let go of it."""


class Tables:
    """A table in which a framework keeps histories."""

    def __init__(self, url: str, table: Table) -> None:
        self._table, self._place = table, SecretUrl(url)
        scheme = scheme_of(url).partition("+")[0]
        if scheme == "sqlite" and not table.array:
            self._engine: Engine = _Sqlite(url)
        elif scheme in ("postgresql", "postgres"):
            self._engine = _Postgres(url)
        else:
            raise UsageError(
                f"this source is postgresql://…{'' if table.array else ' or sqlite:///file'}, "
                f"not {scheme or 'a URL without a scheme'}"
            )
        with self._asking():
            self._columns = self._engine.columns(table.name)
        missing = {table.session, table.message} - set(self._columns)
        if missing:
            self.close()
            raise UsageError(
                f"{self._place} has no table {table.name!r} with the columns {table.session} and "
                f"{table.message}: name it with --table"
            )

    def names(self) -> Iterator[str]:
        """Those with a row."""
        session, name = _quoted(self._table.session), _quoted(self._table.name)
        query = f"SELECT DISTINCT CAST({session} AS TEXT) FROM {name} ORDER BY 1"  # noqa: S608 - quoted
        with self._asking():
            rows = self._engine.ask(query)
        yield from (str(row[0]) for row in rows if row[0] is not None)

    def read(self, name: str) -> Found:
        """In the order in which they were numbered."""
        with self._asking():
            rows = self._engine.ask(self._query(), name)
        return Found(
            [Row(int(place), text, time_of(at)) for place, text, at in rows if text is not None]
        )

    def close(self) -> None:
        """Let go of the engine."""
        self._engine.close()

    def _query(self) -> str:
        table = self._table
        name, session, message = map(_quoted, (table.name, table.session, table.message))
        if table.array:
            return (
                f"SELECT n, CAST(item AS TEXT), NULL FROM {name}, "  # noqa: S608 - quoted
                f"unnest({message}) WITH ORDINALITY AS one (item, n) WHERE {session} = %s ORDER BY n"
            )
        at = "created_at" if "created_at" in self._columns else "NULL"
        mark = "?"
        if isinstance(self._engine, _Postgres):
            at = f"CAST({at} AS timestamptz)"
            mark = "%s"
        return (
            f"SELECT id, CAST({message} AS TEXT), {at} FROM {name} "  # noqa: S608 - quoted
            f"WHERE CAST({session} AS TEXT) = {mark} ORDER BY id"
        )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except self._engine.error as error:
            raise EngineUnreachable(
                f"the source {self._place} cannot be read ({type(error).__name__}: {error}). "
                "It was not changed; run this again to go on",
                operation="migrate",
            ) from error


class _Sqlite:
    """One read transaction on a file."""

    def __init__(self, url: str) -> None:
        import apsw  # noqa: PLC0415 - only who brings something over from a file needs it

        self.error: type[Exception] = apsw.Error
        path = Path(path_in(url)).absolute()
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connect = functools.partial(apsw.Connection, flags=flags)
        try:
            self._connection = connect(_uri(connect, path))
            self._connection.execute("BEGIN")
        except apsw.Error as error:
            raise UsageError(f"{path} cannot be read ({error}). Nothing was created") from error

    def ask(self, query: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a SELECT."""
        return self._connection.execute(query, values).fetchall()

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table."""
        query = "SELECT name FROM pragma_table_info(?)"
        return [str(name) for (name,) in self.ask(query, table)]

    def close(self) -> None:
        """End the transaction."""
        self._connection.close()


class _Postgres:
    """One read-only transaction, of one instant."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - only who brings something over from PostgreSQL needs it
            from psycopg.types.json import set_json_loads  # noqa: PLC0415 - as above
        except ImportError as error:
            raise UsageError(f"{error}. To have it: pip install 'holdfast[postgres]'") from error
        self.error: type[Exception] = psycopg.Error
        scheme, rest = url.split("://", 1)
        address = f"{scheme.partition('+')[0]}://{rest}"
        try:
            self._connection = psycopg.connect(address, connect_timeout=10)
        except psycopg.Error as error:
            raise EngineUnreachable(
                f"the source {SecretUrl(url)} does not answer ({type(error).__name__})",
                operation="migrate",
            ) from error
        # As text: what is nested too deep for a parser is one row's trouble, not that of a SELECT.
        set_json_loads(lambda data: data, self._connection)
        self._connection.read_only = True
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'".encode())

    def ask(self, query: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a SELECT."""
        return self._connection.execute(query.encode(), values or None).fetchall()

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table, by its name as `search_path` finds it, or schema.table."""
        query = (
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped"
        )
        return [str(name) for (name,) in self.ask(query, _quoted(table))]

    def close(self) -> None:
        """End the transaction."""
        self._connection.close()


class Questions:
    """Plain questions to a source of either engine, with ? for values; its errors are ours."""

    def __init__(self, url: str) -> None:
        self.place = SecretUrl(url)
        scheme = scheme_of(url).partition("+")[0]
        if scheme not in ("sqlite", "postgresql", "postgres"):
            raise UsageError(f"this source is postgresql://… or sqlite:///file, not {self.place}")
        self._engine: Engine = _Sqlite(url) if scheme == "sqlite" else _Postgres(url)
        self._mark = "?" if scheme == "sqlite" else "%s"

    def ask(self, query: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a SELECT."""
        try:
            return self._engine.ask(query.replace("?", self._mark), *values)
        except self._engine.error as error:
            raise EngineUnreachable(
                f"the source {self.place} cannot be read ({type(error).__name__}: {error}). "
                "It was not changed; run this again to go on",
                operation="migrate",
            ) from error

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table; empty where there is none."""
        return self._engine.columns(table)

    def texts(self, table: str, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """All rows of a table, these columns as text."""
        if set(columns) - set(self.columns(table)):
            wanted = " and ".join(columns)
            raise UsageError(
                f"{self.place} has no table {table!r} with the columns {wanted}: name it with --table"
            )
        shown = ", ".join(f"CAST({_quoted(one)} AS TEXT)" for one in columns)
        return self.ask(f"SELECT {shown} FROM {_quoted(table)}")  # noqa: S608 - quoted

    def close(self) -> None:
        """Let go of it."""
        self._engine.close()


def path_in(url: str) -> str:
    """The file that a URL of SQLAlchemy names: all up to a question mark, as it is written."""
    return urlsplit(url, allow_fragments=False).path[1:]


def file_uri(path: Path) -> str:
    """A file by its name, whatever stands in it."""
    return "file:" + str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def read_only_uri(path: Path) -> str:
    """By which a file is opened such that nothing beside it is changed either."""
    import apsw  # noqa: PLC0415 - only who brings something over from a file needs it

    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        return _uri(functools.partial(apsw.Connection, flags=flags), path)
    except apsw.Error as error:
        raise UsageError(f"{path} cannot be read ({error}). Nothing was created") from error


def _uri(connect: Callable[..., Any], path: Path) -> str:
    """A file that nothing is written beside: with no log there, a file that uses one is as it is."""
    uri = f"{file_uri(path)}?mode=ro"
    # By SQLite: to open and close the file beside it would drop the locks of this process.
    first = connect(f"{uri}&immutable=1")
    _, header = first.read("main", 0, 0, 100)
    first.close()
    if header[_WAL_HEADER] == b"\2\2":
        has_log = path.with_name(f"{path.name}-wal").exists()
        uri += "&readonly_shm=1" if has_log else "&immutable=1"
    return uri


def _quoted(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def time_of(at: object) -> datetime | None:
    """When it was stored, as far as that can be said; SQLite says it in UTC, in words."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            return None
    if not isinstance(at, datetime):
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
