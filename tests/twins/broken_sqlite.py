"""Broken stores on SQLite. Each docstring says how people come to write it."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from typing import ClassVar

from tests.twins.sound import SqliteStore, Turn

KILLED_AT_A_CALL = (
    "test_a_model_takes_a_session_whose_writer_died_between_a_tool_call_and_its_result"
)


class AckBeforeDisk(SqliteStore):
    """Commits are slow, so rows are collected and written five hundred at a time."""

    promise: ClassVar = "durable"
    caught_by: ClassVar = ("test_messages_survive_sigkill_of_their_writers",)
    ROWS = 500

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        self.waiting = [*getattr(self, "waiting", []), (session, messages, key)]
        if len(self.waiting) >= self.ROWS:
            self.flush()

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        self.flush()
        return super().history(session, limit)

    def flush(self) -> None:
        for session, messages, key in getattr(self, "waiting", []):
            super().append(session, messages, key)
        self.waiting = []

    def close(self) -> None:
        self.flush()
        super().close()


class ClockOfSeconds(SqliteStore):
    """`DEFAULT CURRENT_TIMESTAMP` is right there in the manual; it counts in seconds."""

    promise: ClassVar = "ordered"
    caught_by: ClassVar = ("test_a_message_stands_after_those_acknowledged_before_it",)
    schema: ClassVar = (
        "CREATE TABLE message (id TEXT PRIMARY KEY, session TEXT, record TEXT,"
        " created_at TEXT DEFAULT CURRENT_TIMESTAMP);"
        "CREATE TABLE request (session TEXT, key TEXT, PRIMARY KEY (session, key));"
    )

    def insert(self, session: str, records: list[str]) -> None:
        rows = [(uuid.uuid4().hex, session, record) for record in records]
        self.db.executemany("INSERT INTO message (id, session, record) VALUES (?, ?, ?)", rows)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        newest = "SELECT record FROM message WHERE session = ? ORDER BY created_at DESC, id LIMIT ?"
        rows = self.db.execute(newest, (session, -1 if limit is None else limit)).fetchall()
        return self.decode([record for (record,) in reversed(rows)])


class CommitPerMessage(SqliteStore):
    """`save_message` existed, so `save_messages` calls it in a loop."""

    promise: ClassVar = "atomic"
    caught_by: ClassVar = ("test_a_batch_that_is_refused_leaves_nothing",)

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        for number, message in enumerate(messages):
            super().append(session, [message], None if key is None else f"{key}/{number}")


class OpenCall(SqliteStore):
    """A prompt is what was stored, as it was stored: a call whose result never came is in it for ever."""

    promise: ClassVar = "atomic"
    caught_by: ClassVar = (KILLED_AT_A_CALL,)

    def for_model(self, session: str) -> list[Turn]:
        return self.history(session)


class TrimsTheEnd(SqliteStore):
    """A turn that is not finished is cut off at the end of a history; then somebody writes another message."""

    promise: ClassVar = "atomic"
    caught_by: ClassVar = (KILLED_AT_A_CALL,)

    def for_model(self, session: str) -> list[Turn]:
        turns = self.history(session)
        at = max((n for n, turn in enumerate(turns) if turn["role"] != "tool"), default=0)
        results = len(turns) - at - 1
        return turns if not turns or len(turns[at].get("tool_calls", ())) == results else turns[:at]


class RetryDuplicates(SqliteStore):
    """The signature takes a key because the interface has one; nothing looks at it."""

    promise: ClassVar = "exactly-once"
    caught_by: ClassVar = (
        "test_a_retry_with_the_same_key_adds_nothing",
        "test_retries_for_a_killed_writer_add_what_is_missing_once",
    )

    def is_new(self, session: str, key: str) -> bool:  # noqa: ARG002 - that is what is wrong
        return True


class KeyInMemory(SqliteStore):
    """The keys seen are a set on the object: fast, and gone with the next deployment."""

    promise: ClassVar = "exactly-once"
    caught_by: ClassVar = ("test_a_retry_from_another_client_is_known",)

    def is_new(self, session: str, key: str) -> bool:
        seen: set[tuple[str, str]] = self.__dict__.setdefault("seen", set())
        new = (session, key) not in seen
        seen.add((session, key))
        return new


class ReadTransactionLeftOpen(SqliteStore):
    """A second connection for reads began a transaction once, "for consistency"."""

    promise: ClassVar = "fresh"
    caught_by: ClassVar = ("test_another_client_sees_a_forget_at_once",)
    schema: ClassVar = "PRAGMA journal_mode=WAL;" + SqliteStore.schema

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        if not hasattr(self, "reader"):
            path = self.db.execute("PRAGMA database_list").fetchone()[2]
            self.reader = sqlite3.connect(path, isolation_level=None)
            self.reader.execute("BEGIN")
        writer, self.db = self.db, self.reader
        try:
            return super().history(session, limit)
        finally:
            self.db = writer

    def close(self) -> None:
        if hasattr(self, "reader"):
            self.reader.close()
        super().close()


class LimitFromTheWrongEnd(SqliteStore):
    """`ORDER BY n LIMIT 10` reads as "the ten messages of this session"."""

    promise: ClassVar = "snapshot"
    caught_by: ClassVar = ("test_the_newest_n_are_the_newest_n",)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        oldest = "SELECT record FROM message WHERE session = ? ORDER BY n LIMIT ?"
        rows = self.db.execute(oldest, (session, -1 if limit is None else limit)).fetchall()
        return self.decode([record for (record,) in rows])


class LimitBeforeFilter(SqliteStore):
    """The newest N of the whole table are cached for the page, then filtered by session."""

    promise: ClassVar = "snapshot"
    caught_by: ClassVar = ("test_the_newest_n_of_one_session_while_another_is_busy",)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        newest = "SELECT session, record FROM message ORDER BY n DESC LIMIT ?"
        rows = self.db.execute(newest, (-1 if limit is None else limit,)).fetchall()
        return self.decode([record for owner, record in reversed(rows) if owner == session])


class CollidingKeys(SqliteStore):
    """Ids are made safe for use as a file or table name; two may become the same."""

    promise: ClassVar = "isolated"
    caught_by: ClassVar = ("test_ids_of_any_kind_stay_apart",)

    def insert(self, session: str, records: list[str]) -> None:
        super().insert(self.safe(session), records)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        return super().history(self.safe(session), limit)

    def forget(self, session: str) -> None:
        super().forget(self.safe(session))

    @staticmethod
    def safe(session: str) -> str:
        return re.sub(r"\W", "_", session.lower())


class LossySerializer(SqliteStore):
    """`default=str` made an exception go away; content is "always text" anyway."""

    promise: ClassVar = "faithful"
    caught_by: ClassVar = (
        "test_content_comes_back_exactly",
        "test_odd_content_comes_back_exactly_or_is_refused",
    )

    def encode(self, message: Turn) -> str:
        return json.dumps({**message, "content": str(message["content"]).strip()}, default=str)


class OneDamagedRecordHidesAll(SqliteStore):
    """One list comprehension with `json.loads` in it."""

    promise: ClassVar = "faithful"
    caught_by: ClassVar = ("test_a_damaged_record_is_named_and_hides_nothing_else",)

    def decode(self, records: Sequence[str]) -> list[Turn]:
        return [json.loads(record) for record in records]


class ForgetsTheFirstPage(SqliteStore):
    """The listing has pages of a hundred, and forget deletes what the listing returns."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_all_of_a_long_session_is_forgotten",)

    def forget(self, session: str) -> None:
        page = "SELECT n FROM message WHERE session = ? ORDER BY n LIMIT 100"
        self.db.execute(f"DELETE FROM message WHERE n IN ({page})", (session,))


