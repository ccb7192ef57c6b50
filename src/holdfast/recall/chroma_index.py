"""Chroma as an index over any log: a directory (`chroma:///dir`) or a server (`chroma+http://…`).

It is a cache that may be lost: a power cut after its first persist can take a collection. So it
holds numbers and vectors, no text; a collection that is gone, damaged or answers short is
dropped and rebuilt from the log. One collection belongs to one log.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

from holdfast.commands import Command
from holdfast.errors import Damaged, EngineUnreachable, HoldfastError, StoreClosed, UsageError
from holdfast.recall.index_commands import (
    Candidate,
    Erase,
    EraseEntry,
    Extend,
    Position,
    ReadPosition,
    Search,
)
from holdfast.recall.vectors import unpack
from holdfast.secrets import SecretUrl

R = TypeVar("R")
BACKEND: Final = "chroma"
PORT: Final = 8000
REPLY_TIMEOUT_S: Final = 30.0
_ASIDE_MAX: Final = 100
_FORGOTTEN_MAX: Final = 10_000
"""Forgotten logs, and erased records, of which something may still be on its way from another thread."""
_OPENING: Final = threading.Lock()
"""Clients of one directory share an engine that Chroma hands out before it has started it, and
ends while another takes it: one at a time comes or goes."""


class ChromaIndex:
    """Index commands on Chroma. Safe to use from several threads; one at a time is at work."""

    def __init__(self, url: str, namespace: bytes) -> None:
        self._server: tuple[str, int] | None = None
        self._folder = Path()
        parts = urlsplit(url)
        if parts.scheme == "chroma":
            if parts.netloc or len(parts.path) <= 1:
                raise UsageError(
                    f"{SecretUrl(url)} names no directory. Write three slashes for a relative path "
                    "(chroma:///memory), four for an absolute one"
                )
            self._folder = Path(unquote(parts.path[1:])).absolute()
        else:
            self._server = (parts.hostname or "localhost", parts.port or PORT)
        self._place = SecretUrl(url)
        self._namespace = namespace
        self._client: Any = None
        self._known: dict[bytes, tuple[Any, Position]] = {}
        self._forgotten: dict[bytes, int] = {}
        self._erased: dict[tuple[bytes, int], None] = {}
        self._turn = threading.RLock()
        self._process = os.getpid()
        _driver()

    def execute(self, command: Command[R]) -> R:
        """Carry out one command; once more with a new client if Chroma's own state was bad."""
        step = _STEPS[type(command)]
        if self._process != os.getpid():
            raise StoreClosed(
                "Chroma does not cross a fork: connect again in the child", backend=BACKEND
            )
        with self._turn:
            try:
                return cast("R", self._try(step, command))
            except Damaged:
                self._let_go()
            try:
                return cast("R", self._try(step, command))
            except Damaged:
                if not isinstance(command, ReadPosition):
                    raise
                return cast("R", Position())  # as it is, it holds no log, and is rebuilt

    def close(self) -> None:
        """Let go of it; what was opened before a fork is the parent's."""
        if self._process == os.getpid():
            with self._turn:
                self._let_go()

    def index_position(self, command: ReadPosition) -> Position:
        """What the collection's own notes say, if it has as many entries as they say."""
        if command.session in self._known:
            return self._known[command.session][1]
        collection = self._collection(command.session)
        if collection is None:
            return Position()
        notes = collection.metadata or {}
        if collection.count() != notes.get("entries"):
            return Position()
        position = Position(str(notes["model"]), int(notes["upto"]), int(notes["floor"]))
        self._known[command.session] = (collection, position)
        # Once in a process: what it indexes from here on, it has seen.
        return replace(position, mark=bytes.fromhex(str(notes["mark"])))

    def extend(self, command: Extend) -> Position:
        """Entries first, then the note: a crash between the two repeats what changes nothing."""
        if command.floor < self._forgotten.get(command.session, 0):
            return Position()  # it was read before, and comes too late
        if command.from_scratch:
            self.erase(Erase(command.session))
        there = self.index_position(ReadPosition(command.session))
        if there.upto != command.after or there.model not in {"", command.model}:
            return there
        if not there.model:
            self.erase(Erase(command.session))
        collection = self._known_collection(command.session) or self._made(command.session)
        entries = [one for one in command.entries if (command.session, one.seq) not in self._erased]
        if entries:
            collection.upsert(
                ids=[str(entry.seq) for entry in entries],
                embeddings=unpack([entry.vector for entry in entries]),
            )
        position = Position(command.model, command.upto, command.floor)
        notes: dict[str, Any] = {"model": command.model, "mark": command.mark.hex()}
        notes |= {"upto": command.upto, "floor": command.floor}
        collection.modify(metadata={**notes, "entries": collection.count()})
        self._known[command.session] = (collection, position)
        return position

    def search(self, command: Search) -> list[Candidate]:
        """The nearest. Chroma knows nothing of words: the caller, which has the texts, adds those."""
        position = self.index_position(ReadPosition(command.session))
        collection = self._known_collection(command.session)
        if collection is None or position.model != command.model:
            raise Damaged("Chroma has lost what was indexed", backend=BACKEND)
        count = int((collection.metadata or {}).get("entries", 0))
        wanted = min(command.limit, count)
        if not wanted:
            return []
        found = collection.query(
            query_embeddings=unpack([command.vector]), n_results=wanted, include=["distances"]
        )
        ids, distances = found["ids"][0], found["distances"][0]
        if len(ids) < wanted:
            raise Damaged(
                f"Chroma gave {len(ids)} of {count} entries where {wanted} were asked for",
                backend=BACKEND,
            )
        return [
            Candidate(int(seq), 1 - float(far), None)
            for seq, far in zip(ids, distances, strict=True)
        ]

    def erase(self, command: Erase) -> None:
        """Drop the collection of a log; nothing if there is none."""
        self._known.pop(command.session, None)
        if command.upto:
            self._forgotten[command.session] = command.upto
            while len(self._forgotten) > _FORGOTTEN_MAX:
                del self._forgotten[next(iter(self._forgotten))]
        if self._collection(command.session) is not None:
            self._opened().delete_collection(self._name(command.session))

    def erase_entry(self, command: EraseEntry) -> None:
        """Drop the vector of one record. What was read of it before must not be added any more."""
        self._erased[command.session, command.number] = None
        while len(self._erased) > _FORGOTTEN_MAX:
            del self._erased[next(iter(self._erased))]
        self.index_position(ReadPosition(command.session))
        collection = self._known_collection(command.session)
        if collection is None:  # there is none, or not as many entries as it notes: rebuilt
            self.erase(Erase(command.session))
            return
        collection.delete(ids=[str(command.number)])
        collection.modify(metadata={**collection.metadata, "entries": collection.count()})

    def _try(self, step: Callable[[ChromaIndex, Any], Any], command: Any) -> Any:
        try:
            return step(self, command)
        except HoldfastError:
            raise
        except Exception as error:
            raise self._mapped(error, command.operation) from error

    def _mapped(self, error: Exception, operation: str) -> HoldfastError:
        """Server down, or its data gone or damaged; it says so in many ways."""
        words = f"({type(error).__name__}: {error}). The log is complete"
        if self._server is not None and _is_away(error):
            return EngineUnreachable(
                f"Chroma at {self._place} does not answer {words}; the index goes on by itself "
                "when the server is back",
                operation=operation,
                backend=BACKEND,
            )
        return Damaged(
            f"Chroma at {self._place} cannot use what it has stored {words}; the index is rebuilt "
            "from it",
            operation=operation,
            backend=BACKEND,
        )

    def _name(self, log: bytes) -> str:
        return collection_name(self._namespace, log)

    def _known_collection(self, log: bytes) -> Any:
        return self._known[log][0] if log in self._known else None

    def _collection(self, log: bytes) -> Any:
        """The collection of a log; None if there is none."""
        missing = _driver().errors.NotFoundError
        try:
            return self._opened().get_collection(self._name(log), embedding_function=None)
        except missing:
            return None

    def _made(self, log: bytes) -> Any:
        return self._opened().create_collection(
            self._name(log),
            embedding_function=None,
            configuration={"hnsw": {"space": "cosine"}},
        )

    def _opened(self) -> Any:
        if self._client is None:
            with _OPENING:
                self._client = self._open()
        return self._client

    def _open(self) -> Any:
        driver = _driver()
        settings = driver.config.Settings(anonymized_telemetry=False)
        if self._server is not None:
            host, port = self._server
            client = driver.HttpClient(host, port, settings=settings)
            session = _session(client)
            if session is not None:  # Chroma's own would wait for ever
                session.timeout = REPLY_TIMEOUT_S
            return client
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            return driver.PersistentClient(self._folder, settings)
        except Exception:  # noqa: BLE001 - whatever it is, Chroma cannot read what is there
            driver.api.client.SharedSystemClient.clear_system_cache()  # it keeps what failed
            self._set_aside()
            return driver.PersistentClient(self._folder, settings)

    def _set_aside(self) -> None:
        """Chroma cannot open its directory: keep it under another name, begin an empty one."""
        for number in range(1, _ASIDE_MAX):
            aside = self._folder.with_name(f"{self._folder.name}.damaged-{number}")
            if not aside.exists():
                self._folder.rename(aside)
                break
        self._folder.mkdir(parents=True, exist_ok=True)

    def _let_go(self) -> None:
        self._known.clear()
        client, self._client = self._client, None
        if client is not None:
            session = _session(client)
            with _OPENING:
                client.close()
            if session is not None:
                session.close()


