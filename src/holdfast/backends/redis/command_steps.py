"""Commands carried out on Redis, for both APIs: every step is an `Ask` that a driver carries out.

A group of statements for one engine is one exchange: the scripts, then, where the required durability needs
it, one WAITAOF or WAIT that serves them all.
"""

from __future__ import annotations

import copy
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.backends.answers import understood
from holdfast.backends.redis.address import Address, Server
from holdfast.backends.redis.cleaning import clean
from holdfast.backends.redis.driver import Link, Rest, Shut, Steps, talk
from holdfast.backends.redis.durability import (
    Assessment,
    changed,
    decide,
    online_replicas,
    parse_info,
)
from holdfast.backends.redis.errors import BACKEND, Lost, code_of, mapped
from holdfast.backends.redis.keys import Keys
from holdfast.backends.redis.listing import Listing
from holdfast.backends.redis.pool import Pool
from holdfast.backends.redis.replies import ticket_of
from holdfast.backends.redis.statements import (
    Statement,
    import_statement,
    pack,
    plain_statement,
    stage_statement,
    statement_for,
)
from holdfast.commands import (
    Clean,
    Copy,
    ExportSession,
    ImportSession,
    Names,
    Removed,
    is_there,
)
from holdfast.errors import (
    EngineUnreachable,
    HoldfastError,
    OutcomeUnknown,
    Refused,
)
from holdfast.model import Durability, SessionState

ATTEMPTS_MAX: Final = 5
"""How often a statement is sent again after an answer that says it was not carried out."""
TRYAGAIN_MAX: Final = 3
REST_S: Final = 0.01
"""A session is on its way from one node to another for about as long as one MIGRATE takes."""
ONLINE: Final = pack([b"INFO", b"replication"])
UNSURE_REST_S: Final = 0.05
"""Between two tries to learn what became of a write, while another primary is chosen."""
STAGE_RECORDS: Final = 1000
STAGE_BYTES: Final = 4 * 1024 * 1024
STAGE_TTL_MS: Final = 600_000
WAIT_SHARE: Final = 0.8
"""Of the time that a reply may take, so much is spent waiting for a disk or a replica."""


