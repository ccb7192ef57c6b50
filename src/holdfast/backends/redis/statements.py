"""Commands as requests to Redis, and its replies as ours: the one place where they meet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.backends.redis import index, scripts
from holdfast.backends.redis.errors import BACKEND
from holdfast.backends.redis.keys import Keys, slot_of
from holdfast.backends.redis.scripts import Script
from holdfast.commands import (
    Append,
    Command,
    Copy,
    Derive,
    EraseRecord,
    ExportSession,
    Facts,
    Forget,
    ImportSession,
    Read,
    ReadNumbers,
    Removed,
    Rewrite,
    Slice,
    StatSession,
    Written,
    check_expect,
    floor_of,
    orphaned,
    sublogs_of,
    unfit,
)
from holdfast.errors import Damaged, EngineFull, FormatTooNew, HoldfastError, NotApplied
from holdfast.model import Durability, SessionState
from holdfast.recall.index_commands import Extend, Position, ReadPosition, Search

Parse = Callable[[Any, Durability], Any]
NEVER: Final = Facts(SessionState.NEVER)
WITHOUT_USED: Final = 2
"""Head and log, without the used keys, which many sessions do not have."""
NO_TICKET: Final = b"0"
NEW_TICKET: Final = b"1"
"""Of a session that never was; one that was taken out of the index has one of its own."""


class Request:
    """One request on its way: then either its result or its error."""

    __slots__ = (
        "alone", "args", "asking", "beside", "declared", "error", "index", "indexed", "keys",
        "name", "operation", "parse", "plain", "result", "script", "server", "settled", "ticket", "tries", "writes",
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
        alone: Request | None = None,
        declared: int | None = None,
    ) -> None:
        self.operation, self.script, self.keys, self.args = operation, script, keys, args
        self.parse, self.writes = parse, writes
        # A request that may begin a session bears its name, for the index. With the ticket the script
        # knows that the name was written there after it was wanted there: `indexed` is None then.
        self.name, self.index = name, index
        self.indexed: bool | None = False
        self.ticket = NO_TICKET
        # The same in one script: a full engine queues nothing, so it refuses whatever is in a MULTI.
        self.beside, self.alone = beside, alone
        # Of the keys, those that are named in a cluster: while its slot moves, a session with one that
        # is on neither node cannot be reached.
        self.declared = declared
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
        # The whole text after a NOSCRIPT: it loads the script as well, in one trip.
        how = [b"EVAL", self.script.source] if self.plain else [b"EVALSHA", self.script.digest]
        return [*how, b"%d" % len(keys), *keys, *first, *self.args]


def pack(words: Sequence[bytes]) -> bytes:
    """A command as Redis reads it; every byte may be in it."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def plain_request(operation: str, *words: bytes, key: bytes, writes: bool = False) -> Request:
    """A command of Redis itself; its reply is the result."""
    return Request(operation, None, (key,), words, lambda reply, _: reply, writes=writes)


def request_for(command: Command[Any], keys: Keys) -> Request:
    """The request that carries out a command of one script."""
    return _BUILDERS[type(command)](command, keys)


def _optional(number: int | None) -> bytes:
    return b"" if number is None else b"%d" % number


def _append(command: Append, keys: Keys) -> Request:
    return Request(
        command.operation,
        scripts.APPEND,
        keys.session(command.session),
        [_optional(command.expect), b"%d" % command.ttl_ms, command.key or b"", *command.records],
        lambda reply, durability: _written(reply, durability, command),
        writes=True,
        name=command.session,
        index=keys.index,
        declared=WITHOUT_USED if command.key is None else None,
    )


def _rewrite(command: Rewrite, keys: Keys) -> Request:
    return Request(
        command.operation,
        scripts.REWRITE,
        keys.session(command.session),
        [_optional(command.expect), b"%d" % command.ttl_ms, b"", *command.records],
        lambda reply, durability: _written(reply, durability, command),
        writes=True,
        name=command.session,
        index=keys.index,
        declared=WITHOUT_USED,
    )


def _forget(command: Forget, keys: Keys) -> Request:
    logs = (command.session, *sublogs_of(command.session))
    args: list[bytes] = []
    return Request(
        command.operation,
        scripts.FORGET,
        tuple(key for log in logs for key in keys.session(log)),
        args,
        _removed,
        writes=True,
    )


def _erase_record(command: EraseRecord, keys: Keys) -> Request:
    return Request(
        command.operation,
        scripts.ERASE,
        keys.session(command.session)[:WITHOUT_USED],
        [b"%d" % command.number],
        _removed,
        writes=True,
    )


