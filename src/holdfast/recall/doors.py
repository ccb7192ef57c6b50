"""Long-term memory on both doors of a store. See `courses` for what each operation does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast import operations
from holdfast.commands import AsyncBackend, Backend
from holdfast.drive import Index, carry_out, walk, walk_async
from holdfast.model import Ack, Context, Recalled, Source

if TYPE_CHECKING:
    from holdfast.recall.context import Count
    from holdfast.recall.courses import Filter, Mind
    from holdfast.recall.follower import Carrier, Follower


def courses() -> ModuleType:
    """Every operation of this room, which is entered when it is first used."""
    from holdfast.recall import courses  # noqa: PLC0415 - it costs as much as `import holdfast`

    return courses


class _Thinking:
    """What both doors need for it: where the index is, and what to think with."""

    _index: Index | None
    _chosen: Mind | None
    _ttl_ms: int
    _follows: bool
    _follower: Follower | None = None

    @property
    def _mind(self) -> Mind:
        if self._chosen is None:
            self._chosen = courses().mind(None, None)
        return self._chosen

    def _check_open(self) -> None:
        raise NotImplementedError

    def _carrier(self) -> Carrier:
        raise NotImplementedError

    def _start_following(self) -> None:
        """From here on the index follows by itself: nobody who only appends pays for that."""
        if self._follows and self._follower is None:
            from holdfast.recall.follower import Follower  # noqa: PLC0415 - as above

            # Of two threads that come here at once, both use the same one.
            follower = Follower(self._carrier(), self._index, self._mind.embedder)
            self.__dict__.setdefault("_follower", follower)

    def _grown(self, *logs: bytes) -> None:
        """Tell the follower, if there is one."""
        if self._follower is not None:
            for log in logs:
                self._follower.note(log)

    def _aside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._follower is None else self._follower.aside()


class LongTerm(_Thinking):
    """The part of `Store` that remembers beyond a conversation."""

    _backend: Backend

    def remember(
        self,
        scope: str,
        text: str,
        *,
        meta: Mapping[str, Any] | None = None,
        key: str | None = None,
        source: Source | None = None,
    ) -> Ack:
        """Keep a text for later questions in this scope (a user, a session); safe when it returns.

        A memory is a record in a log beside the session of that name, with numbers of its
        own: durable, ordered, exactly once with a `key`, exported, forgotten with the scope.
        `source` says which messages it was made from; the same text from the same source
        is kept once. `meta` is JSON, for `filter`.
        """
        self._check_open()
        self._start_following()
        command = courses().remember(scope, text, meta, key, source, self._ttl_ms)
        written = self._backend.execute(command)
        self._grown(command.session)
        return operations.ack(scope, written)

    def recall(
        self,
        scope: str,
        query: str,
        *,
        k: int = 5,
        since: datetime | None = None,
        filter: Filter | None = None,  # noqa: A002 - the word that everybody uses for it
    ) -> Recalled:
        """The k best of what was said and remembered in a scope, by meaning and by words.

        The index follows the log first, so what was acknowledged before this call is found;
        where that takes too long, `.behind` says how many records are missing (recallable).
        `since` keeps what was made at that time or later; `filter` is fields that a
        hit's `meta` must have, or a function of a hit. Raises if the embedder or the index
        does not work: appends go on meanwhile, and nothing of them is missed later.
        """
        self._check_open()
        self._start_following()
        found: Recalled = self._walk(courses().recall(self._mind, scope, query, k, since, filter))
        if found.behind:
            self._grown(*courses().logs_of(scope))
        return found

    def context(
        self,
        session: str,
        query: str,
        *,
        tokens: int,
        scope: str | None = None,
        k: int = 8,
        count: Count | None = None,
    ) -> Context:
        """A prompt of at most so many tokens: system, memories, a running summary, newest turns.

        All of one instant. Tool calls and their results come together or not at all. What
        neither a turn nor the summary covers is named in `.left_out`; older turns that do not
        fit are summarized first, in a record of their own. Memories are those of `scope`,
        which is the session unless told. `count` counts the tokens of a text; without it they
        are estimated, rather too many.
        """
        self._check_open()
        self._start_following()
        course = courses().context(
            self._mind, session, query, tokens, scope=scope, k=k, count=count
        )
        found: Context = self._walk(course)
        if found.behind:
            self._grown(*courses().logs_of(scope or session))
        return found

    def summarize(self, session: str, *, keep: int = 20) -> Ack | None:
        """Bring the running summary up to all but the newest `keep`; None if it is there already.

        It is a record that bears the numbers it was made from, written once however often a
        crash repeats this, and not at all if they were forgotten meanwhile.
        """
        self._check_open()
        written: Ack | None = self._walk(courses().summarize(self._mind, session, keep))
        return written

    def index_lag(self, scope: str) -> int:
        """How many records of a scope its index has not followed yet."""
        self._check_open()
        course = courses().index_lag(self._mind, scope)
        lag: int = walk(course, self._backend, self._index)
        return lag

    def wait_for(self, scope: str, *, seq: int | Ack | None = None, timeout_s: float = 60.0) -> int:
        """Let the index follow all that is in a scope now; how many records that were.

        With `seq`, a number or an ack, it returns when the index has followed at least that far.
        `EngineUnreachable` if the time is up before: what was done until then stays done.
        """
        self._check_open()
        done: int = self._walk(courses().wait_for(self._mind, scope, seq, timeout_s))
        return done

    def reindex(self, scope: str | None = None) -> int:
        """Build the index of a scope anew from the log, or of all; how many records it has read."""
        self._check_open()
        done: int = self._walk(courses().reindex(self._mind, scope))
        return done

    def _walk(self, course: Any) -> Any:
        with self._aside():
            return walk(course, self._backend, self._index)

    def _carrier(self) -> Carrier:
        from holdfast.recall.follower import on_this_thread  # noqa: PLC0415 - as above

        return on_this_thread(self._backend)


class AsyncLongTerm(_Thinking):
    """The part of `AsyncStore` that remembers beyond a conversation."""

    _backend: AsyncBackend

    async def remember(
        self,
        scope: str,
        text: str,
        *,
        meta: Mapping[str, Any] | None = None,
        key: str | None = None,
        source: Source | None = None,
    ) -> Ack:
        """See `Store.remember`."""
        self._check_open()
        self._start_following()
        command = courses().remember(scope, text, meta, key, source, self._ttl_ms)
        written = await carry_out(command, self._backend)
        self._grown(command.session)
        return operations.ack(scope, written)

    async def recall(
        self,
        scope: str,
        query: str,
        *,
        k: int = 5,
        since: datetime | None = None,
        filter: Filter | None = None,  # noqa: A002 - the word that everybody uses for it
    ) -> Recalled:
        """See `Store.recall`."""
        self._check_open()
        self._start_following()
        found: Recalled = await self._walk(
            courses().recall(self._mind, scope, query, k, since, filter)
        )
        if found.behind:
            self._grown(*courses().logs_of(scope))
        return found

    async def context(
        self,
        session: str,
        query: str,
        *,
        tokens: int,
        scope: str | None = None,
        k: int = 8,
        count: Count | None = None,
    ) -> Context:
        """See `Store.context`."""
        self._check_open()
        self._start_following()
        course = courses().context(
            self._mind, session, query, tokens, scope=scope, k=k, count=count
        )
        found: Context = await self._walk(course)
        if found.behind:
            self._grown(*courses().logs_of(scope or session))
        return found

    async def summarize(self, session: str, *, keep: int = 20) -> Ack | None:
        """See `Store.summarize`."""
        self._check_open()
        written: Ack | None = await self._walk(courses().summarize(self._mind, session, keep))
        return written

    async def index_lag(self, scope: str) -> int:
        """See `Store.index_lag`."""
        self._check_open()
        course = courses().index_lag(self._mind, scope)
        lag: int = await walk_async(course, self._backend, self._index)
        return lag

    async def wait_for(
        self, scope: str, *, seq: int | Ack | None = None, timeout_s: float = 60.0
    ) -> int:
        """See `Store.wait_for`."""
        self._check_open()
        done: int = await self._walk(courses().wait_for(self._mind, scope, seq, timeout_s))
        return done

    async def reindex(self, scope: str | None = None) -> int:
        """See `Store.reindex`."""
        self._check_open()
        done: int = await self._walk(courses().reindex(self._mind, scope))
        return done

    async def _walk(self, course: Any) -> Any:
        with self._aside():
            return await walk_async(course, self._backend, self._index)

    def _carrier(self) -> Carrier:
        from holdfast.recall.follower import in_loop  # noqa: PLC0415 - as above

        return in_loop(self._backend)