class Engine:
    """Carries out statements; each one is settled, with its result or its error, and none both."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.keys = Keys(address.namespace, address.keys_kept_ms)
        self.pool = Pool(address)
        self._listing = Listing(self.keys, self.carry, lambda: self.pool.is_cluster)

    def carry(self, statements: Sequence[Statement]) -> Steps[None]:
        """Settle every statement. One that was surely not carried out may be sent again.

        One with a key of which that is unknown is sent again until another primary has answered.
        """
        until_s = time.monotonic() + self.address.reply_timeout_s
        for attempt in itertools.count():
            todo = [statement for statement in statements if not statement.settled]
            unsure = [statement for statement in todo if statement.unsure is not None]
            if not todo or (attempt >= ATTEMPTS_MAX and not unsure):
                break
            if unsure and time.monotonic() > until_s:
                break
            if unsure:
                yield Rest(UNSURE_REST_S)
            try:
                by_server = yield from self._by_server(todo)
            except HoldfastError as error:
                _settle_all([one for one in todo if one.unsure is None], error)
                continue
            for server, some in by_server.items():
                yield from self._exchange(server, some, last=attempt > 0)
            yield from self._index([statement for statement in todo if statement.indexed is None])
            moving = max(
                (statement.tries for statement in todo if not statement.settled), default=0
            )
            if moving:
                yield Rest(REST_S * 2**moving)
        _settle_all(
            [statement for statement in statements if not statement.settled],
            EngineUnreachable(
                "the engine sent the command away again and again; nothing was written. Try again",
                backend=BACKEND,
            ),
        )

    def names(self, command: Names) -> Steps[list[bytes]]:
        """A page of session names."""
        return self._listing.names(command)

    def import_session(self, command: ImportSession) -> Steps[bool]:
        """Write a whole session: staged beside its place in pieces, then committed in one step."""
        for _ in range(ATTEMPTS_MAX):
            export = statement_for(ExportSession(command.session), self.keys)
            yield from self.carry([export])
            there: Copy = export.outcome()
            if there.facts.state is not SessionState.NEVER:
                return not is_there(there, command.copy, backend=BACKEND)
            staged = self.keys.staged(command.session, os.urandom(8).hex().encode())
            commit = import_statement(command, self.keys, staged)
            yield from self._stage(command, staged)
            yield from self.carry([commit])
            if commit.outcome() == b"imported":
                return True
        raise EngineUnreachable(
            "the session could not be staged; nothing was written. Try again",
            operation=command.operation,
            backend=BACKEND,
        )

    def clean(self) -> Steps[Removed]:
        """See `Clean`: rewrite the files of every server. A slot that has moved left copies behind."""
        left: list[str] = []
        for server in (yield from self.pool.primaries()):

            def ask(*words: bytes, server: Server = server) -> Steps[Any]:
                asked = plain_statement(Clean.operation, *words, key=b"")
                asked.server = server
                yield from self.carry([asked])
                return asked.outcome()

            left += yield from clean(ask)
        return Removed(0, 0, left=tuple(dict.fromkeys(left)))

    def _stage(self, command: ImportSession, staged: tuple[bytes, bytes]) -> Steps[None]:
        """Not visible to anybody, and gone by itself if we are: a failure means not written."""
        log, keys = staged
        last = command.copy.facts.last
        rows = (record for _, record in command.copy.rows)
        used = ([digest, b"%d %d" % (first, last)] for digest, first, last in command.copy.keys)
        pieces = [(keys, b"HSET", piece) for piece in _pieces(w for pair in used for w in pair)]
        pieces += [(log, b"RPUSH", piece) for piece in _pieces(rows)]
        for key, verb, words in pieces:
            stage = stage_statement(verb, key, STAGE_TTL_MS, last, words)
            yield from self.carry([stage])
            stage.outcome()

    def _by_server(self, statements: Sequence[Statement]) -> Steps[dict[Server, list[Statement]]]:
        by_server: dict[Server, list[Statement]] = {}
        for statement in statements:
            server = statement.server
            if server is None:
                slot = statement.slot if self.pool.is_cluster else None
                server = yield from self.pool.server_of(slot)
            by_server.setdefault(server, []).append(statement)
        return by_server

    def _exchange(self, server: Server, statements: list[Statement], *, last: bool) -> Steps[None]:
        """Send statements to one engine and settle those that it answered."""
        writes = any(statement.writes for statement in statements)
        try:
            link = yield from self.pool.borrow(server)
        except HoldfastError as error:
            self.pool.doubt()
            if last or not self.pool.has_failover or isinstance(error, Refused):
                _settle_all([one for one in statements if one.unsure is None], error)
            return
        assessment = link.assessment
        low = assessment is None or assessment.durability < self.address.require
        if assessment is None or (low and (writes or assessment.unread)):
            yield from self.pool.give_back(link)
            why = self._too_low(link) if writes else _not_confirmed(link)
            _settle_all([one for one in statements if one.unsure is None], why)
            return
        split = self.pool.is_cluster
        packed = [
            [pack(frame) for frame in statement.frames(split=split)] for statement in statements
        ]
        waits = self._waits(assessment, link, writes=writes)
        checks = [link.recheck] if writes and assessment.durability and link.recheck else []
        several = bool(assessment.wait_replicas) and self.pool.has_failover
        counts = [ONLINE] if several else []
        words = [*(frame for frames in packed for frame in frames), *waits, *counts, *checks]
        replies = yield from talk(link, b"".join(words), len(words))
        at = len(words) - len(checks)
        joined = yield from self._joined(link, assessment, replies[at - len(counts) : at])
        if any(isinstance(reply, Lost) for reply in [*replies, *joined]):
            yield Shut(link)
            self.pool.doubt()
        else:
            yield from self.pool.give_back(link)
        waited = replies[len(words) - len(checks) - len(counts) - len(waits) :][: len(waits)]
        if not writes and any(code_of(one) in {"MOVED", "ASK"} for one in waited):
            self.pool.doubt()  # what is written for a read was written elsewhere: its slot has moved
            link.checked_s = 0.0
            return
        assessment, weaker = self._assessment_now(
            link, assessment, replies[len(words) - len(checks) :]
        )
        at = 0
        for statement, frames in zip(statements, packed, strict=True):
            reply = statement.answer(replies[at : at + len(frames)])
            self._answer(statement, reply, assessment, last=last)
            at += len(frames)
        short = _shortfall([*replies[at : at + len(waits)], *joined], assessment.wait_replicas)
        if short is not None:
            self.pool.doubt()  # it may be a primary no longer, without knowing it
        _hold_to(statements, short or weaker)

    def _joined(
        self, link: Link, assessment: Assessment, counted: Sequence[Any]
    ) -> Steps[list[Any]]:
        """What a replica says of it that has come since the engine was looked at: it may be chosen, too."""
        if not counted or isinstance(counted[0], Exception):
            return list(counted)
        online = online_replicas(parse_info(counted[0]))
        if online <= assessment.wait_replicas:
            return []
        link.checked_s = 0.0
        [confirmed] = yield from talk(link, self._wait_for(online), 1)
        all_of_them = isinstance(confirmed, int) and confirmed >= online
        return [assessment.wait_replicas if all_of_them else 0]

    def _wait_for(self, replicas: int) -> bytes:
        timeout_ms = b"%d" % (self.address.reply_timeout_s * WAIT_SHARE * 1000)
        return pack([b"WAIT", b"%d" % replicas, timeout_ms])

    def _assessment_now(
        self, link: Link, assessment: Assessment, replies: Sequence[Any]
    ) -> tuple[Assessment, str | None]:
        """What writes are on by the settings of the moment after them; or why it is not known."""
        if not replies or replies[0] == link.unchanged:
            return assessment, None
        if isinstance(replies[0], Lost):
            return assessment, "the connection was lost before its settings were seen"
        seen = changed(link.seen, replies[0])
        if seen is None:
            link.unchanged = replies[0]  # the same words again need not be understood again
            return assessment, None
        link.checked_s = 0.0  # before the next write it is looked at closely
        now = decide(seen, self.address.require, self.address.stated)
        waited = assessment.wait_disk or not now.wait_disk
        if now.durability >= assessment.durability and waited:
            return assessment, None
        if now.durability >= self.address.require and waited:
            return now, None
        return assessment, (
            f"its settings were changed, and it keeps {now.durability.name} at most now: "
            f"{now.weakness}"
        )

    def _too_low(self, link: Link) -> Refused:
        """The engine's configuration was changed, or it was started again with another one."""
        assessment = link.assessment or Assessment(Durability.MEMORY)
        return Refused(
            f"{link.server} keeps {assessment.durability.name} at most now, and "
            f"{self.address.require.name} is required: {assessment.weakness}. Nothing was written",
            backend=BACKEND,
        )

    def _waits(self, assessment: Assessment, link: Link, *, writes: bool) -> list[bytes]:
        """What is to be waited for after writes, for all of them at once.

        Where a replica may become the primary, a read waits as well: what it shows must not be gone after a failover, and an
        engine that was deposed without knowing it finds no replica to confirm. What they have confirmed before
        says nothing of that, so there is a write to confirm.
        """
        timeout_ms = b"%d" % (self.address.reply_timeout_s * WAIT_SHARE * 1000)
        waits = []
        if assessment.wait_replicas and (writes or self.pool.has_failover):
            if not writes:
                waits.append(link.fence)
            waits.append(self._wait_for(assessment.wait_replicas))
        if assessment.wait_disk and writes:
            waits.append(pack([b"WAITAOF", b"1", b"0", timeout_ms]))
        return waits

    def _answer(
        self, statement: Statement, reply: Any, assessment: Assessment, *, last: bool
    ) -> None:
        """Settle a statement, unless the reply says that nothing was done yet and how to go on."""
        statement.server, statement.asking = None, False
        if isinstance(reply, Exception):
            self._refused(statement, reply, last=last)
        elif statement.name is not None and (ticket := ticket_of(reply)) is not None:
            statement.indexed, statement.ticket = None, ticket
        else:
            _settle(statement, reply, assessment.durability)

    def _refused(self, statement: Statement, error: Exception, *, last: bool) -> None:
        """Settle with an error, unless the engine said that it did nothing and how to go on."""
        code = code_of(error)
        if code == "NOSCRIPT" and not statement.plain:
            statement.plain = True
        elif code == "OOM" and statement.alone is not None:
            statement.go_alone()
        elif code == "MOVED" and self.pool.is_cluster:
            self.pool.doubt()
        elif code == "ASK" and self.pool.is_cluster:
            statement.asking, statement.server = True, _asked_server(error)
        elif code == "TRYAGAIN" and statement.tries < TRYAGAIN_MAX:
            statement.tries += 1
        elif code == "READONLY" and self.pool.has_failover and not last:
            self.pool.doubt()
        elif isinstance(error, Lost) and not statement.writes and not last:
            return  # reading twice does no harm
        else:
            said = mapped(error, statement.operation, writes=statement.writes)
            again = statement.repeatable and self.pool.may_promote
            if again and (isinstance(said, OutcomeUnknown) or statement.unsure is not None):
                statement.unsure = statement.unsure or said
            else:
                statement.settle(error=said)

    def _index(self, statements: Sequence[Statement]) -> Steps[None]:
        """Write names into the index that their sessions are to be found in it, before those are."""
        if not statements:
            return
        error = yield from self._listing.add(statements)
        for statement in statements:
            statement.indexed = True
            if error is not None:
                statement.settle(error=_not_indexed(error, statement.operation))


