"""The contract: every operation of a store, with what it promises.

`Store` and `AsyncStore` are the sync and the async API of one implementation (`operations.py`). The promises
are named by their ids: durable, ordered, atomic, exactly-once, fresh, snapshot, isolated,
faithful, expiring, forgotten, loud, recallable.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from holdfast import operations, transfer
from holdfast.commands import Append, AsyncBackend, Backend, ExportSession, Written
from holdfast.erasure import AsyncForgetting, Forgetting
from holdfast.errors import EngineUnreachable, StoreClosed, StoredDataError
from holdfast.model import Ack, Durability, History, Loaded, Message, Retention, Stat
from holdfast.recall.memory_api import AsyncLongTerm, LongTerm
from holdfast.runner import Index, Steps, execute, run_commands, run_commands_async
from holdfast.turns import Turns

if TYPE_CHECKING:
    from holdfast.recall.memory_operations import Models
    from holdfast.retention import Outlines


class _Settings(TypedDict, total=False):
    ttl_s: float | None
    models: Models | None
    index: Index | None
    background_indexing: bool | None
    retention: Retention | None


class _StoreBase:
    """What both APIs have: a backend, what writes are given by default, what recall thinks with."""

    def __init__(self, backend: Backend | AsyncBackend, **settings: Unpack[_Settings]) -> None:
        self._name = backend.name
        self._durability = backend.durability
        self._ttl_ms = operations.default_ttl_ms(settings.get("ttl_s"))
        self._retention = operations.check_retention(settings.get("retention"))
        self._outlines: Outlines | None = None
        self._chosen = settings.get("models")
        self._index = settings.get("index")
        self._background_indexing = settings.get("background_indexing") is not False
        self._closed = False

    def _kept(
        self, command: Append, retention: Retention | EllipsisType | None
    ) -> Steps[Written] | None:
        """An append that cuts off what is not to be kept, as steps; None: it is only that command."""
        asked = self._retention if retention is ... else operations.check_retention(retention)
        if asked is None:
            return None
        if self._outlines is None:
            from holdfast.retention import Outlines  # noqa: PLC0415 - apps that keep all do without

            self._outlines = Outlines()
        return self._outlines.append(command, asked)

    @property
    def durability(self) -> Durability:
        """What every ack of this store survives, at least."""
        return self._durability

    @property
    def backend(self) -> str:
        """The name of the engine that this store writes to."""
        return self._name

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<{type(self).__name__} {self._name} {self._durability.name} {state}>"

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")


class Store(_StoreBase, LongTerm, Forgetting):
    """Conversations that are not forgotten. Safe to share between threads.

    Every error says whether the write happened: `UsageError` and `NotApplied` mean that it
    did not, `OutcomeUnknown` that nobody can know; retry that one with the same key (loud).
    """

    def __init__(self, backend: Backend, **settings: Unpack[_Settings]) -> None:
        super().__init__(backend, **settings)
        self._backend = backend
        if settings.get("background_indexing"):
            self._start_indexing()

    def append(
        self,
        session: str,
        messages: Message | Iterable[Message],
        *,
        key: str | None = None,
        expect: int | None = None,
        ttl_s: float | EllipsisType | None = ...,
        retention: Retention | EllipsisType | None = ...,
    ) -> Ack:
        """Add messages to the end of a session, all or none, and return once they are safe.

        The ack's level names what they survive (durable). Their numbers are given inside
        the write, so whatever was acknowledged before this call began stands before it
        (ordered). A batch is never seen in part (atomic). With a `key` that this session has
        seen, nothing is added and the first ack is returned, even after a forget, for as long as
        `connect` says in `keys_kept_s` (exactly-once, forgotten). `expect=n` appends only if the session ends at n, 0 being
        "nothing visible"; otherwise `Conflict`.

        `ttl_s` sets the session's time to live and restarts it (expiring); None means
        for ever. Left out, the store's own applies, and without one the session's last.

        `retention` cuts off old messages of this session in the same write; None keeps them all.
        Left out, the store's own applies. Keys of what was cut off stay used.
        """
        self._check_open()
        ttl_ms = self._ttl_ms if ttl_s is ... else operations.ttl_ms(ttl_s)
        command = operations.append(session, messages, key, expect, ttl_ms)
        steps = self._kept(command, retention)
        if steps is None:
            written = self._backend.execute(command)
        else:
            written = run_commands(steps, self._backend, None)
        self._grown(command.session)
        return operations.ack(session, written)

    def history(
        self,
        session: str,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        seen: Ack | None = None,
        turns: Turns = "all",
    ) -> History:
        """The messages of a session at one instant, oldest first.

        `limit` takes the newest so many (snapshot). `before` and `after` are numbers and
        bound the page on both sides; a page with `after` takes the oldest so many instead,
        for reading on. Pages do not shift when others write. Every write acknowledged
        before this call is in it (fresh); where replicas are read, every write of this
        client, and that of another whose ack is passed as `seen`. Records that cannot be
        read are named in `.damaged` and hide nothing else (faithful). An empty history says
        in `.state` why.

        A model refuses a tool call without its result, which a crash can leave behind, and a
        result without its call. `turns="whole"` leaves them out; "repaired" puts a result after
        such a call that says that it was interrupted. That is not stored, and has no number:
        append it, if you want it to stay. A result that came after another message had been
        written is refused as well: it is left out with its call, or put behind its call.
        """
        self._check_open()
        command = operations.read(session, limit, before, after, seen, turns)
        return operations.history(self._backend.execute(command), turns)

    def messages(self, session: str, numbers: Iterable[int]) -> History:
        """The messages of these numbers that are visible, ascending, at one instant.

        A number that is not there is left out, and is no error. `.last` is 0: this does not
        look where the session ends.
        """
        self._check_open()
        return operations.picked(self._backend.execute(operations.pick(session, numbers)))

    def rewrite(
        self, session: str, messages: Message | Iterable[Message], *, expect: int | None = None
    ) -> Ack:
        """Put these messages in the place of all that is visible, in one step.

        For edits, compaction and summaries. A reader sees the old history or the new one,
        never a mixture (atomic). The new messages get new numbers. `expect` as in `append`.
        """
        self._check_open()
        command = operations.rewrite(session, messages, expect, self._ttl_ms)
        written = self._backend.execute(command)
        self._grown(command.session)
        return operations.ack(session, written)

    def sessions(
        self, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[str]:
        """Ids of live sessions, ascending; the next page begins `after` the last of this one."""
        self._check_open()
        return operations.texts(self._backend.execute(operations.names(prefix, after, limit)))

    def stat(self, session: str, *, open_calls: bool = False) -> Stat:
        """The state of a session (never, live, expired, forgotten) without its messages.

        With `open_calls` they are read, and the tool calls without a result are counted.
        """
        self._check_open()
        facts = self._backend.execute(operations.stat_session(session))
        whole = operations.read(session, None, None, None)
        return operations.stat(session, facts, self._backend.execute(whole) if open_calls else None)

    def export(self, *, prefix: str = "") -> Iterator[str]:
        """Every session as JSON Lines, exactly: any backend can `load` them.

        Each session is written as it was at one instant. Damaged records, used keys and
        tombstones move too, so that what was forgotten stays forgotten; with a prefix not those that
        bear a digest. A session that cannot be read as a whole is left out; after the last line,
        `Damaged` names those, or `EngineUnreachable`.
        """
        writer = transfer.Writer()
        yield writer.header()
        for sublog in operations.exported_logs(prefix):
            for name in self._all_names(sublog, prefix):
                self._check_open()
                try:
                    copy = self._backend.execute(ExportSession(name))
                except (StoredDataError, EngineUnreachable) as error:
                    writer.leave_out(name, error, self._backend)
                else:
                    yield from writer.session(name, copy)
        yield writer.trailer()
        writer.finish()

    def _all_names(self, sublog: bytes, prefix: str) -> Iterator[bytes]:
        after: bytes | None = None
        while True:
            self._check_open()
            names = self._backend.execute(operations.all_names(sublog, prefix, after))
            if not names:
                return
            yield from names
            after = names[-1]

    def load(self, lines: Iterable[str]) -> Loaded:
        """Write exported sessions under their old numbers, each one all or none.

        A session that is there already and equal is left alone, so that an interrupted load
        can be repeated. One that differs raises `Conflict`; sessions before it stay loaded. One
        whose time to live is over by now is loaded as expired: its numbers and keys stay
        used, its messages do not come back. A line that no export can hold is a `UsageError`.
        Every error says what was loaded.
        """
        reader = transfer.Reader()
        with reader.explaining():
            for line in lines:
                if (moved := reader.feed(line)) is not None:
                    self._check_open()
                    reader.count(
                        moved, written=self._backend.execute(operations.import_session(moved))
                    )
            return reader.finish()

    def close(self) -> None:
        """Finish what is under way and let go of the engine. Closing twice is closing once."""
        self._closed = True
        if self._indexer is not None:
            self._indexer.close()
        self._backend.close()
        if self._index is not None:
            self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncStore(_StoreBase, AsyncLongTerm, AsyncForgetting):
    """The same surface, awaited. See `Store` for what each operation promises.

    Cancelling an await never leaves a write half known: a write that was begun is carried
    to its end first, and the `CancelledError` bears its outcome as a note.
    """

    def __init__(self, backend: AsyncBackend, **settings: Unpack[_Settings]) -> None:
        super().__init__(backend, **settings)
        self._backend = backend
        if settings.get("background_indexing"):
            self._start_indexing()

    async def append(
        self,
        session: str,
        messages: Message | Iterable[Message],
        *,
        key: str | None = None,
        expect: int | None = None,
        ttl_s: float | EllipsisType | None = ...,
        retention: Retention | EllipsisType | None = ...,
    ) -> Ack:
        """See `Store.append`."""
        self._check_open()
        ttl_ms = self._ttl_ms if ttl_s is ... else operations.ttl_ms(ttl_s)
        command = operations.append(session, messages, key, expect, ttl_ms)
        steps = self._kept(command, retention)
        if steps is None:
            written = await execute(command, self._backend)
        else:
            written = await run_commands_async(steps, self._backend, None)
        self._grown(command.session)
        return operations.ack(session, written)

    async def history(
        self,
        session: str,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        seen: Ack | None = None,
        turns: Turns = "all",
    ) -> History:
        """See `Store.history`."""
        self._check_open()
        command = operations.read(session, limit, before, after, seen, turns)
        return operations.history(await execute(command, self._backend), turns)

    async def messages(self, session: str, numbers: Iterable[int]) -> History:
        """See `Store.messages`."""
        self._check_open()
        return operations.picked(await execute(operations.pick(session, numbers), self._backend))

    async def rewrite(
        self, session: str, messages: Message | Iterable[Message], *, expect: int | None = None
    ) -> Ack:
        """See `Store.rewrite`."""
        self._check_open()
        command = operations.rewrite(session, messages, expect, self._ttl_ms)
        written = await execute(command, self._backend)
        self._grown(command.session)
        return operations.ack(session, written)

    async def sessions(
        self, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[str]:
        """See `Store.sessions`."""
        self._check_open()
        found = await execute(operations.names(prefix, after, limit), self._backend)
        return operations.texts(found)

    async def stat(self, session: str, *, open_calls: bool = False) -> Stat:
        """See `Store.stat`."""
        self._check_open()
        facts = await execute(operations.stat_session(session), self._backend)
        whole = operations.read(session, None, None, None)
        said = await execute(whole, self._backend) if open_calls else None
        return operations.stat(session, facts, said)

    async def export(self, *, prefix: str = "") -> AsyncIterator[str]:
        """See `Store.export`."""
        writer = transfer.Writer()
        yield writer.header()
        for sublog in operations.exported_logs(prefix):
            async for name in self._all_names(sublog, prefix):
                self._check_open()
                try:
                    copy = await execute(ExportSession(name), self._backend)
                except (StoredDataError, EngineUnreachable) as error:
                    writer.leave_out(name, error, self._backend)
                    continue
                for line in writer.session(name, copy):
                    yield line
        yield writer.trailer()
        writer.finish()

    async def _all_names(self, sublog: bytes, prefix: str) -> AsyncIterator[bytes]:
        after: bytes | None = None
        while True:
            self._check_open()
            command = operations.all_names(sublog, prefix, after)
            names = await execute(command, self._backend)
            if not names:
                return
            for name in names:
                yield name
            after = names[-1]

    async def load(self, lines: Iterable[str] | AsyncIterable[str]) -> Loaded:
        """See `Store.load`; lines may come from an async export as well."""
        reader = transfer.Reader()
        with reader.explaining():
            async for line in _each(lines):
                if (moved := reader.feed(line)) is not None:
                    self._check_open()
                    written = await execute(operations.import_session(moved), self._backend)
                    reader.count(moved, written=written)
            return reader.finish()

    async def close(self) -> None:
        """See `Store.close`."""
        self._closed = True
        if self._indexer is not None:
            import asyncio  # noqa: PLC0415 - the sync API does without it

            await asyncio.to_thread(self._indexer.close)
        await self._backend.close()
        if self._index is not None:
            self._index.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def _each(lines: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line
