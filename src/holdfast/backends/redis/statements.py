"""Commands as statements for Redis; `replies` reads what it answers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.backends.redis import index, replies, scripts
from holdfast.backends.redis.errors import BACKEND
from holdfast.backends.redis.keys import Keys, slot_of
from holdfast.backends.redis.scripts import Script
from holdfast.commands import (
    Append,
    Command,
    Derive,
    EraseRecord,
    ExportSession,
    Forget,
    ImportSession,
    Keep,
    Read,
    ReadNumbers,
    Rewrite,
    StatSession,
    floor_of,
    sublogs_of,
)
from holdfast.errors import HoldfastError
from holdfast.model import Durability
from holdfast.recall.index_commands import Extend, ReadPosition, Search
from holdfast.tombstones import digest_name

Parse = Callable[[Any, Durability], Any]
WITHOUT_USED: Final = 2
"""Head and log, without the used keys, which many sessions do not have."""
NO_TICKET: Final = b"0"


class Statement:
    """One statement on its way: then either its result or its error."""

    __slots__ = (
        "alone", "args", "asking", "beside", "declared", "error", "index", "indexed", "keys",
        "name", "operation", "parse", "plain", "repeatable", "result", "script", "server", "settled", "ticket", "tombstone",
        "tries", "unsure", "writes",
    )  # fmt: skip

    def __init__(
        self,
        operation: str,
        script: Script | None,
        keys: tuple[bytes, ...],
        args: Sequence[bytes],
        parse: Parse,
        *,
        writes: bool = False,
        name: bytes | None = None,
        index: bytes = b"",
        beside: list[bytes] | None = None,
        alone: Statement | None = None,
        declared: int | None = None,
        repeatable: bool = False,
    ) -> None:
        self.operation, self.script, self.keys, self.args = operation, script, keys, args
        self.parse, self.writes = parse, writes
        # A statement that may begin a session bears its name, for the index. With the ticket the script
        # knows that the name was written there after it was wanted there: `indexed` is None then.
        self.name, self.index = name, index
        self.indexed: bool | None = False
        self.ticket = NO_TICKET
        self.tombstone: bytes | None = None
        # The same in one script: a full engine queues nothing, so it refuses whatever is in a MULTI.
        self.beside, self.alone = beside, alone
        # Of the keys, those that are named in a cluster: while its slot moves, a session with one that
        # is on neither node cannot be reached.
        self.declared = declared
        # A second time it adds nothing: it has a key. So where its outcome is unknown it is sent again.
        self.repeatable = repeatable
        self.unsure: HoldfastError | None = None
        self.asking = self.plain = False
        self.tries = 0
        self.server: Any = None
        self.settled = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def slot(self) -> int:
        """The hash slot of its keys."""
        return slot_of(self.keys[0])

    @property
    def size(self) -> int:
        """How many bytes it carries, nearly."""
        return sum(map(len, self.args))

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """Note the outcome; the first one counts."""
        if not self.settled:
            self.settled, self.result, self.error = True, result, error

    def outcome(self) -> Any:
        """The result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result

    def go_alone(self) -> None:
        """Ask in the other way from now on."""
        if self.alone is not None:
            other, self.alone, self.beside, self.plain = self.alone, None, None, False
            self.script, self.args, self.parse = other.script, other.args, other.parse

    def frames(self, *, split: bool) -> list[list[bytes]]:
        """The Redis commands. `split`: the index of names may be on another node."""
        frames = [self._words(split=split)]
        if self.beside is not None:
            # Both at one instant; records that a script would hand on cost it a copy each.
            frames = [[b"MULTI"], *frames, self.beside, [b"EXEC"]]
        return [[b"ASKING"], *frames] if self.asking else frames

    def answer(self, replies: Sequence[Any]) -> Any:
        """Of the replies to the frames, the one that counts: an error, else the last."""
        inner = replies[-1] if self.beside and isinstance(replies[-1], list) else ()
        for reply in (*replies, *inner):
            if isinstance(reply, Exception):
                return reply
        return replies[-1]

    def _words(self, *, split: bool) -> list[bytes]:
        if self.script is None:
            return [*self.args]
        keys, first = self.keys[: self.declared] if split else self.keys, []
        if self.name is not None:
            first = [self.name, self.ticket if self.indexed else NO_TICKET]
            if not split:
                keys = (*keys, self.index)
        if self.tombstone is not None and not split:
            keys = (*keys, self.tombstone)
        # The whole text after a NOSCRIPT: it loads the script as well, in one trip.
        how = [b"EVAL", self.script.source] if self.plain else [b"EVALSHA", self.script.digest]
        return [*how, b"%d" % len(keys), *keys, *first, *self.args]


