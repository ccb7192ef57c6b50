"""Forgetting, in both APIs: one session, or all that begin alike or were not written to for long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, overload

from holdfast import limits, operations
from holdfast.commands import (
    MEMORIES,
    Clean,
    Facts,
    Forget,
    Names,
    Removed,
    StatSession,
    sublogs_of,
)
from holdfast.errors import Conflict, HoldfastError, UsageError
from holdfast.model import Erased, Forgotten, SessionState
from holdfast.runner import Index, Steps

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    R = TypeVar("R")

PAGE: Final = 100
"""Sessions that are erased between two calls of `progress`."""
GONE: Final = (SessionState.NEVER, SessionState.FORGOTTEN)

Now = bool | Literal["full"]
Age = datetime | timedelta | float
Progress = Callable[[Forgotten], object]


class Forgetting:
    """The part of `Store` that erases."""

    _index: Index | None

    if TYPE_CHECKING:

        def _check_open(self) -> None: ...
        def _run(self, steps: Steps[R]) -> R: ...

    @overload
    def forget(self, session: str, *, now: Now = False) -> Erased: ...
    @overload
    def forget(
        self,
        session: None = None,
        *,
        now: Now = False,
        prefix: str | None = None,
        older_than: Age | None = None,
        progress: Progress | None = None,
    ) -> Forgotten: ...
    def forget(
        self,
        session: str | None = None,
        *,
        now: Now = False,
        prefix: str | None = None,
        older_than: Age | None = None,
        progress: Progress | None = None,
    ) -> Erased | Forgotten:
        """Erase a session for good, and say how much was erased.

        Nothing brings it back: not a retry of an earlier append, not a late write that
        expects what was there, not a restart, not an index (forgotten). Numbers go on where
        they were. A plain append later begins a new session, with nothing of the old in it.
        What was remembered in this scope, summaries and vectors go with it.

        Files of the engine may hold copies for longer: `Erased.left` says which. `now=True` then cleans
        them as far as the engine can while others work, in bounded time; `now="full"` also in
        ways that keep others waiting (PostgreSQL: `VACUUM FULL`). Both leave a digest in the place
        of the id, by which the session is known to be forgotten (not on Redis Cluster).

        Without `session`, every session and scope is erased whose name begins with `prefix`, or those
        of them to which nothing was written for `older_than` (a timedelta, seconds, or a datetime to
        name the instant), by the engine's clock. Each is erased by itself, so that a kill leaves each
        erased or not, and the same call goes on. `progress` is called with the receipt so far, after
        each page. One that is written to meanwhile is not too old, and stays. With `now` the files are
        cleaned once, at the end, also of what was forgotten before and not cleaned.
        """
        self._check_open()
        return self._run(
            _forget(session, now, prefix, older_than, progress, apart=self._index is not None)
        )


class AsyncForgetting:
    """The same, awaited."""

    _index: Index | None

    if TYPE_CHECKING:

        def _check_open(self) -> None: ...
        def _run(self, steps: Steps[R]) -> Coroutine[Any, Any, R]: ...

    @overload
    async def forget(self, session: str, *, now: Now = False) -> Erased: ...
    @overload
    async def forget(
        self,
        session: None = None,
        *,
        now: Now = False,
        prefix: str | None = None,
        older_than: Age | None = None,
        progress: Progress | None = None,
    ) -> Forgotten: ...
    async def forget(
        self,
        session: str | None = None,
        *,
        now: Now = False,
        prefix: str | None = None,
        older_than: Age | None = None,
        progress: Progress | None = None,
    ) -> Erased | Forgotten:
        """See `Store.forget`."""
        self._check_open()
        return await self._run(
            _forget(session, now, prefix, older_than, progress, apart=self._index is not None)
        )


def _forget(
    session: str | None,
    now: Now,
    prefix: str | None,
    older_than: Age | None,
    progress: Progress | None,
    *,
    apart: bool,
) -> Steps[Erased | Forgotten]:
    many = prefix is not None or older_than is not None
    if (session is not None) == many:
        raise UsageError("forget takes a session, or prefix or older_than; nothing was sent")
    if session is not None:
        removed = yield from _one(operations.forget(session, now), apart=apart)
        if now and removed.left:
            removed.left = yield from _cleaned(now, removed.left, apart=apart)
        return operations.erased(session, removed)
    operations.check_now(now)
    command = Forget(b"", hide=bool(now))
    begin = operations.text_bytes(prefix or "", "prefix", limits.SESSION_BYTES_MAX)
    _check_age(older_than)
    erased: list[str] = []  # a receipt is made of them once a page: it has all of their names
    total = Forgotten()
    for sublog in (b"", MEMORIES):  # a scope may have memories only
        after: bytes | None = None
        while names := (yield Names(sublog + begin, after, PAGE, gone=True)):
            page = Forgotten()
            for name in names:
                own = replace(command, session=name[len(sublog) :])
                page = yield from _next(page, own, older_than, sublog, apart=apart)
            after = names[-1]
            erased += page.sessions
            total = _sum(total, page)
            if progress is not None:
                progress(replace(total, sessions=tuple(erased)))
    if now:  # once for all, and for what a call before this one erased and did not come to clean
        left = yield from _cleaned(now, total.left, apart=apart and bool(erased))
        total = replace(total, left=left)
    return replace(total, sessions=tuple(erased))


def _cleaned(now: Now, left: tuple[str, ...], *, apart: bool) -> Steps[tuple[str, ...]]:
    """Where copies are left after the files were cleaned. Nothing here may become an error of the forget."""
    try:
        removed: Removed = yield Clean(full=now == "full")
    except HoldfastError:
        return left
    if apart:
        from holdfast.recall.memory_operations import IN_THE_INDEX  # noqa: PLC0415 - as below

        return (*removed.left, IN_THE_INDEX)
    return removed.left


def _one(command: Forget, *, apart: bool) -> Steps[Removed]:
    if apart:
        from holdfast.recall import memory_operations  # noqa: PLC0415 - it costs an import

        return (yield from memory_operations.forget(command))
    removed: Removed = yield command
    return removed


def _next(
    receipt: Forgotten, command: Forget, older_than: Age | None, sublog: bytes, *, apart: bool
) -> Steps[Forgotten]:
    """The receipt after one more; one of which nothing is left is only counted."""
    log: Facts = yield StatSession(command.session)
    beside: Facts = yield StatSession(sublogs_of(command.session)[0])
    if sublog and log.state is not SessionState.NEVER:
        return receipt  # it had its turn
    there = [facts for facts in (log, beside) if facts.state not in GONE]
    before = replace(receipt, before=receipt.before + 1)
    if not there and not command.hide:
        return before
    if not there:  # an earlier one left its name
        command = replace(command, lasts=(log.last, beside.last))
    elif older_than is not None:
        if not all(facts.written_ms for facts in there):
            return replace(receipt, unknown=receipt.unknown + 1)
        newest_ms = max(facts.written_ms for facts in there) + 1  # that millisecond had begun
        if newest_ms > _limit_ms(older_than, log.now_ms):
            return replace(receipt, kept=receipt.kept + 1)
        command = replace(command, lasts=(log.last, beside.last))
    try:
        removed = yield from _one(command, apart=apart)
    except Conflict:
        return replace(receipt, kept=receipt.kept + 1)
    [name] = operations.texts([command.session])
    one = Forgotten((), removed.messages, removed.memories, removed.bytes, left=removed.left)
    return replace(_sum(receipt, one), sessions=(*receipt.sessions, name)) if there else before


def _sum(receipt: Forgotten, more: Forgotten) -> Forgotten:
    """Both together, but for the names of the sessions."""
    return Forgotten(
        (),
        receipt.messages + more.messages,
        receipt.memories + more.memories,
        receipt.bytes + more.bytes,
        receipt.before + more.before,
        receipt.kept + more.kept,
        receipt.unknown + more.unknown,
        tuple(dict.fromkeys((*receipt.left, *more.left))),
    )


def _check_age(older_than: object) -> None:
    if older_than is None:
        return
    if isinstance(older_than, datetime):
        if older_than.tzinfo is None:
            raise UsageError("older_than must say its time zone; nothing was sent")
        return
    age_s = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    number = isinstance(age_s, int | float) and not isinstance(age_s, bool)
    if not (number and 0 <= age_s <= limits.TTL_S_MAX):  # type: ignore[operator]
        raise UsageError(
            f"older_than must be a timedelta, seconds or a datetime, not {older_than!r}; nothing "
            "was sent"
        )


def _limit_ms(older_than: Age, now_ms: int) -> float:
    if isinstance(older_than, datetime):
        return older_than.timestamp() * 1000
    age_s = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    return now_ms - age_s * 1000
