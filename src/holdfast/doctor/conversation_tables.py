"""Tables that look like conversations, and what in them decides the order. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.doctor.finding import Finding, Hazard, Severity

SESSION: Final = re.compile(r"^(session|thread|conversation|chat|dialog|room)(_?(id|key|name))?$")
CONTENT: Final = re.compile(r"^(content|message|text|body|payload|data|message_data|parts)$")
ROLE: Final = re.compile(r"^(role|author|sender|type|message_type|speaker)$")
NUMBERS: Final = ("smallint", "integer", "bigint", "numeric", "int")
_NUMBER_THEM: Final = (
    "UPDATE {table} t SET seq = n.seq FROM (SELECT ctid, row_number() OVER (PARTITION BY {session} "
    "ORDER BY {clock}, ctid) AS seq FROM {table}) n WHERE t.ctid = n.ctid;"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type in the engine's words, and whether the engine fills it by counting."""

    name: str
    type: str
    generated: bool

    @property
    def is_clock(self) -> bool:
        """Whether it holds an instant."""
        return self.type.startswith(("timestamp", "date", "time"))


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a stranger."""

    name: str
    unlogged: bool
    columns: tuple[Column, ...]
    unique: tuple[tuple[str, ...], ...]

    @property
    def session(self) -> str | None:
        """The column that names the conversation, if this looks like one of messages."""
        names = [column.name.lower() for column in self.columns]
        is_text = any(map(CONTENT.match, names)) or any(map(ROLE.match, names))
        found = [column.name for column in self.columns if SESSION.match(column.name.lower())]
        return found[0] if found and is_text else None

    def column(self, name: str) -> Column:
        """One of its columns."""
        return next(column for column in self.columns if column.name == name)


def table_from(row: Sequence[Any]) -> Table:
    """A row of the query `tables`."""
    name, unlogged, columns, unique = row
    return Table(
        str(name),
        bool(unlogged),
        tuple(Column(one["name"], one["type"], one["generated"]) for one in columns or ()),
        tuple(tuple(key or ()) for key in unique),
    )


def judge(tables: Iterable[Table], *, one_writer: bool = False) -> list[Finding]:
    """Findings about those that look like conversations.

    Where there is one writer at a time, as in SQLite, a serial number is the order of commits.
    """
    found: list[Finding] = []
    for table in tables:
        if table.session is not None:
            order = None if one_writer and _counted(table) else _order(table)
            found += [one for one in (_unlogged(table), order, _key(table)) if one]
    return found


def _counted(table: Table) -> list[str]:
    return [column.name for column in table.columns if column.generated]


def _unlogged(table: Table) -> Finding | None:
    if not table.unlogged:
        return None
    return Finding(
        Severity.CRITICAL,
        (Hazard.SIGKILL, Hazard.POWER, Hazard.FAILOVER),
        f"all of {table.name} after any crash",
        "an UNLOGGED table is emptied when the server recovers, and is not on replicas",
        f"{table.name} is UNLOGGED",
        "Make it logged",
        (f"ALTER TABLE {table.name} SET LOGGED;",),
    )


def _order(table: Table) -> Finding | None:
    clocks = [column.name for column in table.columns if column.is_clock]
    counted = _counted(table)
    if _numbered(table):
        return None
    if counted:
        return Finding(
            Severity.NOTE,
            (),
            "the place of a message for clients that read while two are being written",
            "a serial number is taken before the commit, so a reader can see 8 before 7 exists",
            f"{table.name} is ordered by {counted[0]}",
            f"Number within the session, under its lock, with UNIQUE ({table.session}, seq)",
        )
    if not clocks:
        return None
    return Finding(
        Severity.WARNING,
        (Hazard.ORDER,),
        "the order of what was said, when two clocks differ or two rows have the same instant",
        "nothing but a timestamp can order the rows of a session",
        f"{table.name} has {', '.join(clocks)} and no number",
        "Add a number that the engine gives inside the write, unique within the session",
        (
            f"ALTER TABLE {table.name} ADD COLUMN seq bigint;",
            _NUMBER_THEM.format(table=table.name, session=table.session, clock=clocks[0]),
            f"ALTER TABLE {table.name} ADD UNIQUE ({table.session}, seq);",
        ),
    )


def _numbered(table: Table) -> bool:
    """Whether a unique key holds the session and a number."""
    return any(
        table.session in key and any(table.column(name).type in NUMBERS for name in key)
        for key in table.unique
        if len(key) > 1
    )


def _key(table: Table) -> Finding | None:
    """Two writers that take the same place, and a retry that is stored twice."""
    if not table.unique:
        return Finding(
            Severity.WARNING,
            (Hazard.CONCURRENCY,),
            "nothing; a retry or a second writer adds a message twice",
            "no unique key can refuse it",
            f"{table.name} has no primary key and no unique key",
            f"Add a unique key, best of {table.session} and a number",
            (
                f"ALTER TABLE {table.name} ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;",
            ),
        )
    by_clock = [
        key for key in table.unique
        if any(table.column(name).is_clock for name in key) and not _numbered(table)
    ]  # fmt: skip
    if by_clock:
        return Finding(
            Severity.WARNING,
            (Hazard.CONCURRENCY, Hazard.ORDER),
            "one of two messages that were written in the same instant",
            "a timestamp is part of the key: equal ones collide, and an upsert overwrites",
            f"{table.name} has the unique key ({', '.join(by_clock[0])})",
            f"Put a number that the engine gives in its place: UNIQUE ({table.session}, seq)",
        )
    return _own_numbers(table)


def _own_numbers(table: Table) -> Finding | None:
    """Numbers that the application counts, without a key that refuses the same one twice."""
    counted = re.compile(r"^(seq|sequence|idx|index|position|turn|number|message_index|order)")
    loose = [
        column.name
        for column in table.columns
        if column.type in NUMBERS and not column.generated and counted.match(column.name.lower())
    ]
    if not loose or _numbered(table):
        return None
    return Finding(
        Severity.WARNING,
        (Hazard.CONCURRENCY,),
        "the place of a message: two writers take the same number",
        "the application counts, and no unique key refuses what was counted twice",
        f"{table.name} has {loose[0]}, and no unique key of {table.session} and {loose[0]}",
        "Add the key; a writer that is refused takes the next number",
        (f"ALTER TABLE {table.name} ADD UNIQUE ({table.session}, {loose[0]});",),
    )


def facts(tables: Iterable[Table]) -> Mapping[str, str]:
    """Which tables look like conversations."""
    names = [table.name for table in tables if table.session is not None]
    return {"tables of messages": ", ".join(names[:10]) or "none that look like it"}
