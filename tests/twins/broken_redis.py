"""Broken stores on Redis. Each docstring says how people come to write it."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar

import redis

from tests.twins.sound import RedisStore, Turn


def pause() -> None:
    """The worker has other things to do between two calls, as on a busy night.

    Without it, whether the twin is caught is left to how this machine schedules processes.
    """
    time.sleep(0.01)


class LostUpdate(RedisStore):
    """The session is one JSON document: read it, add to it, write it back."""

    promise: ClassVar = "durable"
    caught_by: ClassVar = (
        "test_concurrent_writers_lose_nothing",
        "test_concurrent_threads_lose_nothing",
    )

    def append(self, session: str, messages: list[Turn]) -> None:
        document = json.dumps([*self.history(session), *messages])
        pause()
        self.client.set(self.key(session), document, px=self.ttl_ms or None)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        turns: list[Turn] = json.loads(self.client.get(self.key(session)) or "[]")
        return turns[-limit:] if limit else turns


class AckFromBackgroundThread(RedisStore):
    """Writing happens in a thread of its own, a lot at once, so that the answer is not held up."""

    promise: ClassVar = "durable"
    caught_by: ClassVar = ("test_messages_survive_sigkill_of_their_writers",)
    BATCHES = 500

    def __init__(self, engine: Any, ttl_s: float | None = None) -> None:
        super().__init__(engine, ttl_s)
        self.waiting: queue.Queue[tuple[str, list[Turn]] | threading.Event] = queue.Queue()
        threading.Thread(target=self.write, daemon=True).start()

    def append(self, session: str, messages: list[Turn]) -> None:
        self.waiting.put((session, messages))

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        self.flush()
        return super().history(session, limit)

    def flush(self) -> None:
        written = threading.Event()
        self.waiting.put(written)
        written.wait(10)

    def write(self) -> None:
        held: list[tuple[str, list[Turn]]] = []
        while True:
            item = self.waiting.get()
            held += [] if isinstance(item, threading.Event) else [item]
            if isinstance(item, threading.Event) or len(held) == self.BATCHES:
                for each in held:
                    super().append(*each)
                held = []
            if isinstance(item, threading.Event):
                item.set()

    def close(self) -> None:
        self.flush()
        super().close()


class NoPersistence(RedisStore):
    """The store is right, and the image it runs on saves nothing."""

    promise: ClassVar = "durable"
    caught_by: ClassVar = (
        "test_messages_survive_sigkill_of_the_engine",
        "test_messages_survive_a_clean_restart_of_the_engine",
    )
    config: ClassVar[str | None] = "no-persistence"


class ClockAsScore(RedisStore):
    """A sorted set with the time as score: within one second, text decides."""

    promise: ClassVar = "ordered"
    caught_by: ClassVar = ("test_a_batch_keeps_its_order",)

    def append(self, session: str, messages: list[Turn]) -> None:
        members = {self.encode(message): int(time.time()) for message in messages}
        self.client.zadd(self.key(session), members)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        return self.decode(self.client.zrange(self.key(session), -(limit or 0), -1))


class TornBatch(RedisStore):
    """One RPUSH a message: between two of them the process may be gone."""

    promise: ClassVar = "atomic"
    caught_by: ClassVar = ("test_a_batch_is_whole_or_absent_after_sigkill_of_its_writer",)

    def append(self, session: str, messages: list[Turn]) -> None:
        for message in messages:
            self.client.rpush(self.key(session), self.encode(message))
            pause()


class CachedReads(RedisStore):
    """Histories are kept in the worker, and thrown away when this worker writes."""

    promise: ClassVar = "fresh"
    caught_by: ClassVar = ("test_another_client_sees_each_write_at_once",)

    def __init__(self, engine: Any, ttl_s: float | None = None) -> None:
        super().__init__(engine, ttl_s)
        self.cache: dict[tuple[str, int | None], list[Turn]] = {}

    def append(self, session: str, messages: list[Turn]) -> None:
        super().append(session, messages)
        self.cache.clear()

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        if (session, limit) not in self.cache:
            self.cache[session, limit] = super().history(session, limit)
        return self.cache[session, limit]


class OneTooMany(RedisStore):
    """LRANGE includes its end, so somebody took one off at the wrong side."""

    promise: ClassVar = "snapshot"
    caught_by: ClassVar = ("test_a_read_during_writes_is_one_cut",)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        first = -limit - 1 if limit else 0
        return self.decode(self.client.lrange(self.key(session), first, -1))


class PrefixDelete(RedisStore):
    """A session had several keys once, so all that begin with its name are deleted."""

    promise: ClassVar = "isolated"
    caught_by: ClassVar = ("test_forgetting_one_session_touches_no_other",)

    def forget(self, session: str) -> None:
        for key in self.client.scan_iter(match=f"{self.key(session)}*"):
            self.client.delete(key)


class SkipsDamagedRecords(RedisStore):
    """`except ValueError: continue`, after a bad night."""

    promise: ClassVar = "faithful"
    caught_by: ClassVar = ("test_a_damaged_record_is_named_and_hides_nothing_else",)

    def decode(self, records: Sequence[bytes]) -> list[Turn]:
        return [*super().decode(records)]


class CannotReadOldRecords(RedisStore):
    """The new release compresses. The old release did not, and its records are still there."""

    promise: ClassVar = "faithful"
    caught_by: ClassVar = ("test_records_of_the_previous_release_are_read",)
    previous: ClassVar = RedisStore

    def encode(self, message: Turn) -> bytes:
        return zlib.compress(json.dumps(message).encode())

    def decode(self, records: Sequence[bytes]) -> list[Turn]:
        return [json.loads(zlib.decompress(record)) for record in records]


class TtlAfterWrite(RedisStore):
    """RPUSH, then EXPIRE: two calls, and a crash fits in between."""

    promise: ClassVar = "expiring"
    caught_by: ClassVar = ("test_no_crash_leaves_a_session_that_never_expires",)

    def append(self, session: str, messages: list[Turn]) -> None:
        self.client.rpush(self.key(session), *[self.encode(message) for message in messages])
        pause()
        if self.ttl_ms:
            self.client.pexpire(self.key(session), self.ttl_ms)


class FiveMinutes(RedisStore):
    """A constant of another service, five minutes, found its way into the push."""

    promise: ClassVar = "expiring"
    caught_by: ClassVar = ("test_a_session_expires_on_time_and_as_a_whole",)
    PUSH: ClassVar = RedisStore.PUSH.replace("KEYS[1], ARGV[1])", "KEYS[1], 300000)")


class _TwoKeys(RedisStore):
    """A list of ids, and a hash with the messages; what is to live on is named by `refreshed`."""

    new: tuple[str, ...] = ("ids", "items")
    refreshed: tuple[str, ...] = ("ids", "items")

    def append(self, session: str, messages: list[Turn]) -> None:
        keys = {"ids": f"{self.key(session)}:ids", "items": f"{self.key(session)}:items"}
        fresh = not self.client.exists(keys["ids"])
        with self.client.pipeline() as batch:
            for message in messages:
                batch.rpush(keys["ids"], message["id"])
                batch.hset(keys["items"], message["id"], self.encode(message))
            for name in (self.new if fresh else self.refreshed) if self.ttl_ms else ():
                batch.pexpire(keys[name], self.ttl_ms)
            batch.execute()

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        ids = self.client.lrange(f"{self.key(session)}:ids", -(limit or 0), -1)
        items = self.client.hmget(f"{self.key(session)}:items", ids) if ids else []
        return self.decode([item for item in items if item is not None])

    def forget(self, session: str) -> None:
        self.client.delete(f"{self.key(session)}:ids", f"{self.key(session)}:items")


class TtlOnOneOfTwoKeys(_TwoKeys):
    """The refresh was added where the list is written; the hash was forgotten."""

    promise: ClassVar = "expiring"
    caught_by: ClassVar = ("test_each_write_starts_the_time_of_the_whole_session_anew",)
    refreshed = ("ids",)


class IndexExpiresFirst(_TwoKeys):
    """The items are refreshed with each write; the index has the time of its making."""

    promise: ClassVar = "expiring"
    caught_by: ClassVar = ("test_each_write_starts_the_time_of_the_whole_session_anew",)
    refreshed = ("items",)


class TtlPerMessage(RedisStore):
    """Each message is a key with its own time to live: the beginning is forgotten first."""

    promise: ClassVar = "expiring"
    caught_by: ClassVar = ("test_each_write_starts_the_time_of_the_whole_session_anew",)

    def append(self, session: str, messages: list[Turn]) -> None:
        with self.client.pipeline() as batch:
            for message in messages:
                key = f"{self.key(session)}:{message['id']}"
                batch.set(key, self.encode(message), px=self.ttl_ms or None)
                batch.rpush(self.key(session), key)
            batch.execute()

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        keys = self.client.lrange(self.key(session), -(limit or 0), -1)
        items = self.client.mget(keys) if keys else []
        return self.decode([item for item in items if item is not None])


class LateWriteResurrects(RedisStore):
    """The agent holds the conversation in memory; if the cache has lost it, it is put back."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_a_late_write_brings_nothing_back",)
    PUSH: ClassVar = """
        local first = redis.call('EXISTS', KEYS[1]) == 1 and ARGV[2] + 3 or 3
        for i = first, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
        if ARGV[1] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
    """

    def append(self, session: str, messages: list[Turn]) -> None:
        held: list[Any] = self.__dict__.setdefault("held", {}).setdefault(session, [])
        all_ = [*held, *(self.encode(message) for message in messages)]
        self.client.eval(self.PUSH, 1, self.key(session), self.ttl_ms, len(held), *all_)
        held[:] = all_

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        records = self.client.lrange(self.key(session), 0, -1)
        self.__dict__.setdefault("held", {})[session] = records
        return self.decode(records[-(limit or 0) :])