def collection_name(namespace: bytes, log: bytes) -> str:
    """What the collection of a log is called."""
    digest = hashlib.blake2b(log, key=namespace[:64], digest_size=20).hexdigest()
    return f"holdfast-{len(namespace)}-{digest}"


def _driver() -> Any:
    try:
        import chromadb  # noqa: PLC0415 - an extra, and slow to import
        import chromadb.api.client  # noqa: PLC0415
        import chromadb.config  # noqa: PLC0415
        import chromadb.errors  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"a chroma index needs a driver that is not installed ({error}). "
            "Run: pip install 'holdfast[chroma,recall]'"
        ) from error
    return chromadb


def _session(client: Any) -> Any:
    """The HTTP connections of a client, which it neither bounds in time nor closes; None if local."""
    return getattr(getattr(client, "_server", None), "_session", None)


def _is_away(error: BaseException) -> bool:
    """Whether no server answered, by the classes of the error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) or type(seen).__module__.split(".")[0] in {
            "httpx",
            "httpcore",
        }:
            return True
        seen = seen.__cause__ or seen.__context__
    return "Could not connect" in str(error)


_STEPS: Final[dict[Any, Callable[[ChromaIndex, Any], Any]]] = {
    ReadPosition: ChromaIndex.index_position,
    Extend: ChromaIndex.extend,
    Search: ChromaIndex.search,
    Erase: ChromaIndex.erase,
    EraseEntry: ChromaIndex.erase_entry,
}
