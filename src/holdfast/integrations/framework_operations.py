"""What a framework's operations are in ours, each once for the sync and the async API.

Steps are functions of a store; a `StepRunner` carries each out and sends back the reply.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from holdfast.contract import AsyncStore, Store
from holdfast.errors import (
    Conflict,
    Damaged,
    HoldfastError,
    InvalidMessage,
    OutcomeUnknown,
    UsageError,
)
from holdfast.model import Ack, DamagedRecord, Erased, History, Message
from holdfast.runner import Steps, run, run_async, to_the_end

R = TypeVar("R")
T = TypeVar("T")

TRIES: Final = 5
PAGE_SESSIONS: Final = 1000
AT_ONCE: Final = 64
"""Sessions that an `AsyncStore` is asked for at the same time."""

log: Final = logging.getLogger("holdfast.integrations")


class Turns(list[T]):
    """A list as a framework wants it; `damaged` names the records that could not be read."""

    damaged: tuple[DamagedRecord, ...] = ()


class StepRunner:
    """A store of either kind, for a framework that has both ways of calling."""

    def __init__(self, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise UsageError(
                f"a store is needed, not {type(store).__name__}: holdfast.connect(url) opens one"
            )
        self.store = store
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, steps: Steps[R]) -> R:
        """Carry out steps. An `AsyncStore` does it in the loop that it was awaited in before.

        `UsageError` in that loop's own thread, or where there is none: it has to be awaited.
        """
        if isinstance(self.store, AsyncStore):
            if self._loop is not None and self._loop.is_running() and not _in_a_loop():
                return asyncio.run_coroutine_threadsafe(self.wait(steps), self._loop).result()
            steps.close()
            raise UsageError(
                "this store has to be awaited: call the async method, or open the store with "
                "holdfast.connect; nothing was sent"
            )
        return run(steps, lambda step: step(self.store))

    async def wait(self, steps: Steps[R]) -> R:
        """The same, awaited; with a store that is not async, in a thread."""
        self._loop = asyncio.get_running_loop()
        return await run_async(steps, self._carry_out)

    async def _carry_out(self, step: Callable[[Any], Any]) -> Any:
        if isinstance(self.store, AsyncStore):
            return await step(self.store)
        work = asyncio.ensure_future(asyncio.to_thread(step, self.store))
        return await to_the_end(work, "the framework's call")


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def add(
    session: str, messages: Sequence[Message], key: str | None = None, **more: Any
) -> Steps[Ack | None]:
    """Append them as one batch, once: a lost reply is asked for again with the same key."""
    if not messages:
        return None
    own = secrets.token_hex(16) if key is None else key
    unknown: OutcomeUnknown | None = None
    for _ in range(TRIES):
        try:
            ack: Ack = yield lambda store: store.append(session, messages, key=own, **more)
        except OutcomeUnknown as error:
            unknown = error
        except Conflict:
            raise  # the key was not there, so no earlier try was done either
        except HoldfastError as error:
            if unknown is None:
                raise
            raise unknown from error  # "not done" is said of this try only
        else:
            return ack
    assert unknown is not None  # noqa: S101 - only what is unknown is tried again
    raise unknown


def read(session: str, limit: int | None = None, turns: str = "all") -> Steps[History]:
    """The newest `limit`, or all; of tool calls and results what `turns` says."""
    found: History = yield lambda store: store.history(session, limit=limit, turns=turns)
    return found


def replace(session: str, messages: Sequence[Message]) -> Steps[Ack]:
    """Put these in the place of all, in one step."""
    ack: Ack = yield lambda store: store.rewrite(session, messages)
    return ack


def change(
    session: str, decide: Callable[[History], Sequence[Message] | None]
) -> Steps[History | None]:
    """Rewrite a session to what `decide` makes of it; what it was, or None if it stays.

    It happens only if nobody wrote in between: otherwise it is decided again.
    """
    clash: Conflict | None = None
    for _ in range(TRIES):
        found: History = yield lambda store: store.history(session)
        rest = decide(found)
        if rest is None:
            return None
        _check_whole(session, found)
        try:
            yield functools.partial(_rewrite, session, rest, found.last)
        except Conflict as error:
            clash = error
            continue
        return found
    assert clash is not None  # noqa: S101 - only a clash begins again
    raise clash


def pop(session: str, place: int) -> Steps[Message | None]:
    """Take one message out, by its index as in a list; None where there is none."""

    def without(found: History) -> Sequence[Message] | None:
        if not -len(found) <= place < len(found):
            return None
        rest = list(found)
        del rest[place]
        return rest

    found = yield from change(session, without)
    return None if found is None else found[place]


def forget(session: str) -> Steps[Erased]:
    """Erase a session for good."""
    erased: Erased = yield lambda store: store.forget(session)
    return erased


def read_and_forget(session: str) -> Steps[History]:
    """Erase a session for good; what could be read of it just before."""
    found: History = yield lambda store: store.history(session)
    yield lambda store: store.forget(session)
    return found


def names(prefix: str = "") -> Steps[list[str]]:
    """The ids of all live sessions that begin like this."""
    found: list[str] = []
    while True:
        page: list[str] = yield functools.partial(_page, prefix, found[-1] if found else None)
        found += page
        if len(page) < PAGE_SESSIONS:
            return found


def ends(sessions: Sequence[str], limit: int) -> Steps[Sequence[tuple[str, History]]]:
    """The newest `limit` of each; of at most `AT_ONCE` sessions, or a server is asked too much."""
    found: Sequence[History] = yield functools.partial(_ends, sessions, limit)
    return list(zip(sessions, found, strict=True))


def rendered(session: str, found: History, theirs: Callable[[Message], T]) -> Turns[T]:
    """A history in a framework's own words; what has none is named, and hides nothing else."""
    turns: Turns[T] = Turns()
    damaged = list(found.damaged)
    for message in found:
        try:
            turns.append(theirs(message))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            damaged.append(DamagedRecord(message.seq or 0, f"{type(error).__name__}: {error}"))
    turns.damaged = tuple(damaged)
    for damage in damaged:
        log.warning("%r: record %d cannot be read: %s", session, damage.seq, damage.reason)
    return turns