def _derive(command: Derive, keys: Keys) -> Request:
    _, sublog = sublogs_of(command.session)
    source = keys.session(command.session)
    return Request(
        command.operation,
        scripts.DERIVE,
        (*keys.session(sublog), *source[:2]),
        [b"", b"-1", command.key, command.record, b"%d" % command.source],
        lambda reply, durability: _derived(reply, durability, command),
        writes=True,
        name=sublog,
        index=keys.index,
    )


def _read_numbers(command: ReadNumbers, keys: Keys) -> Request:
    numbers = [b"%d" % number for number in command.numbers]
    names = keys.session(command.session)[:WITHOUT_USED]
    return Request(command.operation, scripts.NUMBERS, names, numbers, _numbered)


def _index_position(command: ReadPosition, keys: Keys) -> Request:
    names = keys.session(command.session)[:WITHOUT_USED]
    return Request(command.operation, scripts.POSITION, names, (), _position)


def _extend(command: Extend, keys: Keys) -> Request:
    at = (command.model.encode(), b"%d" % command.after, b"%d" % command.upto)
    return Request(
        command.operation,
        scripts.EXTEND,
        keys.session(command.session)[:WITHOUT_USED],
        [
            *(*at, b"%d" % command.floor, b"%d" % command.anew, b"%d" % index.CLIENT_MAX),
            *map(index.pack, command.entries),
        ],
        _position,
        writes=True,
    )


def _search(command: Search, keys: Keys) -> Request:
    return Request(
        command.operation,
        scripts.SEARCH,
        keys.session(command.session)[:WITHOUT_USED],
        index.question(command),
        lambda reply, _: index.found(command, _checked(reply)),
    )


def _read(command: Read, keys: Keys) -> Request:
    names = keys.session(command.session)[:WITHOUT_USED]
    bounds = [_optional(command.limit), _optional(command.before), _optional(command.after)]
    alone = Request(command.operation, scripts.READ, names, bounds, _slice)
    if command.before is None and command.after is None and command.limit != 0:
        newest = b"0" if command.limit is None else b"-%d" % command.limit
        return Request(
            command.operation,
            scripts.STAT,
            names,
            (),
            lambda reply, _: _newest(reply, command.limit),
            beside=[b"LRANGE", names[1], newest, b"-1"],
            alone=alone,
        )
    return alone


def _stat(command: StatSession, keys: Keys) -> Request:
    names = keys.session(command.session)[:WITHOUT_USED]
    return Request(command.operation, scripts.STAT, names, (), _facts)


def _export(command: ExportSession, keys: Keys) -> Request:
    return Request(command.operation, scripts.EXPORT, keys.session(command.session), (), _copy)


def stage_request(
    verb: bytes, key: bytes, ttl_ms: int, last: int, words: Sequence[bytes]
) -> Request:
    """Put words beside a session. It counts as no write: nobody sees it before the commit."""
    args = [verb, b"%d" % ttl_ms, b"%d" % last, *words]
    return Request(ImportSession.operation, scripts.STAGE, (key,), args, _fit)


def import_request(command: ImportSession, keys: Keys, staged: tuple[bytes, bytes]) -> Request:
    """Commit what was staged; the result is what the script said: imported, there or unstaged."""
    facts, rows = command.copy.facts, command.copy.rows
    floor = floor_of(command.copy, backend=BACKEND)
    return Request(
        command.operation,
        scripts.IMPORT,
        (*keys.session(command.session), *staged),
        [
            *(b"%d" % one for one in (facts.last, floor, sum(len(record) for _, record in rows))),
            *(_optional(facts.ttl_ms), _optional(facts.expires_ms)),
            *(facts.state.value.encode(), b"%d" % len(command.copy.keys)),
        ],
        lambda reply, durability: _fit(reply, durability)[0],
        writes=True,
        name=command.session,
        index=keys.index,
    )