def _settle(statement: Statement, reply: Any, durability: Durability) -> None:
    try:
        statement.settle(understood(BACKEND, statement.parse, reply, durability))
    except HoldfastError as error:
        error.operation = error.operation or statement.operation
        statement.settle(error=error)


def _not_confirmed(link: Link) -> EngineUnreachable:
    weakness = link.assessment.weakness if link.assessment else "nothing is known of it"
    return EngineUnreachable(
        f"{link.server} is not asked: what it shows could be gone after a failover, because {weakness}. "
        "Nothing was written. Try again",
        backend=BACKEND,
    )


def _hold_to(statements: Sequence[Statement], shortfall: str | None) -> None:
    """Take back the acks of writes, and what was read, that no disk or replica has confirmed."""
    if shortfall is None:
        return
    for statement in statements:
        if not statement.settled or statement.error is not None:
            continue
        if not statement.writes:
            statement.error = EngineUnreachable(
                f"the engine answered, but {shortfall}: what it showed may be old, or gone after a "
                "failover. Nothing was written. Try again",
                operation=statement.operation,
                backend=BACKEND,
            )
        else:
            statement.error = OutcomeUnknown(
                f"the engine has the write in memory, but {shortfall}. It may or may not survive: "
                "retry it with the same key",
                operation=statement.operation,
                backend=BACKEND,
            )