def dumped(dump: Callable[[], R]) -> R:
    """What pydantic makes of a framework's message; `InvalidMessage` where JSON has no word for it."""
    try:
        return dump()
    except ValueError as error:  # of pydantic, which is not installed with us
        raise InvalidMessage(f"this cannot be JSON: {error}; nothing was written") from error


def key_of_ids(kind: str, ids: Iterable[str | None]) -> str | None:
    """The key of a batch of which every message has an id; None for any other."""
    listed = list(ids)
    if not listed or None in listed:
        return None
    named = "".join(f"{len(str(one))}:{one}" for one in listed)
    return f"{kind}:{hashlib.blake2b(named.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def _rewrite(session: str, messages: Sequence[Message], expect: int, store: Any) -> Any:
    return store.rewrite(session, messages, expect=expect)


def _page(prefix: str, after: str | None, store: Any) -> Any:
    return store.sessions(prefix=prefix, after=after, limit=PAGE_SESSIONS)


def _ends(sessions: Sequence[str], limit: int, store: Store | AsyncStore) -> Any:
    if isinstance(store, AsyncStore):
        return asyncio.gather(*(store.history(name, limit=limit) for name in sessions))
    return [store.history(name, limit=limit) for name in sessions]


def _check_whole(session: str, found: History) -> None:
    if found.damaged:
        numbers = ", ".join(str(damage.seq) for damage in found.damaged)
        raise Damaged(
            f"{session!r} has records that cannot be read ({numbers}), and to change it would erase "
            "them for good. Nothing was changed. Export the session, then rewrite it yourself"
        )