_BUILDERS: Final[dict[type[Command[Any]], Callable[[Any, Keys], Request]]] = {
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


# Replies: the first word says what happened; a refusal was decided before anything was changed.


def ticket_of(reply: Any) -> bytes | None:
    """The ticket, if the script wants the session's name to be written to the index first."""
    if not isinstance(reply, list) or reply[:1] != [b"new"]:
        return None
    return bytes(reply[1]) if len(reply) > 1 else NEW_TICKET


def _trouble(reply: Any) -> HoldfastError | None:
    if reply[0] == b"torn":
        return Damaged(
            f"the session has {int(reply[2])} of its {int(reply[1])} messages: the engine evicted "
            "some, or another program took them. Nothing was changed. forget() makes it usable again",
            backend=BACKEND,
        )
    if reply[0] == b"lost":
        return Damaged(
            "the index of the session has lost its vectors. Nothing was changed. It is built anew",
            backend=BACKEND,
        )
    if reply[0] == b"newer":
        return FormatTooNew(
            f"the session has layout {reply[1].decode()!r}, from a later release. Nothing was "
            "changed. Upgrade holdfast",
            backend=BACKEND,
        )
    return None


def _checked(reply: Any) -> Any:
    trouble = _trouble(reply)
    if trouble is not None:
        raise trouble
    return reply


def _fit(reply: Any, _durability: Durability) -> Any:
    if _checked(reply)[0] == b"unfit":
        raise unfit(reply[1].decode(), backend=BACKEND)
    return reply


def _written(reply: Any, durability: Durability, command: Append | Rewrite) -> Written:
    if isinstance(reply, bytes):
        word, first, last = reply.split()
        return Written(int(first), int(last), durability, repeated=word == b"repeated")
    word = _checked(reply)[0]
    if word == b"conflict":
        check_expect(command.expect, int(reply[1]), operation=command.operation, backend=BACKEND)
    if word == b"full":
        raise EngineFull(
            f"the session has given {int(reply[1])} numbers and cannot give that many more. "
            "Nothing was written. Go on in a new session",
            operation=command.operation,
            backend=BACKEND,
        )
    raise NotApplied(f"the script refused: {word!r}", backend=BACKEND)


def _removed(reply: Any, _durability: Durability) -> Removed:
    _checked(reply)
    if reply[0] == b"never":
        return Removed(0, 0, scrubbed=True)
    # The append-only file keeps what was deleted until the engine rewrites it.
    return Removed(int(reply[1]), int(reply[2]), scrubbed=False, memories=int(reply[3]))


def _derived(reply: Any, durability: Durability, command: Derive) -> Written:
    if isinstance(reply, list) and reply[0] == b"orphaned":
        raise orphaned(command.source, backend=BACKEND)
    return _written(reply, durability, Append(command.session, ()))


def _numbered(reply: Any, _durability: Durability) -> list[tuple[int, bytes]]:
    _, *found = _checked(reply)
    return [(int(seq), record) for seq, record in zip(found[::2], found[1::2], strict=True)]


def _position(reply: Any, _durability: Durability) -> Position:
    _, model, upto, floor = _checked(reply)
    return Position(model.decode(), int(upto), int(floor))


def _slice(reply: Any, _durability: Durability) -> Slice:
    _, state, end, first, records = _checked(reply)
    rows = list(enumerate(records, int(first)))
    return Slice(SessionState(state.decode()), int(end), rows)


def _newest(reply: Any, limit: int | None) -> Slice:
    """The newest records, read in the same instant as the facts."""
    facts, records = _facts(reply[0], Durability.MEMORY), reply[1]
    if facts.state is not SessionState.LIVE:
        return Slice(facts.state, 0, ())
    expected = facts.last - int(reply[0][-1])
    if facts.expires_ms is not None and expected and not records:
        return Slice(SessionState.EXPIRED, 0, ())  # within the very microsecond between the two
    if facts.count != expected:
        _checked([b"torn", expected, facts.count])
    if len(records) != (expected if limit is None else min(limit, expected)):
        raise Damaged("the engine gave fewer records than it has", backend=BACKEND)
    rows = list(enumerate(records, facts.last - len(records) + 1))
    return Slice(facts.state, facts.last if expected else 0, rows)


def _facts(reply: Any, _durability: Durability) -> Facts:
    _, state, last, count, size, ttl_ms, expires_ms, _ = _checked(reply)
    times = [int(one) if one else None for one in (ttl_ms, expires_ms)]
    return Facts(SessionState(state.decode()), int(last), int(count), int(size), *times)


def _copy(reply: Any, durability: Durability) -> Copy:
    _, facts, records, used = _checked(reply)
    keys = []
    for digest, numbers in zip(used[::2], used[1::2], strict=True):
        begin, end = numbers.split()
        keys.append((digest, int(begin), int(end)))
    rows = list(enumerate(records, int(facts[-1]) + 1))
    return Copy(_facts(facts, durability), rows, sorted(keys))
