"""What a backend brings along to be held to the contract. A new one adds a class and a line.

A harness can open the store through either API and knows how to tamper with what the
engine holds, from outside our code. It names what the engine can do; tests ask for that,
never for an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import apsw

import holdfast
from holdfast import (
    Ack,
    AsyncStore,
    Context,
    Durability,
    Erased,
    History,
    Loaded,
    Message,
    Recalled,
    Stat,
    Store,
)

T = TypeVar("T")


class Harness(Protocol):
    """One engine with its own, empty data."""

    url: str
    level: Durability
    scrubs: bool
    """Whether a forget leaves no copy in the engine's own files either."""

    def tamper(self, session: str, seq: int, record: bytes) -> None:
        """Put these bytes in the place of a stored record, behind the store's back."""

    def raw(self, session: str, seq: int) -> bytes:
        """The stored record."""

    def leftovers(self, text: bytes) -> list[str]:
        """Places in the engine's files where this text still stands."""


class SqliteHarness:
    """A file of its own."""

    level = Durability.DISK
    scrubs = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "memory.db"
        self.url = f"sqlite:///{self.path}"

    def tamper(self, session: str, seq: int, record: bytes) -> None:
        connection = apsw.Connection(str(self.path))
        connection.execute(
            "UPDATE messages SET record = ? WHERE place = (SELECT id FROM sessions WHERE name = ?)"
            " << 32 | ?",
            (record, session.encode(), seq),
        )
        assert connection.changes() == 1
        connection.close()

    def raw(self, session: str, seq: int) -> bytes:
        connection = apsw.Connection(str(self.path))
        [(record,)] = connection.execute(
            "SELECT record FROM messages WHERE place = (SELECT id FROM sessions WHERE name = ?)"
            " << 32 | ?",
            (session.encode(), seq),
        ).fetchall()
        connection.close()
        assert isinstance(record, bytes)
        return record

    def leftovers(self, text: bytes) -> list[str]:
        return [file.name for file in self.folder.iterdir() if text in file.read_bytes()]


class AsyncApi:
    """The async store with the sync store's surface, so that one test goes through both APIs."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.closed = False
        self._runner = asyncio.Runner()
        try:
            self.store: AsyncStore = self._run(holdfast.connect_async(url, **settings))
        except BaseException:
            self._runner.close()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    @property
    def durability(self) -> Durability:
        return self.store.durability

    @property
    def backend(self) -> str:
        return self.store.backend

    def append(self, *args: Any, **settings: Any) -> Ack:
        return self._run(self.store.append(*args, **settings))

    def history(self, *args: Any, **settings: Any) -> History:
        return self._run(self.store.history(*args, **settings))

    def rewrite(self, *args: Any, **settings: Any) -> Ack:
        return self._run(self.store.rewrite(*args, **settings))

    def forget(self, session: str | None = None, **settings: Any) -> Any:
        return self._run(self.store.forget(session, **settings))

    def sessions(self, **settings: Any) -> list[str]:
        return self._run(self.store.sessions(**settings))

    def stat(self, session: str) -> Stat:
        return self._run(self.store.stat(session))

    def export(self, *, prefix: str = "") -> Iterator[str]:
        async def collect(lines: AsyncIterator[str]) -> list[str]:
            return [line async for line in lines]

        return iter(self._run(collect(self.store.export(prefix=prefix))))

    def load(self, lines: Iterable[str]) -> Loaded:
        return self._run(self.store.load(lines))

    def remember(self, *args: Any, **settings: Any) -> Ack:
        return self._run(self.store.remember(*args, **settings))

    def memories(self, *args: Any, **settings: Any) -> History:
        return self._run(self.store.memories(*args, **settings))

    def forget_memory(self, scope: str, number: int) -> Erased:
        return self._run(self.store.forget_memory(scope, number))

    def summaries(self, session: str) -> History:
        return self._run(self.store.summaries(session))

    def recall(self, *args: Any, **settings: Any) -> Recalled:
        return self._run(self.store.recall(*args, **settings))

    def context(self, *args: Any, **settings: Any) -> Context:
        return self._run(self.store.context(*args, **settings))

    def summarize(self, *args: Any, **settings: Any) -> Ack | None:
        return self._run(self.store.summarize(*args, **settings))

    def index_lag(self, scope: str) -> int:
        return self._run(self.store.index_lag(scope))

    def wait_for(self, scope: str, **settings: Any) -> int:
        return self._run(self.store.wait_for(scope, **settings))

    def reindex(self, scope: str | None = None) -> int:
        return self._run(self.store.reindex(scope))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._run(self.store.close())
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


AnyStore = Store | AsyncApi


class Opener:
    """Opens the store under test through one API, and closes whatever is left open."""

    def __init__(self, harness: Harness, api: str) -> None:
        self.harness = harness
        self.api = api
        self._opened: list[AnyStore] = []

    def __call__(self, **settings: Any) -> AnyStore:
        kind = AsyncApi if self.api == "async" else holdfast.connect
        settings.setdefault(
            "background_indexing", False
        )  # so that a test can count what it did itself
        store: AnyStore = kind(self.harness.url, **settings)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


def texts(history: Iterable[Message]) -> list[Any]:
    """The contents, for a short comparison."""
    return [message.content for message in history]


def say(text: str) -> Message:
    """A user's message."""
    return Message("user", text)