def pack(words: Sequence[bytes]) -> bytes:
    """A command as Redis reads it; every byte may be in it."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def plain_statement(operation: str, *words: bytes, key: bytes, writes: bool = False) -> Statement:
    """A command of Redis itself; its reply is the result."""
    return Statement(operation, None, (key,), words, lambda reply, _: reply, writes=writes)


def statement_for(command: Command[Any], keys: Keys) -> Statement:
    """The statement that carries out a command of one script."""
    statement = _BUILDERS[type(command)](command, keys)
    statement.tombstone = keys.tombstone(command.session)  # type: ignore[attr-defined] # all of them
    return statement


def _optional(number: int | None) -> bytes:
    return b"" if number is None else b"%d" % number


def _keep(keep: Keep | None, keys: Keys) -> list[bytes]:
    kept = b"%d" % keys.kept_ms
    if keep is None:
        return [b"0", b"", b"", kept]
    return [b"%d" % keep.floor, b"" if keep.seen is None else b"=" + keep.seen, keep.marks, kept]


def _append(command: Append, keys: Keys) -> Statement:
    terms = [_optional(command.expect), b"%d" % command.ttl_ms]
    return Statement(
        command.operation,
        scripts.APPEND,
        keys.session(command.session),
        [*terms, command.key or b"", *_keep(command.keep, keys), *command.records],
        lambda reply, durability: replies.written(reply, durability, command),
        writes=True,
        name=command.session,
        index=keys.index,
        declared=WITHOUT_USED if command.key is None else None,
        repeatable=command.key is not None,
    )


def _rewrite(command: Rewrite, keys: Keys) -> Statement:
    return Statement(
        command.operation,
        scripts.REWRITE,
        keys.session(command.session),
        [
            _optional(command.expect),
            b"%d" % command.ttl_ms,
            b"",
            *_keep(None, keys),
            *command.records,
        ],
        lambda reply, durability: replies.written(reply, durability, command),
        writes=True,
        name=command.session,
        index=keys.index,
        declared=WITHOUT_USED,
    )


def _forget(command: Forget, keys: Keys) -> Statement:
    logs = (command.session, *sublogs_of(command.session))
    lasts = [b"%d" % last for last in command.lasts] if command.lasts else [b"", b""]
    args = [b"%d" % keys.kept_ms, *lasts]
    if command.hide:
        args += [keys.index, keys.gone, keys.going, command.session, digest_name(command.session)]
    return Statement(
        command.operation,
        scripts.FORGET,
        tuple(key for log in logs for key in keys.session(log)),
        args,
        replies.removed,
        writes=True,
    )


def _erase_record(command: EraseRecord, keys: Keys) -> Statement:
    return Statement(
        command.operation,
        scripts.ERASE,
        keys.session(command.session)[:WITHOUT_USED],
        [b"%d" % command.number],
        replies.removed,
        writes=True,
    )


def _derive(command: Derive, keys: Keys) -> Statement:
    _, sublog = sublogs_of(command.session)
    source = keys.session(command.session)
    return Statement(
        command.operation,
        scripts.DERIVE,
        (*keys.session(sublog), *source[:2]),
        [b"", b"-1", command.key, *_keep(None, keys), command.record, b"%d" % command.source],
        lambda reply, durability: replies.derived(reply, durability, command),
        writes=True,
        name=sublog,
        index=keys.index,
    )


def _read_numbers(command: ReadNumbers, keys: Keys) -> Statement:
    numbers = [b"%d" % number for number in command.numbers]
    names = keys.session(command.session)[:WITHOUT_USED]
    return Statement(command.operation, scripts.NUMBERS, names, numbers, replies.numbered)


def _index_position(command: ReadPosition, keys: Keys) -> Statement:
    names = keys.session(command.session)[:WITHOUT_USED]
    return Statement(command.operation, scripts.POSITION, names, (), replies.position)


def _extend(command: Extend, keys: Keys) -> Statement:
    at = (command.model.encode(), b"%d" % command.after, b"%d" % command.upto)
    return Statement(
        command.operation,
        scripts.EXTEND,
        keys.session(command.session)[:WITHOUT_USED],
        [
            *(*at, b"%d" % command.floor, b"%d" % command.from_scratch, b"%d" % index.CLIENT_MAX),
            *map(index.pack, command.entries),
        ],
        replies.position,
        writes=True,
    )


def _search(command: Search, keys: Keys) -> Statement:
    return Statement(
        command.operation,
        scripts.SEARCH,
        keys.session(command.session)[:WITHOUT_USED],
        index.question(command),
        lambda reply, _: index.found(command, replies.checked(reply)),
    )


def _read(command: Read, keys: Keys) -> Statement:
    names = keys.session(command.session)[:WITHOUT_USED]
    bounds = [_optional(command.limit), _optional(command.before), _optional(command.after)]
    alone = Statement(command.operation, scripts.READ, names, bounds, replies.page)
    if command.before is None and command.after is None and command.limit != 0:
        newest = b"0" if command.limit is None else b"-%d" % command.limit
        return Statement(
            command.operation,
            scripts.STAT,
            names,
            (),
            lambda reply, _: replies.newest(reply, command.limit),
            beside=[b"LRANGE", names[1], newest, b"-1"],
            alone=alone,
        )
    return alone


def _stat(command: StatSession, keys: Keys) -> Statement:
    names = keys.session(command.session)[:WITHOUT_USED]
    return Statement(command.operation, scripts.STAT, names, (b"now",), replies.facts)


def _export(command: ExportSession, keys: Keys) -> Statement:
    return Statement(
        command.operation, scripts.EXPORT, keys.session(command.session), (), replies.copied
    )


def stage_statement(
    verb: bytes, key: bytes, ttl_ms: int, last: int, words: Sequence[bytes]
) -> Statement:
    """Put words beside a session. It counts as no write: nobody sees it before the commit."""
    args = [verb, b"%d" % ttl_ms, b"%d" % last, *words]
    return Statement(ImportSession.operation, scripts.STAGE, (key,), args, replies.fit)


def import_statement(command: ImportSession, keys: Keys, staged: tuple[bytes, bytes]) -> Statement:
    """Commit what was staged; the result is what the script said: imported, there or unstaged."""
    facts, rows = command.copy.facts, command.copy.rows
    floor = floor_of(command.copy, backend=BACKEND)
    statement = Statement(
        command.operation,
        scripts.IMPORT,
        (*keys.session(command.session), *staged),
        [
            *(b"%d" % one for one in (facts.last, floor, sum(len(record) for _, record in rows))),
            *(_optional(facts.ttl_ms), _optional(facts.expires_ms)),
            *(facts.state.value.encode(), b"%d" % len(command.copy.keys), b"%d" % facts.trimmed),
            b"%d" % keys.kept_ms,
        ],
        lambda reply, durability: replies.fit(reply, durability)[0],
        writes=True,
        name=command.session,
        index=keys.index,
    )
    statement.tombstone = keys.tombstone(command.session)
    return statement


_BUILDERS: Final[dict[type[Command[Any]], Callable[[Any, Keys], Statement]]] = {
    Append: _append,
    Rewrite: _rewrite,
    Forget: _forget,
    EraseRecord: _erase_record,
    Read: _read,
    StatSession: _stat,
    ExportSession: _export,
    Derive: _derive,
    ReadNumbers: _read_numbers,
    ReadPosition: _index_position,
    Extend: _extend,
    Search: _search,
}