class SwallowedRead(RedisStore):
    """Without a memory the chat goes on, so a failed read is an empty one."""

    promise: ClassVar = "loud"
    caught_by: ClassVar = ("test_a_read_that_failed_is_not_an_empty_history",)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        try:
            return super().history(session, limit)
        except redis.RedisError:
            return []


class SwallowedWrite(RedisStore):
    """A background task for memory: its exceptions end in the log, if there is one."""

    promise: ClassVar = "loud"
    caught_by: ClassVar = ("test_nothing_is_acknowledged_by_a_dead_engine",)

    def append(self, session: str, messages: list[Turn]) -> None:
        with contextlib.suppress(redis.RedisError):
            super().append(session, messages)


class CurrentSession(RedisStore):
    """The session is set once for the request, in a place that all workers share."""

    promise: ClassVar = "isolated"
    caught_by: ClassVar = ("test_sessions_that_are_written_at_once_stay_apart",)

    def append(self, session: str, messages: list[Turn]) -> None:
        self.client.set("current", self.key(session))
        pause()
        records = [self.encode(message) for message in messages]
        self.client.rpush(self.client.get("current"), *records)


class ForgottenInMemoryOnly(RedisStore):
    """Deleting is slow, so how much is forgotten is noted, and cleaned up some other night."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_a_forgotten_session_is_empty_and_stays_so",)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        forgotten: dict[str, int] = self.__dict__.setdefault("forgotten", {})
        left = super().history(session)[forgotten.get(session, 0) :]
        return left[-(limit or 0) :]

    def forget(self, session: str) -> None:
        forgotten: dict[str, int] = self.__dict__.setdefault("forgotten", {})
        forgotten[session] = self.client.llen(self.key(session))


BROKEN = (
    LostUpdate, AckFromBackgroundThread, NoPersistence, ClockAsScore, TornBatch, CachedReads, OneTooMany,
    PrefixDelete, SkipsDamagedRecords, CannotReadOldRecords, TtlAfterWrite, FiveMinutes,
    TtlOnOneOfTwoKeys, IndexExpiresFirst, TtlPerMessage, LateWriteResurrects, SwallowedRead,
    SwallowedWrite, CurrentSession, ForgottenInMemoryOnly,
)  # fmt: skip
