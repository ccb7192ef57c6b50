"""Long-term memory in both APIs of a store.

`memory_operations` and `prompt_operations` say what each operation does. They cost as much as
`import holdfast`, so they are imported when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import operations
from holdfast.commands import AsyncBackend, Backend
from holdfast.model import Ack, Context, Erased, History, Recalled, Source
from holdfast.runner import Index, Steps, execute, run_commands, run_commands_async

if TYPE_CHECKING:
    from holdfast.recall.context import Count
    from holdfast.recall.indexer import Carrier, Indexer
    from holdfast.recall.memory_operations import Filter, Models


R = TypeVar("R")


class _Memory:
    """What both APIs need for it: where the index is, and which models there are."""

    _index: Index | None
    _chosen: Models | None
    _ttl_ms: int
    _background_indexing: bool
    _indexer: Indexer | None = None

    @property
    def _models(self) -> Models:
        from holdfast.recall import memory_operations

        if self._chosen is None:
            self._chosen = memory_operations.models(None, None)
        return self._chosen

    def _check_open(self) -> None:
        raise NotImplementedError

    def _carrier(self) -> Carrier:
        raise NotImplementedError

    def _start_indexing(self) -> None:
        """From here on a thread keeps the index up to date; apps that only append pay nothing."""
        if self._background_indexing and self._indexer is None:
            from holdfast.recall.indexer import Indexer

            # Of two threads that come here at once, both use the same one.
            indexer = Indexer(self._carrier(), self._index, self._models.embedder)
            self.__dict__.setdefault("_indexer", indexer)

    def _grown(self, *logs: bytes) -> None:
        """Tell the indexer, if there is one."""
        if self._indexer is not None:
            for log in logs:
                self._indexer.note(log)

    def _aside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._indexer is None else self._indexer.aside()


class LongTerm(_Memory):
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
        from holdfast.recall import memory_operations

        self._check_open()
        self._start_indexing()
        command = memory_operations.remember(scope, text, meta, key, source, self._ttl_ms)
        written = self._backend.execute(command)
        self._grown(command.session)
        return operations.ack(scope, written)

    def memories(
        self,
        scope: str,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> History:
        """What was remembered in a scope, as messages with numbers of their own; see `history`.

        Each one's `extra` has its `meta`, and `from`, its source, if it has them. What was erased
        is not there; the numbers of the others stay the same.
        """
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.memories(scope, limit, before, after)
        return run_commands(steps, self._backend, self._index)

    def forget_memory(self, scope: str, number: int) -> Erased:
        """Erase one memory for good: its text, and what the index has of it. Nothing brings it back.

        Its number is not given again, and its key stays used: a retry of the same `remember`
        adds nothing. `.memories` is 1, or 0 if there was none of that number, which is no error.
        """
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.forget_memory(scope, number, apart=self._index is not None)
        return self._run(steps)

    def summaries(self, session: str) -> History:
        """The summaries of a session, oldest first; `extra["from"]` says which numbers each tells."""
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.summaries_of(session)
        return run_commands(steps, self._backend, self._index)

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

        The log is indexed first, so what was acknowledged before this call is found;
        where that takes too long, `.behind` says how many records are missing (recallable).
        `since` keeps what was made at that time or later; `filter` is fields that a
        hit's `meta` must have, or a function of a hit. Raises if the embedder or the index
        does not work: appends go on meanwhile, and nothing of them is missed later.
        """
        from holdfast.recall import memory_operations

        self._check_open()
        self._start_indexing()
        found = self._run(memory_operations.recall(self._models, scope, query, k, since, filter))
        if found.behind:
            self._grown(*memory_operations.logs_of(scope))
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
        by default the session. `count` counts the tokens of a text; without it they
        are estimated, rather too many.
        """
        from holdfast.recall import memory_operations, prompt_operations

        self._check_open()
        self._start_indexing()
        steps = prompt_operations.context(
            self._models, session, query, tokens, scope=scope, k=k, count=count
        )
        found = self._run(steps)
        if found.behind:
            self._grown(*memory_operations.logs_of(scope or session))
        return found

    def summarize(self, session: str, *, keep: int = 20) -> Ack | None:
        """Bring the running summary up to all but the newest `keep`; None if it is there already.

        It is a record that bears the numbers it was made from, written once however often a
        crash repeats this, and not at all if they were forgotten meanwhile.
        """
        from holdfast.recall import prompt_operations

        self._check_open()
        return self._run(prompt_operations.summarize(self._models, session, keep))

    def index_lag(self, scope: str) -> int:
        """How many records of a scope its index lacks."""
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.index_lag(self._models, scope)
        return run_commands(steps, self._backend, self._index)

    def wait_for(self, scope: str, *, seq: int | Ack | None = None, timeout_s: float = 60.0) -> int:
        """Index all that is in a scope now; return how many records that were.

        With `seq`, a number or an ack, it returns when the index has come at least that far.
        `EngineUnreachable` if the time is up before: what was done until then stays done.
        """
        from holdfast.recall import memory_operations

        self._check_open()
        return self._run(memory_operations.wait_for(self._models, scope, seq, timeout_s))

    def reindex(self, scope: str | None = None) -> int:
        """Rebuild the index of a scope from the log, or of all; how many records it has read."""
        from holdfast.recall import memory_operations

        self._check_open()
        return self._run(memory_operations.reindex(self._models, scope))

    def _run(self, steps: Steps[R]) -> R:
        with self._aside():
            return run_commands(steps, self._backend, self._index)

    def _carrier(self) -> Carrier:
        from holdfast.recall.indexer import on_this_thread

        return on_this_thread(self._backend)


class AsyncLongTerm(_Memory):
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
        from holdfast.recall import memory_operations

        self._check_open()
        self._start_indexing()
        command = memory_operations.remember(scope, text, meta, key, source, self._ttl_ms)
        written = await execute(command, self._backend)
        self._grown(command.session)
        return operations.ack(scope, written)

    async def memories(
        self,
        scope: str,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> History:
        """See `Store.memories`."""
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.memories(scope, limit, before, after)
        return await run_commands_async(steps, self._backend, self._index)

    async def forget_memory(self, scope: str, number: int) -> Erased:
        """See `Store.forget_memory`."""
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.forget_memory(scope, number, apart=self._index is not None)
        return await self._run(steps)

    async def summaries(self, session: str) -> History:
        """See `Store.summaries`."""
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.summaries_of(session)
        return await run_commands_async(steps, self._backend, self._index)

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
        from holdfast.recall import memory_operations

        self._check_open()
        self._start_indexing()
        found = await self._run(
            memory_operations.recall(self._models, scope, query, k, since, filter)
        )
        if found.behind:
            self._grown(*memory_operations.logs_of(scope))
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
        from holdfast.recall import memory_operations, prompt_operations

        self._check_open()
        self._start_indexing()
        steps = prompt_operations.context(
            self._models, session, query, tokens, scope=scope, k=k, count=count
        )
        found = await self._run(steps)
        if found.behind:
            self._grown(*memory_operations.logs_of(scope or session))
        return found

    async def summarize(self, session: str, *, keep: int = 20) -> Ack | None:
        """See `Store.summarize`."""
        from holdfast.recall import prompt_operations

        self._check_open()
        return await self._run(prompt_operations.summarize(self._models, session, keep))

    async def index_lag(self, scope: str) -> int:
        """See `Store.index_lag`."""
        from holdfast.recall import memory_operations

        self._check_open()
        steps = memory_operations.index_lag(self._models, scope)
        return await run_commands_async(steps, self._backend, self._index)

    async def wait_for(
        self, scope: str, *, seq: int | Ack | None = None, timeout_s: float = 60.0
    ) -> int:
        """See `Store.wait_for`."""
        from holdfast.recall import memory_operations

        self._check_open()
        return await self._run(memory_operations.wait_for(self._models, scope, seq, timeout_s))

    async def reindex(self, scope: str | None = None) -> int:
        """See `Store.reindex`."""
        from holdfast.recall import memory_operations

        self._check_open()
        return await self._run(memory_operations.reindex(self._models, scope))

    async def _run(self, steps: Steps[R]) -> R:
        with self._aside():
            return await run_commands_async(steps, self._backend, self._index)

    def _carrier(self) -> Carrier:
        from holdfast.recall.indexer import in_loop

        return in_loop(self._backend)