def _shortfall(waits: Sequence[Any], replicas: int) -> str | None:
    """Why what was waited for did not come about: no disk or no replica has confirmed in time."""
    for wait in waits:
        if isinstance(wait, Exception):
            return f"waiting for its disk or replica failed ({wait})"
        if isinstance(wait, int) and wait < replicas:
            return f"its replicas did not confirm in time ({wait} of {replicas} replicas did)"
        if isinstance(wait, list) and wait[0] == 0:
            return "its disk or replica did not confirm in time"
    return None


def _settle_all(statements: Sequence[Statement], error: HoldfastError) -> None:
    """With this error, or with what was unknown before it: that stays unknown."""
    for statement in statements:
        own = copy.copy(statement.unsure or error)
        own.operation = statement.operation
        statement.settle(error=own)


def _not_indexed(error: BaseException, operation: str) -> HoldfastError:
    """A session that is not in the index was not begun: that much is sure."""
    kind = type(error) if isinstance(error, Refused | EngineUnreachable) else EngineUnreachable
    mapped_error = kind(
        f"the session's name could not be written to the index, so the session was not begun and "
        f"nothing was written ({error})",
        operation=operation,
        backend=BACKEND,
    )
    mapped_error.__cause__ = error
    return mapped_error


def _asked_server(error: Exception) -> Server:
    """`ASK 3999 host:port`; the driver may have cut the code off."""
    host, _, port = str(error).split()[-1].rpartition(":")
    return Server(host, int(port))


def _pieces(words: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Words in lists of bounded length and size; always an even number of them."""
    piece: list[bytes] = []
    size = 0
    for word in words:
        piece.append(word)
        size += len(word)
        if len(piece) % 2 == 0 and (len(piece) >= STAGE_RECORDS or size >= STAGE_BYTES):
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
