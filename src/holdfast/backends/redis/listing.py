"""The index of names: what is alive is always in it, what is not leaves when a listing meets it.

Index and session may be on different nodes, and anybody may stop between two steps. A name goes
out in three: a mark beside the index (`going`), a ticket at the session, then the name itself if
the mark is still there. A write that revives such a session finds the ticket, takes the mark
away, writes the name, and only then the session; a ticket that is not the newest counts for
nothing. So a live session is in the index, whichever of them comes first or never goes on.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.backends.redis import scripts
from holdfast.backends.redis.driver import Steps
from holdfast.backends.redis.keys import Keys
from holdfast.backends.redis.replies import NEW_TICKET
from holdfast.backends.redis.statements import (
    WITHOUT_USED,
    Statement,
    plain_statement,
    statement_for,
)
from holdfast.commands import Names, StatSession
from holdfast.errors import EngineUnreachable
from holdfast.model import Durability, SessionState

PAGE: Final = 500
TIDY: Final = 4
TIDY_EACH: Final = 2
"""Names that are looked at by each page, and for each name that is about to be gone."""
DOUBT: Final = "doubt"
DEAD: Final = frozenset({SessionState.EXPIRED, SessionState.FORGOTTEN})


class Listing:
    """The names of one namespace."""

    def __init__(
        self,
        keys: Keys,
        carry: Callable[[Sequence[Statement]], Steps[None]],
        is_sharded: Callable[[], bool],
    ) -> None:
        self._keys, self._carry, self._is_sharded = keys, carry, is_sharded

    def names(self, command: Names) -> Steps[list[bytes]]:
        """A page of session names: those alive, or with `gone` all that ever were."""
        found: list[bytes] = []
        low = b"[" + command.prefix
        if command.after is not None and command.after >= command.prefix:
            low = b"(" + command.after
        high = b"(" + command.prefix + b"\xff"  # no UTF-8 holds the byte 255
        size = min(command.limit, PAGE)
        while len(found) < command.limit:
            page = yield from self._page(low, high, size, gone=command.gone)
            states = yield from self._states(page)
            if command.gone:
                found += [name for name in page if states[name] is not SessionState.NEVER]
            else:
                found += [name for name in page if states[name] is SessionState.LIVE]
                yield from self._unlist([name for name in page if states[name] in DEAD])
            never = [name for name in page if states[name] is SessionState.NEVER]
            yield from self._unname(never, gone=command.gone)
            if len(page) < size:
                break
            low, size = b"(" + page[-1], min(2 * size, PAGE)
        return found[: command.limit]

    def add(self, statements: Sequence[Statement]) -> Steps[BaseException | None]:
        """Write the names that some statements bear into the index; why that failed, if it did."""
        index, going = self._keys.index, self._keys.going
        names = {statement.name or b"": statement.ticket for statement in statements}
        back = [name for name, ticket in names.items() if ticket != NEW_TICKET]
        # The mark first: a name that is there with its mark may be taken out again.
        steps = [plain_statement("append", b"HDEL", going, *back, key=going)] if back else []
        members = [word for name in names for word in (b"0", name)]
        steps.append(plain_statement("append", b"ZADD", index, *members, key=index, writes=True))
        for step in steps:
            yield from self._carry([step])
            if step.error is not None:
                return step.error
        return None

    def _page(self, low: bytes, high: bytes, size: int, *, gone: bool) -> Steps[list[bytes]]:
        """The next names, ascending. Those that are gone are read last: only what is no more leaves that set."""
        pages: list[list[bytes]] = []
        for key in (self._keys.index, self._keys.gone) if gone else (self._keys.index,):
            words = (b"ZRANGEBYLEX", key, low, high, b"LIMIT", b"0", b"%d" % size)
            statement = plain_statement(Names.operation, *words, key=key)
            yield from self._carry([statement])
            pages.append(statement.outcome())
        return list(dict.fromkeys(heapq.merge(*pages)))[:size]

    def _states(self, names: Sequence[bytes]) -> Steps[dict[bytes, SessionState]]:
        asked = {name: self._state_statement(name) for name in names}
        yield from self._carry([*asked.values(), *self._tidying(TIDY)])
        found = {name: self._reached(statement) for name, statement in asked.items()}
        looks = {n: statement_for(StatSession(n), self._keys) for n in names if found[n] == DOUBT}
        yield from self._carry(list(looks.values()))
        found |= {name: self._reached(look, "state") for name, look in looks.items()}
        return {name: SessionState(state) for name, state in found.items()}

    def _reached(self, statement: Statement, field: str = "") -> Any:
        """A state; of a session whose node cannot be reached, that it is not known to be gone."""
        if self._is_sharded() and isinstance(statement.error, EngineUnreachable):
            return SessionState.LIVE
        found = statement.outcome()
        return getattr(found, field) if field else found

    def _unlist(self, names: Sequence[bytes]) -> Steps[None]:
        """Let names of dead sessions go, so that the next listing need not look at them.

        A listing is right without it: whatever fails here is tried again by the next one.
        """
        if not names:
            return
        ticket = os.urandom(6).hex().encode()
        marks = [word for name in names for word in (name, ticket)]
        mark = plain_statement(
            Names.operation, b"HSET", self._keys.going, *marks, key=self._keys.going
        )
        yield from self._carry([mark])
        if mark.error is not None:
            return
        notes = [self._unlist_statement(name, ticket) for name in names]
        yield from self._carry(notes)
        out = [name for name, note in zip(names, notes, strict=True) if note.result]
        if out:
            part = self._part_statement(ticket, out)
            yield from self._carry([part, *self._tidying(TIDY_EACH * len(out))])
        # A forget may have put a digest in the place of a name meanwhile: the mark would keep the name.
        if kept := [name for name in names if name not in out]:
            going = self._keys.going
            words = (b"HDEL", going, *kept)
            yield from self._carry([plain_statement(Names.operation, *words, key=going)])

    def _unname(self, names: Sequence[bytes], *, gone: bool) -> Steps[None]:
        """Let names go of which not even a tombstone is left; in a cluster the index keeps them."""
        if names and not self._is_sharded():
            yield from self._carry([self._unname_statement(name) for name in names])
        elif names and gone:
            key = self._keys.gone
            yield from self._carry(
                [plain_statement(Names.operation, b"ZREM", key, *names, key=key)]
            )

    def _tidying(self, count: int) -> list[Statement]:
        """A look at a few names that no listing may come across: of memories, digests, those gone.

        If it fails, a later one does it.
        """
        if self._is_sharded():
            return []
        keys, args = (self._keys.index, self._keys.gone, self._keys.going), (b"%d" % count,)
        return [Statement(Names.operation, scripts.TIDIED, keys, args, lambda reply, _: reply)]

    def _unname_statement(self, name: bytes) -> Statement:
        keys = (*self._keys.session(name)[:1], self._keys.index, self._keys.gone)
        return Statement(
            Names.operation, scripts.UNNAME, keys, (name,), lambda reply, _: reply, writes=False
        )

    def _state_statement(self, name: bytes) -> Statement:
        head = self._keys.session(name)[:1]
        return Statement(Names.operation, scripts.STATE, head, (), lambda reply, _: _state(reply))

    def _unlist_statement(self, name: bytes, ticket: bytes) -> Statement:
        """Note at a session that its name may go: a write, since it must last before the name goes."""
        keys = self._keys.session(name)[:WITHOUT_USED]

        args = (ticket, b"%d" % self._keys.kept_ms)

        def may_go(reply: Any, _: Durability) -> bool:
            return bool(reply == [b"out"])

        return Statement(Names.operation, scripts.UNLIST, keys, args, may_go, writes=True)

    def _part_statement(self, ticket: bytes, names: Sequence[bytes]) -> Statement:
        keys = (self._keys.index, self._keys.gone, self._keys.going)
        return Statement(
            Names.operation, scripts.PART, keys, [ticket, *names], lambda reply, _: reply
        )


def _state(reply: Any) -> str:
    """What was damaged, or written by a later release, cannot be looked into, but it is there."""
    state: str = reply[0].decode()
    return SessionState.LIVE if state in {"newer", "damaged"} else state