class FullDiskSwallowed(SqliteStore):
    """ "A chat must not fail because of its memory", so errors are logged and the turn goes on."""

    promise: ClassVar = "loud"
    caught_by: ClassVar = ("test_a_full_disk_is_an_error",)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with contextlib.suppress(sqlite3.Error), super().transaction():
            yield


class ForgottenCommit(SqliteStore):
    """sqlite3 opens a transaction by itself; it does not end it by itself."""

    promise: ClassVar = "durable"
    caught_by: ClassVar = ("test_messages_are_there_for_a_client_that_opens_later",)

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        if not self.db.in_transaction:
            self.db.execute("BEGIN")
        if key is None or self.is_new(session, key):
            self.insert(session, [self.encode(message) for message in messages])


class RolesGuessed(SqliteStore):
    """Only the texts are kept: users and assistants take turns anyway."""

    promise: ClassVar = "faithful"
    caught_by: ClassVar = ("test_roles_come_back_exactly",)

    def decode(self, records: Sequence[str]) -> list[Turn]:
        turns = super().decode(records)
        for number, turn in enumerate(turns):
            turn["role"] = ("user", "assistant")[number % 2]
        return turns


class ForgetsTheKeysToo(SqliteStore):
    """Forgetting removes every row of the session, those that know its old requests too."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_a_late_retry_brings_nothing_back",)

    def forget(self, session: str) -> None:
        super().forget(session)
        self.db.execute("DELETE FROM request WHERE session = ?", (session,))


BROKEN = (
    AckBeforeDisk, ForgottenCommit, RolesGuessed, ForgetsTheKeysToo, ClockOfSeconds, CommitPerMessage, OpenCall, TrimsTheEnd,
    RetryDuplicates, KeyInMemory, ReadTransactionLeftOpen, LimitFromTheWrongEnd, LimitBeforeFilter, CollidingKeys, LossySerializer,
    OneDamagedRecordHidesAll, ForgetsTheFirstPage, FullDiskSwallowed,
)  # fmt: skip
