"""Stores that lose what they should find, or find what they should have lost. See `recalling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import redis

from tests.twins.recalling import ChromaMemory, Entry, SqliteMemory
from tests.twins.sound import Turn


class DualWrite(SqliteMemory):
    """The log and the index are written by the same call; vectors wait for a full batch."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = ("test_an_index_catches_up_after_sigkill_of_the_writer",)
    BATCH = 10_000

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        super().append(session, messages, key)
        for message in messages:
            self.later(session, str(message["content"]))

    def keep(self, scope: str, text: str) -> None:
        super().keep(scope, text)
        self.later(scope, text)

    def later(self, scope: str, text: str) -> None:
        waiting = self.__dict__.setdefault("waiting", {})
        waiting.setdefault(scope, []).append((f"id {len(self.held(scope))} {text}", text))
        if len(waiting[scope]) >= self.BATCH:
            self.put(scope, waiting.pop(scope))

    def follow(self, scope: str) -> None:
        """There is nothing to follow: everybody wrote to both."""

    def nearest(self, scope: str, asked: Any, k: int) -> list[str]:
        waiting = self.__dict__.get("waiting", {}).get(scope, [])
        return [text for _, text in waiting][-k:] + super().nearest(scope, asked, k)

    def close(self) -> None:
        for scope, entries in self.__dict__.get("waiting", {}).items():
            self.put(scope, entries)
        super().close()


class PurgeBeforePersist(SqliteMemory):
    """A queue feeds the index and is emptied when that has its rows; it saves them later."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = ("test_what_is_in_the_log_is_found_after_a_restart_of_the_engine",)
    engine: ClassVar = "redis"
    config: ClassVar = "rdb-only"
    schema: ClassVar = SqliteMemory.schema + "CREATE TABLE purged (at TEXT PRIMARY KEY);"

    def __init__(self, engine: Any, ttl_s: float | None = None, model: Any = None) -> None:
        super().__init__(engine, ttl_s, model)
        self.client: Any = redis.Redis.from_url(engine.url)

    @staticmethod
    def path(engine: Any) -> Any:
        return engine.data_dir.parent / "log.db"

    def held(self, scope: str) -> set[str]:
        del scope
        return {at for (at,) in self.db.execute("SELECT at FROM purged")}

    def put(self, scope: str, entries: list[Entry]) -> None:
        self.db.executemany("INSERT INTO purged VALUES (?)", [(at,) for at, _ in entries])
        for (_, text), vector in zip(
            entries, self.embed([text for _, text in entries]), strict=True
        ):
            self.client.hset(f"vectors:{scope}", text, vector.tobytes())

    def nearest(self, scope: str, asked: Any, k: int) -> list[str]:
        near = {
            text.decode(): float(asked @ np.frombuffer(data, np.float32))
            for text, data in self.client.hgetall(f"vectors:{scope}").items()
        }
        return sorted(near, key=near.__getitem__, reverse=True)[:k]

    def close(self) -> None:
        self.client.close()
        super().close()


class NoLog(ChromaMemory):
    """The collection has the texts, so a table of memories beside it would be kept twice."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = ("test_a_lost_index_comes_back_from_the_log",)

    def keep(self, scope: str, text: str) -> None:
        self.put(scope, [(f"kept {text}", text)])


class MixedModels(SqliteMemory):
    """The embedding model is a setting, and settings change; the rows do not say which it was."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = ("test_another_embedding_model_does_not_mix_with_the_first",)

    def held(self, scope: str) -> set[str]:
        return {
            at for (at,) in self.db.execute("SELECT at FROM vector WHERE session = ?", (scope,))
        }


class MemoriesOnly(SqliteMemory):
    """What is worth remembering is remembered by a model; the conversation has no vectors."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = ("test_what_was_said_and_remembered_is_found_by_itself",)

    def log(self, scope: str) -> list[Entry]:
        return [entry for entry in super().log(scope) if entry[0].startswith("kept")]


class WordsOnly(SqliteMemory):
    """`LIKE` finds it as long as one asks with the words in which it was said."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = ("test_what_was_said_and_remembered_is_found_by_other_words",)

    def recall(self, scope: str, query: str, k: int) -> list[str]:
        texts = [text for _, text in self.log(scope)]
        shared = {text: len({*text.split()} & {*query.split()}) for text in texts}
        return sorted((t for t in texts if shared[t]), key=shared.__getitem__, reverse=True)[:k]


class IndexesOnePage(SqliteMemory):
    """Each question lets the index take in fifty more, so that it stays quick; nobody is told."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = (
        "test_what_was_written_a_moment_ago_is_found_or_the_answer_says_it_is_behind",
    )

    def put(self, scope: str, entries: list[Entry]) -> None:
        super().put(scope, entries[:50])


