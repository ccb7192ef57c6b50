"""Any store, holdfast's or a user's, sync or async, behind one small sync surface.

Nothing is detected that has to be claimed: a key is passed to a store that claims `exactly-once`.
What is looked at is only the shape of a thing: our own classes, and whether an answer has to
be awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.contract import AsyncStore, Store
from holdfast.errors import NotApplied, UsageError
from holdfast.model import Message
from holdfast.verify.blocks import Block
from holdfast.verify.target import Target

Turn = Mapping[str, Any]
"""A message for a store of a user: `role`, `content` and `id`."""

FIELDS: Final = ("role", "content", "id")


@dataclass(frozen=True, slots=True)
class Read:
    """One answer of `history`, oldest first. `damaged` are words about what cannot be read."""

    messages: tuple[dict[str, Any], ...]
    damaged: tuple[str, ...] = ()
    seqs: tuple[int, ...] | None = None
    keeps: tuple[str, ...] = ()

    def kept(self, message: Turn) -> dict[str, Any]:
        """The fields of a message that must come back."""
        return _fields(message, self.keeps)

    def ids(self) -> list[str]:
        """The ids, or the text of a message that came back without one."""
        return [str(message.get("id", message.get("content"))) for message in self.messages]


@dataclass(frozen=True, slots=True)
class Found:
    """One answer of `recall`, best first. `behind` records were not looked at, so it said."""

    texts: tuple[str, ...]
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """One summary of a session: what it says, and which messages it adds, counted from 1."""

    text: str
    first: int
    last: int


class Client(Block):
    """One client of a store under test. Sync, whatever the store is; for one thread.

    `shared` is for many threads at once: of an async store each call is then a task of one event
    loop, as in a service; a sync one is called by each thread.
    """

    def __init__(
        self, target: Target, *, shared: bool = False, patience_s: float | None = None
    ) -> None:
        """Open the store; whatever `open()` raises comes through.

        With `patience_s` a call of an async store that takes longer is cancelled: a `TimeoutError`.
        """
        self._runner: asyncio.Runner | EventLoopThread | OneTask | None = None
        self._making_runner = threading.Lock()
        self._shared, self._patience_s = shared, patience_s
        self._thread_safe = target.thread_safe
        self._one_task, self._keeps = target.one_task, target.keeps
        self._whole_turns = target.whole_turns
        self._ids: dict[str, str] = {}
        """Of what was appended here, by its text, where the store keeps no ids."""
        self._closed = False
        self._definite = (*target.definite, NotApplied, UsageError)
        try:
            self._store = self._wait(target.open())
            _check_shape(self._store, forgets=target.claims.of("forgotten") is True)
        except BaseException:
            self._stop()
            raise

    @property
    def takes_many(self) -> bool:
        """Whether it may be used by many at once: async ones always are, others where they say so."""
        is_async = inspect.iscoroutinefunction(getattr(self._store, "append", None))
        return not self._one_task and (self._is_holdfast or is_async or self._thread_safe)

    @property
    def takes_key(self) -> bool:
        """Whether an append can be given a key at all, whatever is claimed."""
        return _takes_key(self._store.append)

    @property
    def store(self) -> object:
        """What `open()` returned, for tools that look at its code."""
        return self._store

    @property
    def rewrites(self) -> bool:
        """Whether it can replace a session's history."""
        return callable(getattr(self._store, "rewrite", None))

    @property
    def level(self) -> str:
        """What an ack says that it survives; DISK where the store names none."""
        return self._store.durability.name if self._is_holdfast else "DISK"

    @property
    def _is_holdfast(self) -> bool:
        return isinstance(self._store, Store | AsyncStore)

    def append(
        self, session: str, messages: Sequence[Turn], *, key: str | None = None
    ) -> tuple[int, ...] | None:
        """Append them as one batch; returns the numbers that our own stores give."""
        with_key: dict[str, Any] = {} if key is None else {"key": key}
        if self._is_holdfast:
            own_messages = [_message(message) for message in messages]
            ack = self._wait(self._store.append(session, own_messages, **with_key))
            return tuple(range(ack.first, ack.last + 1))
        self._wait(self._store.append(session, self._sent(messages), **with_key))
        return None

    def history(self, session: str, *, limit: int | None = None) -> Read:
        """What it shows: the newest `limit`, or all."""
        return self._seen(self._store.history(session, limit=limit))

    def for_model(self, session: str) -> Read:
        """What it hands to a model, where it claims that this is whole turns."""
        if self._whole_turns is None:
            raise UsageError("the target does not say how a model reads: Target(whole_turns=…)")
        return self._seen(self._whole_turns(self._store, session))

    def _seen(self, answer: Any) -> Read:
        seen = _read(self._wait(answer))
        if not self._keeps:
            return seen
        # An id that such a store makes up by itself is none of ours.
        listed = [_fields(message, (*self._keeps, "damaged")) for message in seen.messages]
        if "id" not in self._keeps:
            listed = [{**message, **self._id_of(message)} for message in listed]
        return replace(seen, messages=tuple(listed), keeps=self._keeps)

    def rewrite(self, session: str, messages: Sequence[Turn]) -> None:
        """Have it put these in the place of all that a session shows."""
        own = self._is_holdfast
        new = [_message(each) for each in messages] if own else self._sent(messages)
        self._wait(self._store.rewrite(session, new))

    def _sent(self, messages: Sequence[Turn]) -> list[dict[str, Any]]:
        """As a user's store gets them; what it will not keep is not sent."""
        if self._keeps and "id" not in self._keeps:
            texts = [one for one in messages if isinstance(one["content"], str)]
            self._ids |= {one["content"]: one["id"] for one in texts if "id" in one}
        return [_fields(message, self._keeps) for message in messages]

    def _id_of(self, message: Turn) -> dict[str, str]:
        """By its text: what this client appended, or the first word."""
        text = message.get("content")
        if not isinstance(text, str) or not text.strip():
            return {}
        return {"id": self._ids.get(text) or text.split(maxsplit=1)[0]}

    def forget(self, session: str) -> None:
        """Have it forget a session."""
        self._wait(self._store.forget(session))

    @property
    def recalls(self) -> bool:
        """Whether it can be asked to recall at all, whatever is claimed."""
        return hasattr(self._store, "remember") and hasattr(self._store, "recall")

    @property
    def remembers_keys(self) -> bool:
        """Whether a memory can be given a key at all, whatever is claimed."""
        return self.recalls and _takes_key(self._store.remember)

    @property
    def summarizes(self) -> bool:
        """Whether it keeps summaries that can be looked at."""
        return all(hasattr(self._store, name) for name in ("summarize", "summaries"))

    def remember(self, scope: str, text: str, *, key: str | None = None) -> None:
        """Have it keep a text for later questions."""
        self._wait(self._store.remember(scope, text, **({} if key is None else {"key": key})))

    def summarize(self, session: str) -> None:
        """Have it bring the summary of a session up to its last message."""
        self._wait(self._store.summarize(session, **({"keep": 0} if self._is_holdfast else {})))

    def summaries(self, session: str) -> tuple[Summary, ...]:
        """What it keeps of summaries of a session, whether or not it would show them."""
        return tuple(_summary(each) for each in self._wait(self._store.summaries(session)))

    def recall(self, scope: str, query: str, *, k: int) -> Found:
        """The texts that it finds for a question."""
        return _found(self._wait(self._store.recall(scope, query, k=k)))

    def is_definite(self, error: BaseException) -> bool:
        """Whether the error says that the write did not happen."""
        return isinstance(error, self._definite)

    def close(self) -> None:
        """Close the store, where it can be closed. Twice is once."""
        if self._closed:
            return
        self._closed = True
        try:
            close = getattr(self._store, "close", None) or getattr(self._store, "aclose", None)
            if close is not None:
                self._wait(close())
        finally:
            self._stop()

    def _wait(self, answer: Any) -> Any:
        """The answer itself; an awaitable is waited for, all of a client on one event loop."""
        if not inspect.isawaitable(answer):
            return answer
        with self._making_runner:  # a store that all threads share has one event loop
            if self._runner is None:
                self._runner = self._new_runner()

        async def wait() -> Any:
            async with asyncio.timeout(self._patience_s):
                return await answer

        return self._runner.run(wait())

    def _new_runner(self) -> asyncio.Runner | EventLoopThread | OneTask:
        if self._one_task:
            return OneTask()
        return EventLoopThread() if self._shared else asyncio.Runner()

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.close()


