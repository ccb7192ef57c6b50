"""What to ask of which server, in what order, and what to make of it. Pure, for both APIs.

Steps are a generator: it yields `Ask` and is sent rows, or has an error thrown into it; it
yields `Rest` to wait a little. Neither API decides anything.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from holdfast.backends.answers import understood
from holdfast.backends.postgres import statements as answers
from holdfast.backends.postgres.asks import REST_S, Ask, Rest, Steps, ask
from holdfast.backends.postgres.errors import BACKEND, NoLongerKept
from holdfast.backends.postgres.fence import Fence
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
    Clean,
    Command,
    Derive,
    EraseRecord,
    Facts,
    Forget,
    ImportSession,
    Read,
    ReadNumbers,
    Removed,
    Rewrite,
    Slice,
    Written,
    is_there,
    orphaned,
    seen_expired,
    written_since,
)
from holdfast.errors import EngineFull, EngineUnreachable, HoldfastError, OutcomeUnknown
from holdfast.model import Durability
from holdfast.recall.index_commands import Candidate, Search

R = TypeVar("R")

SWEEP_INTERVAL_S: Final = 1.0
SWEEP_MESSAGES_MAX: Final = 1000
SWEEP_KEYS: Final = 8
"""Keys and sessions that are looked at for each key that was added: so few keys are older than they need be."""
SWEEP_KEYS_MAX: Final = 10_000
KEYS_BEGIN: Final = (0, b"")
NOTE_AGAIN_S: Final = 10.0
"""After a note that could not be made (a role that only reads, a lock), readers go without so long.
So do those who would drop old keys."""
CONFIRM_S: Final = 1.0
"""How long a standby may take from its word that it has a commit to having what came with that."""
FAILOVER_REST_S: Final = 0.05
"""Between two tries of a write whose outcome is unknown."""
UNCONFIRMED: Final = (
    "the write is on the primary, but no standby has confirmed it (none is synchronous now, or the "
    "primary is another one by now). Retry it with the same key"
)
NEAR_AVOID_S: Final = 60.0
"""How long pgvector is left alone after it has failed."""


class CommandSteps:
    """Each command as steps, with what a store remembers between them."""

    def __init__(
        self,
        statements: Statements,
        replicas: Replicas,
        vector_types: str | None = None,
        *,
        fence: Fence | None = None,
        require: Durability = Durability.DISK,
        failover_timeout_s: float = 0.0,
        keys_kept_ms: int = 0,
    ) -> None:
        self._require = require
        self._failover_timeout_s = failover_timeout_s
        self._statements = statements
        self._entries = IndexStatements(statements, vector_types)
        self._near_at_s = 0.0 if vector_types else math.inf
        self._replicas = replicas
        self._sweep_at_s = self._note_at_s = self._keys_at_s = 0.0
        self._keys_kept_ms, self._keyed, self._keys_at = keys_kept_ms, 0, KEYS_BEGIN
        self._fence = fence

    def of(self, command: Command[Any]) -> Steps[Any]:
        """The steps of any command but a plain append, which goes with others."""
        if isinstance(command, Read):
            return self._read(command)
        if isinstance(command, Append):
            return self._append_kept(command)
        if isinstance(command, Rewrite):
            return self._rewrite(command)
        if isinstance(command, Forget):
            return self._forget(command)
        if isinstance(command, ImportSession):
            return self._import_session(command)
        return self._of_others(command)

    def _of_others(self, command: Command[Any]) -> Steps[Any]:
        if isinstance(command, Clean):
            return self._clean(full=command.full)
        if isinstance(command, EraseRecord):
            return self._erase_record(command)
        if isinstance(command, Derive):
            return self._derive(command)
        if isinstance(command, Search):
            return self._search(command)
        return self._one(command)

    def append(self, group: Sequence[Write]) -> Steps[None]:
        """Give each append of a group its reply or its error, or send it on its way again.

        Where another server may become primary, what has a key is repeated while its outcome is
        unknown: the key finds it, or it was lost and is written.
        """
        give_up_s = time.monotonic() + self._failover_timeout_s
        unknown: OutcomeUnknown | None = None
        while group:
            try:
                group = yield from self._append(group)
            except HoldfastError as error:
                if isinstance(error, EngineFull) and unknown is None:
                    yield from self._each_alone(group, error)
                    return
                unknown = error if isinstance(error, OutcomeUnknown) else unknown
                is_over = time.monotonic() + FAILOVER_REST_S > give_up_s
                group = _settle(group, error, unknown, is_over=is_over)
                if group:
                    self._replicas.look_again()
                    yield Rest(FAILOVER_REST_S)

    def _append_kept(self, command: Append) -> Steps[Any]:
        """One that cuts off goes alone, and is repeated as any other."""
        write = Write(command, command.session)
        yield from self.append((write,))
        return write.result()

    def _append(self, group: Sequence[Write]) -> Steps[Sequence[Write]]:
        """Send it once; nothing is left. What is raised concerns each that has no outcome yet."""
        statement = self._statements.append([write.payload for write in group])
        rows: Rows = yield from ask(PRIMARY, statement)
        done = []
        for write, row in zip(group, rows, strict=True):
            outcome = answers.written(write.payload, row)
            write.again = outcome is None
            if isinstance(outcome, HoldfastError):
                write.settle(error=outcome)
            elif outcome is not None:
                done.append((write, outcome))
        if done:
            self._keyed += sum(write.payload.key is not None for write, _ in done)
            yield from self._after_write(statement, [outcome for _, outcome in done])
        for write, outcome in done:
            write.settle(outcome)
        return ()

    def _each_alone(self, group: Sequence[Write], error: HoldfastError) -> Steps[None]:
        """The one that is too large must not take the others with it."""
        if len(group) == 1:
            group[0].settle(error=error)
            return
        for write in group:
            yield from self.append((write,))

    def _rewrite(self, command: Rewrite) -> Steps[Written]:
        statement = self._statements.rewrite(command)
        [row] = yield from ask(PRIMARY, statement)
        outcome = answers.written(command, row)
        if not isinstance(outcome, Written):
            raise outcome or AssertionError(row)
        yield from self._after_write(statement, [outcome])
        return outcome

    def _forget(self, command: Forget) -> Steps[Any]:
        statement = self._statements.forget(command)
        rows = yield from ask(PRIMARY, statement)
        if not rows:
            raise written_since(backend=BACKEND)
        yield from self._after_write(statement, [])
        return answers.removed(rows)

    def _clean(self, *, full: bool) -> Steps[Removed]:
        """See `Clean`: the tables may be in new files then, without what was deleted."""
        before = yield Ask(PRIMARY, self._statements.rewritten())
        tables = [table for table, _, _ in before]
        yield Ask(PRIMARY, self._statements.vacuum(tables, full=full))
        after = yield Ask(PRIMARY, self._statements.rewritten())
        # Who might need old rows at first may have ended since, after they were copied.
        needed = any(needed for _, _, needed in (*before, *after))
        is_new = {file for _, file, _ in before}.isdisjoint(file for _, file, _ in after)
        left = (answers.IN_THE_WAL,) if is_new and not needed else answers.LEFT
        return Removed(0, 0, left=left)

    def _erase_record(self, command: EraseRecord) -> Steps[Any]:
        statement = self._statements.erase_record(command)
        rows = yield from ask(PRIMARY, statement)
        yield from self._after_write(statement, [])
        return answers.record_removed(rows)

    def _import_session(self, command: ImportSession) -> Steps[bool]:
        statement = self._statements.import_session(command)
        [(written,)] = yield from ask(PRIMARY, statement)
        if written:
            yield from self._after_write(statement, [])
            return True
        there = answers.copied(
            (yield from ask(PRIMARY, self._statements.export_session(command.session)))
        )
        return not is_there(there, command.copy, backend=BACKEND)

    def _derive(self, command: Derive) -> Steps[Written]:
        statement = self._entries.derive(command)
        [row] = yield from ask(PRIMARY, statement)
        if row[0] == "orphaned":
            raise orphaned(command.source, backend=BACKEND)
        outcome = answers.written(Append(command.session, ()), row)
        if not isinstance(outcome, Written):
            raise outcome or AssertionError(row)
        yield from self._after_write(statement, [outcome])
        return outcome

    def _search(self, command: Search) -> Steps[Any]:
        if time.monotonic() >= self._near_at_s and len(command.vector) <= NEAR_DIMENSION_MAX:
            candidates = yield from self._search_near(command)
            if candidates is not None:
                return candidates
        return found(command, (yield from self._read_primary(self._entries.search(command))))

    def _read_primary(self, statement: Statement) -> Steps[Rows]:
        """What the primary shows, if it still is one."""
        if self._fence is None:
            return (yield from ask(PRIMARY, statement))
        return (yield from self._fence.read(statement, self._confirmed))

    def _search_near(self, command: Search) -> Steps[list[Candidate] | None]:
        """By pgvector; None where it does not have all vectors yet, or has gone away."""
        try:
            rows = yield from self._read_primary(self._entries.search_near(command))
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
            rows = yield from self._read_primary(make(self._statements, command))
        else:
            of_entries, reply = ENTRIES[type(command)]
            rows = yield from self._read_primary(of_entries(self._entries, command))
        result: R = understood(BACKEND, reply, rows)
        yield from self._mark_expired(command, result)
        return result

    def _read(self, command: Read) -> Steps[Slice]:
        cut = yield from self._page(command)
        yield from self._mark_expired(command, cut)
        return cut

    def _mark_expired(self, command: Any, reply: object) -> Steps[None]:
        """What was shown as expired stays so. One that was swept has no expiry any more."""
        seen = seen_expired(reply)
        is_empty = isinstance(command, ReadNumbers) and not reply  # it does not say why
        swept = isinstance(seen, Facts) and seen.expires_ms is None
        if (seen is None and not is_empty) or swept:
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
        statement = self._statements.read(command)
        rows = yield from self._read_primary(statement)
        self._replicas.check_timeline(command.token, statement.timeline)
        return understood(BACKEND, answers.page, command, rows)

    def _read_at(self, command: Read, server: int, token: str) -> Steps[Slice | None]:
        give_up_s = time.monotonic() + self._replicas.wait_s
        statement = self._statements.read_at(command, token)
        rest_s = REST_S
        try:
            while (rows := (yield from ask(server, statement)))[0][1] == b"behind":
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
        return understood(BACKEND, answers.page, command, rows)

    def _after_write(self, statement: Statement, replies: Sequence[Written]) -> Steps[None]:
        """The write is done: see that a standby has it, where that is required or to be said.

        Then note where replicas must come to, and free some room now and then. Nothing that
        goes wrong there may become an error of the write.
        """
        position = None
        is_required = self._require is Durability.REPLICA
        if is_required or any(reply.durability is Durability.REPLICA for reply in replies):
            position = yield from self._confirmed(statement.timeline)
            if position is None and is_required:
                raise OutcomeUnknown(UNCONFIRMED, operation=statement.operation, backend=BACKEND)
            if position is None:
                for reply in replies:
                    reply.durability = min(reply.durability, Durability.DISK)
        if position is None and self._replicas:
            position = yield from self._position(replies)
        for reply in replies:
            reply.token = position
        yield from self._sweep()

    def _confirmed(self, timeline: int) -> Steps[str | None]:
        """Where the log is up to which a synchronous standby has it; None if none is seen to have it.

        The settings do not tell: a server lets all go that wait for a standby, without a word, when
        an operator empties `synchronous_standby_names`. On another timeline the write may not be.
        """
        asked_s = time.monotonic()
        losses = self._replicas.losses()
        place, rest_s = "", REST_S / 4
        while True:
            try:
                asked = self._statements.confirmed(place)
                [(place, position, is_there)] = yield from ask(PRIMARY, asked)
            except HoldfastError:
                return None
            self._replicas.wrote(position, losses)
            if not position.endswith(f"@{timeline}") or is_there is None:
                return None
            if is_there:
                return str(position)
            if time.monotonic() + rest_s > asked_s + CONFIRM_S:
                return None
            yield Rest(rest_s)
            rest_s *= 1.5

    def _position(self, replies: Sequence[Written]) -> Steps[str]:
        """At or after the commit: asked for when it is done, since inside it nobody can know."""
        flushed = all(reply.durability > Durability.MEMORY for reply in replies)
        losses = self._replicas.losses()
        position: str
        try:
            [(position,)] = yield from ask(PRIMARY, self._statements.position(flushed=flushed))
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
        if self._keys_kept_ms and not swept and now_s >= self._keys_at_s:
            try:
                swept = yield from self._sweep_keys(self._keys_kept_ms)
            except HoldfastError:
                self._keys_at_s = now_s + NOTE_AGAIN_S
        if swept:
            self._sweep_at_s = now_s

    def _sweep_keys(self, kept_ms: int) -> Steps[bool]:
        """Drop what is left of a session that is long gone, and keys that nobody needs any more."""
        count = min(SWEEP_KEYS * self._keyed, SWEEP_KEYS_MAX)
        if count:
            self._keyed = 0
            look = self._statements.sweep_keys(kept_ms, self._keys_at, count)
            self._keys_at = next(iter((yield Ask(PRIMARY, look))), KEYS_BEGIN)
        look = self._statements.sweep_gone(kept_ms, SWEEP_MESSAGES_MAX)
        [(swept,)] = yield Ask(PRIMARY, look)
        return bool(swept)


def _settle(
    group: Sequence[Write], error: HoldfastError, unknown: OutcomeUnknown | None, *, is_over: bool
) -> list[Write]:
    """Give the error to each that has no outcome yet; returns those that are repeated instead.

    A new primary has no synchronous standby until one follows it: that passes as well. So does,
    on an old one, the lock that the first try holds while it waits for a standby.
    """
    passing = OutcomeUnknown | NoLongerKept | (EngineUnreachable if unknown else NoLongerKept)
    may_pass = isinstance(error, passing) and not is_over
    left = [one for one in group if not one.settled and not one.again]
    again = [one for one in left if may_pass and (unknown is None or one.payload.key)]
    for write in left:
        if write not in again:
            write.settle(error=unknown or error)
    return again
