"""What to ask of which server, in what order, and what to make of it. Pure, for both APIs.

Steps are a generator: it yields `Ask` and is sent rows, or has an error thrown into it; it
yields `Rest` to wait a little. Neither API decides anything.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.backends.postgres import statements as answers
from holdfast.backends.postgres.errors import BACKEND, ConnectionLost, Contended
from holdfast.backends.postgres.index import (
    ENTRIES,
    NEAR_DIMENSION_MAX,
    IndexStatements,
    found,
    found_near,
)
from holdfast.backends.postgres.replicas import PRIMARY, Replicas
from holdfast.backends.postgres.statements import READS, Rows, Statement, Statements
from holdfast.backends.writes import Write
from holdfast.commands import (
    Append,
    Cleaning,
    Command,
    Derive,
    EraseRecord,
    Facts,
    Forget,
    ImportSession,
    Read,
    Rewrite,
    Slice,
    Written,
    is_there,
    orphaned,
    seen_expired,
    written_since,
)
from holdfast.errors import EngineFull, HoldfastError
from holdfast.model import Durability
from holdfast.recall.index_commands import Candidate, Search
from holdfast.runner import StepsOf

R = TypeVar("R")

TRIES_MAX: Final = 8
REST_S: Final = 0.002
SWEEP_INTERVAL_S: Final = 1.0
SWEEP_MESSAGES_MAX: Final = 1000
NOTE_AGAIN_S: Final = 10.0
"""After a note that could not be made (a role that only reads, a lock), readers go without so long."""
NEAR_AVOID_S: Final = 60.0
"""How long pgvector is left alone after it has failed."""


@dataclass(slots=True)
class Ask:
    """Send a statement to a server: `PRIMARY`, or a replica by its index."""

    server: int
    statement: Statement


@dataclass(slots=True)
class Rest:
    """Wait a little."""

    seconds: float


Steps = StepsOf[Ask | Rest, R]


class CommandSteps:
    """Each command as steps, with what a store remembers between them."""

    def __init__(
        self, statements: Statements, replicas: Replicas, vector_types: str | None = None
    ) -> None:
        self._statements = statements
        self._entries = IndexStatements(statements, vector_types)
        self._near_at_s = 0.0 if vector_types else math.inf
        self._replicas = replicas
        self._sweep_at_s = self._note_at_s = 0.0

    def of(self, command: Command[Any]) -> Steps[Any]:
        """The steps of any command but a plain append, which goes with others."""
        if isinstance(command, Read):
            return self._read(command)
        if isinstance(command, Append):
            return self._write(command, self._statements.append_kept(command))
        if isinstance(command, Rewrite):
            return self._write(command, self._statements.rewrite(command))
        if isinstance(command, Forget):
            return self._forget(command)
        if isinstance(command, ImportSession):
            return self._import_session(command)
        return self._of_memory(command)

    def _of_memory(self, command: Command[Any]) -> Steps[Any]:
        if isinstance(command, EraseRecord):
            return self._erase_record(command)
        if isinstance(command, Derive):
            return self._derive(command)
        if isinstance(command, Search):
            return self._search(command)
        return self._one(command)

    def append(self, group: Sequence[Write]) -> Steps[None]:
        """Give each append of a group its reply or its error, or send it on its way again."""
        commands = [write.payload for write in group]
        try:
            rows: Rows = yield from _ask(PRIMARY, self._statements.append(commands))
        except EngineFull as error:
            yield from self._each_alone(group, error)
            return
        except HoldfastError as error:
            for write in group:
                write.settle(error=error)
            return
        outcomes = [answers.written(w.payload, row) for w, row in zip(group, rows, strict=True)]
        yield from self._after_write([one for one in outcomes if isinstance(one, Written)])
        for write, outcome in zip(group, outcomes, strict=True):
            if outcome is None:
                write.again = True
            elif isinstance(outcome, HoldfastError):
                write.settle(error=outcome)
            else:
                write.settle(outcome)

    def _each_alone(self, group: Sequence[Write], error: HoldfastError) -> Steps[None]:
        """The one that is too large must not take the others with it."""
        if len(group) == 1:
            group[0].settle(error=error)
            return
        for write in group:
            yield from self.append((write,))

    def _write(self, command: Append | Rewrite, statement: Statement) -> Steps[Written]:
        [row] = yield from _ask(PRIMARY, statement)
        outcome = answers.written(command, row)
        if not isinstance(outcome, Written):
            raise outcome or AssertionError(row)
        yield from self._after_write([outcome])
        return outcome

    def _forget(self, command: Forget) -> Steps[Any]:
        rows = yield from _ask(PRIMARY, self._statements.forget(command))
        if not rows:
            raise written_since(backend=BACKEND)
        yield from self._after_write([])
        removed = answers.removed(rows)
        if removed.left and command.cleaning is not Cleaning.LATER:
            full = command.cleaning is Cleaning.FULL
            if (yield from self._is_rewritten(full=full)):
                removed.left = (answers.IN_THE_WAL,)
        return removed

    def _is_rewritten(self, *, full: bool) -> Steps[bool]:
        """Clean the files; whether the tables are in new ones now, without what was deleted.

        The forget is done: nothing that goes wrong here may become an error of it.
        """
        try:
            before = yield Ask(PRIMARY, self._statements.rewritten())
            tables = [table for table, _, _ in before]
            yield Ask(PRIMARY, self._statements.vacuum(tables, full=full))
            after = yield Ask(PRIMARY, self._statements.rewritten())
        except HoldfastError:
            return False
        # Who might need old rows at first may have ended since, after they were copied.
        needed = any(needed for _, _, needed in (*before, *after))
        return not needed and {file for _, file, _ in before}.isdisjoint(
            file for _, file, _ in after
        )

    def _erase_record(self, command: EraseRecord) -> Steps[Any]:
        rows = yield from _ask(PRIMARY, self._statements.erase_record(command))
        yield from self._after_write([])
        return answers.record_removed(rows)

    def _import_session(self, command: ImportSession) -> Steps[bool]:
        [(written,)] = yield from _ask(PRIMARY, self._statements.import_session(command))
        if written:
            yield from self._after_write([])
            return True
        there = answers.copied(
            (yield from _ask(PRIMARY, self._statements.export_session(command.session)))
        )
        return not is_there(there, command.copy, backend=BACKEND)

    def _derive(self, command: Derive) -> Steps[Written]:
        [row] = yield from _ask(PRIMARY, self._entries.derive(command))
        if row[0] == "orphaned":
            raise orphaned(command.source, backend=BACKEND)
        outcome = answers.written(Append(command.session, ()), row)
        if not isinstance(outcome, Written):
            raise outcome or AssertionError(row)
        yield from self._after_write([outcome])
        return outcome

    def _search(self, command: Search) -> Steps[Any]:
        if time.monotonic() >= self._near_at_s and len(command.vector) <= NEAR_DIMENSION_MAX:
            candidates = yield from self._search_near(command)
            if candidates is not None:
                return candidates
        return found(command, (yield from _ask(PRIMARY, self._entries.search(command))))

    def _search_near(self, command: Search) -> Steps[list[Candidate] | None]:
        """By pgvector; None where it does not have all vectors yet, or has gone away."""
        try:
            rows = yield Ask(PRIMARY, self._entries.search_near(command))
            candidates = found_near(rows)
            if candidates is None:
                yield Ask(PRIMARY, self._entries.fill_near(command))
        except HoldfastError:
            self._near_at_s = time.monotonic() + NEAR_AVOID_S
            return None
        return candidates

    def _one(self, command: Command[R]) -> Steps[R]:
        if type(command) in READS:
            make, reply = READS[type(command)]
            rows = yield from _ask(PRIMARY, make(self._statements, command))
        else:
            ask, reply = ENTRIES[type(command)]
            rows = yield from _ask(PRIMARY, ask(self._entries, command))
        result: R = reply(rows)
        yield from self._mark_expired(command, result)
        return result

    def _read(self, command: Read) -> Steps[Slice]:
        cut = yield from self._page(command)
        yield from self._mark_expired(command, cut)
        return cut

    def _mark_expired(self, command: Any, reply: object) -> Steps[None]:
        """What was shown as expired stays so. One that was swept has no expiry any more."""
        seen = seen_expired(reply)
        if seen is None or (isinstance(seen, Facts) and seen.expires_ms is None):
            return
        if time.monotonic() < self._note_at_s:
            return
        try:
            yield Ask(PRIMARY, self._statements.expire(command.session))
        except HoldfastError:  # what was read is right, and a later one tries again
            self._note_at_s = time.monotonic() + NOTE_AGAIN_S

    def _page(self, command: Read) -> Steps[Slice]:
        """From a replica that is fresh enough, or becomes so in time; otherwise the primary."""
        token = self._replicas.token_for(command.token)
        server = self._replicas.choose(token, time.monotonic())
        if server != PRIMARY and token is not None:
            cut = yield from self._read_at(command, server, token)
            if cut is not None:
                return cut
        return answers.page(command, (yield from _ask(PRIMARY, self._statements.read(command))))

    def _read_at(self, command: Read, server: int, token: str) -> Steps[Slice | None]:
        give_up_s = time.monotonic() + self._replicas.wait_s
        statement = self._statements.read_at(command, token)
        rest_s = REST_S
        try:
            while (rows := (yield from _ask(server, statement)))[0][1] == b"behind":
                if time.monotonic() + rest_s > give_up_s:
                    self._replicas.avoid(server, time.monotonic())
                    return None
                yield Rest(rest_s)
                rest_s *= 1.5
        except HoldfastError:  # it is down, or is no replica of ours: the primary knows
            self._replicas.avoid(server, time.monotonic())
            return None
        if rows[0][1] in {b"expiring", b"unfit"}:
            return None
        return answers.page(command, rows)

    def _after_write(self, replies: Sequence[Written]) -> Steps[None]:
        """The write is done: note where replicas must come to, and free some room now and then.

        Nothing that goes wrong here may become an error of the write.
        """
        if self._replicas:
            position = yield from self._position(replies)
            for reply in replies:
                reply.token = position
        yield from self._sweep()

    def _position(self, replies: Sequence[Written]) -> Steps[str]:
        """At or after the commit: asked for when it is done, since inside it nobody can know."""
        flushed = all(reply.durability > Durability.MEMORY for reply in replies)
        losses = self._replicas.losses()
        position: str
        try:
            [(position,)] = yield from _ask(PRIMARY, self._statements.position(flushed=flushed))
        except HoldfastError:
            position = self._replicas.NOWHERE  # the write itself is done, whatever happened here
        self._replicas.wrote(position, losses)
        return position

    def _sweep(self) -> Steps[None]:
        now_s = time.monotonic()
        if now_s < self._sweep_at_s:
            return
        self._sweep_at_s = now_s + SWEEP_INTERVAL_S
        try:
            [(swept,)] = yield Ask(PRIMARY, self._statements.sweep(SWEEP_MESSAGES_MAX))
        except HoldfastError:
            return  # the next write tries again
        if swept:
            self._sweep_at_s = now_s


def _ask(server: int, statement: Statement) -> Steps[Rows]:
    """Ask, and again where that is safe: the server gave up, or a read lost its connection."""
    for tried in range(1, TRIES_MAX):
        try:
            rows: Rows = yield Ask(server, statement)
        except (Contended, ConnectionLost) as error:
            if isinstance(error, ConnectionLost) and tried > 1:
                raise
            yield Rest(random.uniform(0, REST_S * 2**tried))  # noqa: S311 - only to get apart
        else:
            return rows
    last: Rows = yield Ask(server, statement)
    return last