class EventLoopThread:
    """An event loop on a thread of its own, which many others give work to."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have it done as a task, beside those of others."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End it; nobody gives it work any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class OneTask:
    """An event loop of which a single task does all the work, one call after another."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._work: asyncio.Queue[tuple[Coroutine[Any, Any, Any], asyncio.Future[Any]] | None]
        self._work = asyncio.Queue()
        self._task = self._loop.create_task(self._serve())

    async def _serve(self) -> None:
        while (given := await self._work.get()) is not None:
            work, done = given
            try:
                done.set_result((await work, None))
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                done.set_result((None, error))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the task do it, and wait for that."""
        done = self._loop.create_future()
        self._work.put_nowait((work, done))
        answer, error = self._loop.run_until_complete(done)
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        """Let the task end by itself."""
        self._work.put_nowait(None)
        self._loop.run_until_complete(self._task)
        self._loop.close()


def _takes_key(method: Any) -> bool:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "key" or p.kind is p.VAR_KEYWORD for p in parameters)


def _check_shape(store: object, *, forgets: bool) -> None:
    needed = ("append", "history", *(["forget"] if forgets else []))
    missing = [name for name in needed if not hasattr(store, name)]
    if missing:
        raise UsageError(
            f"open() returned {type(store).__name__}, which has no {', '.join(missing)}; a store "
            "has append(session, messages), history(session, limit) and, unless it says "
            "Claims(forgotten=NotClaimed(…)), forget(session)"
        )


def _fields(message: Turn, keeps: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if not keeps or name in keeps}


def _message(turn: Turn) -> Message:
    extra = {name: value for name, value in turn.items() if name not in FIELDS}
    return Message(turn["role"], turn["content"], id=turn["id"], extra=extra)


def _read(answer: Any) -> Read:
    """Take a sequence of dictionaries, or of objects with these attributes, as it is."""
    if answer is None or isinstance(answer, str | bytes | Mapping) or not _listable(answer):
        raise UsageError(
            f"history() returned {type(answer).__name__}; a list of messages is needed, "
            "empty where there is none"
        )
    listed = list(answer)
    seqs = [getattr(each, "seq", None) for each in listed]
    numbered = bool(seqs) and all(isinstance(seq, int) for seq in seqs)
    return Read(
        tuple(_turn(each) for each in listed),
        tuple(str(each) for each in getattr(answer, "damaged", ())),
        tuple(seq for seq in seqs if seq is not None) if numbered else None,
    )


def _found(answer: Any) -> Found:
    """Take texts, or dictionaries or objects that have one, as they are."""
    if answer is None or isinstance(answer, str | bytes | Mapping) or not _listable(answer):
        raise UsageError(
            f"recall() returned {type(answer).__name__}; a list of texts is needed, or of "
            "anything with a `text` or a `content`, empty where nothing was found"
        )
    behind = getattr(answer, "behind", 0)
    return Found(tuple(_text(each) for each in answer), int(behind))


def _text(hit: Any) -> str:
    if isinstance(hit, str):
        return hit
    for name in ("text", "content"):
        found = hit.get(name) if isinstance(hit, Mapping) else getattr(hit, name, None)
        if isinstance(found, str):
            return found
    raise UsageError(f"recall() returned {type(hit).__name__}, which has no text")


def _summary(found: Any) -> Summary:
    """Take a dictionary, or an object, that has all three; or a message of ours."""
    if isinstance(found, Message):
        found = {**found.extra["from"], "text": found.content}
    names = ("text", "first", "last")
    if not isinstance(found, Mapping):
        found = {name: getattr(found, name, None) for name in names}
    text, first, last = (found.get(name) for name in names)
    if not (isinstance(text, str) and isinstance(first, int) and isinstance(last, int)):
        raise UsageError(
            f"summaries() returned {type(found).__name__}; a summary has a text, and the places "
            "of the first and the last message that it adds"
        )
    return Summary(text, first, last)


def _listable(answer: Any) -> bool:
    return isinstance(answer, Iterable)


def _turn(message: Any) -> dict[str, Any]:
    if isinstance(message, Mapping):
        return dict(message)
    if isinstance(message, Message):
        return {**message.to_openai(), "id": message.id}
    return {name: getattr(message, name) for name in FIELDS if hasattr(message, name)}