class VectorsStay(ChromaMemory):
    """Forgetting a session deletes its rows; the vector database is another team's."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_what_was_forgotten_is_not_found_by_meaning",)

    def drop(self, scope: str) -> None:
        """It is in another database."""


class FirstPageOfVectors(ChromaMemory):
    """`get` gives ids, `delete` takes ids, and `get` has a limit."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_no_vector_of_a_long_session_is_left",)

    def drop(self, scope: str) -> None:
        found = self.collection.get(where={"session": scope}, limit=100)
        if found["ids"]:
            self.collection.delete(ids=found["ids"])


class RetryIndexes(SqliteMemory):
    """The key keeps a retry out of the log. The index is fed before that is known."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_a_late_retry_does_not_make_it_found_again",)

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        super().append(session, messages, key)
        self.put(session, [(f"sent {each['content']}", str(each["content"])) for each in messages])

    def log(self, scope: str) -> list[Entry]:
        return [entry for entry in super().log(scope) if entry[0].startswith("kept")]


class SoftDelete(SqliteMemory):
    """A deleted row is only marked, in case somebody asks; whoever rebuilds the index reads all."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_an_index_that_is_rebuilt_brings_nothing_back",)
    schema: ClassVar = SqliteMemory.schema + "CREATE TABLE deleted (session TEXT, at TEXT);"

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        gone = {text for at, text in super().log(session) if at in self.deleted(session)}
        return [turn for turn in super().history(session, limit) if turn["content"] not in gone]

    def deleted(self, session: str) -> set[str]:
        marks = self.db.execute("SELECT at FROM deleted WHERE session = ?", (session,))
        return {at for (at,) in marks}

    def log(self, scope: str) -> list[Entry]:
        new = not self.held(scope)
        return [each for each in super().log(scope) if new or each[0] not in self.deleted(scope)]

    def forget(self, session: str) -> None:
        self.db.execute("DELETE FROM summary WHERE session = ?", (session,))
        marks: Sequence[tuple[str, str]] = [(session, at) for at, _ in super().log(session)]
        with self.transaction():
            self.db.executemany("INSERT INTO deleted VALUES (?, ?)", marks)
            self.db.execute("DELETE FROM vector WHERE session = ?", (session,))


class SummarizesAll(SqliteMemory):
    """Each summary is made of the whole conversation, and put beside those that are there."""

    promise: ClassVar = "recallable"
    caught_by: ClassVar = ("test_every_message_is_told_by_one_summary",)

    def unsummarized(self, session: str) -> tuple[list[str], int]:
        return [str(turn["content"]) for turn in self.history(session)], 0


class _Marked(SqliteMemory):
    """How far it has come is kept in a table of its own, by a transaction of its own."""

    schema: ClassVar = SqliteMemory.schema + (
        "CREATE TABLE mark (session TEXT PRIMARY KEY, upto INTEGER);"
    )
    caught_by: ClassVar = ("test_a_crash_inside_a_summary_neither_loses_nor_doubles",)
    promise: ClassVar = "recallable"

    def unsummarized(self, session: str) -> tuple[list[str], int]:
        found = self.db.execute("SELECT upto FROM mark WHERE session = ?", (session,)).fetchone()
        upto = found[0] if found else 0
        return [str(turn["content"]) for turn in self.history(session)][upto:], upto

    def mark(self, session: str, upto: int) -> None:
        self.db.execute("INSERT OR REPLACE INTO mark VALUES (?, ?)", (session, upto))


class SummaryTwice(_Marked):
    """The summary is written, and then how far it has come: a crash in between writes it again."""

    def summarize(self, session: str) -> None:
        new, upto = self.unsummarized(session)
        if new:
            self.write_summary(session, new, upto)
            self.mark(session, upto + len(new))


class SummaryNever(_Marked):
    """The other way round: a crash in between, and nobody makes it any more."""

    def summarize(self, session: str) -> None:
        new, upto = self.unsummarized(session)
        if new:
            self.mark(session, upto + len(new))
            self.write_summary(session, new, upto)


class SummaryStays(SqliteMemory):
    """Forgetting was written before there were summaries."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_what_was_forgotten_is_not_found_by_meaning",)

    def forget(self, session: str) -> None:
        kept = self.summaries(session)
        super().forget(session)
        for one in kept:
            self.write_summary(session, [one["text"]], one["first"] - 1)


class MemoryComesBack(SqliteMemory):
    """Forgetting removes the requests too, so that nothing is left; a retry is new then."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_a_late_retry_does_not_make_it_found_again",)

    def forget(self, session: str) -> None:
        super().forget(session)
        self.db.execute("DELETE FROM request WHERE session = ?", (f"memory of {session}",))


BROKEN = (
    DualWrite, PurgeBeforePersist, NoLog, MixedModels, MemoriesOnly, WordsOnly, IndexesOnePage,
    VectorsStay, FirstPageOfVectors, RetryIndexes, SoftDelete, SummarizesAll, SummaryTwice,
    SummaryNever, SummaryStays, MemoryComesBack,
)  # fmt: skip
