"""What a store says of its sessions, as JSON: our own with every field, a user's as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from holdfast import codec, transfer
from holdfast.commands import SUBLOGS
from holdfast.contract import Store
from holdfast.errors import HoldfastError
from holdfast.model import Message
from holdfast.verify.adapters import plain
from holdfast.verify.capsule.seeded import Write, old_records

AT: Final = datetime(2025, 1, 2, 3, 4, 5, 678901, UTC)
"""When every message of a capsule was made: the same seed makes the same capsule."""
_LATER: Final = {"mood": {"v": 3}}
"""A field that a later release may have."""


class HoldfastStore:
    """One of our stores."""

    keyed = rewrites = True

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self, lines: Iterable[str]) -> None:
        """Take over an export."""
        self._store.load(lines)

    def names(self, prefix: str = "") -> list[str]:
        """Every session that ever was, also those that were forgotten."""
        reader = transfer.Reader()
        copies = []
        for line in self._store.export(prefix=prefix):
            if (copy := reader.feed(line)) is not None:
                reader.count(copy, written=True)
                copies.append(copy)
        sessions = [copy.name for copy in copies if not copy.name.startswith(SUBLOGS[1:])]
        return [name.decode("utf-8", "surrogatepass") for name in sessions]

    def fill(self, writes: Iterable[Write]) -> list[str]:
        """Do all of it, and load old records; nothing is refused."""
        later = Message("user", "from 1.1", id="later", created_at=AT, unknown=_LATER)
        self._store.load(old_records(codec.encode(later)))
        for write in writes:
            if write.f == "forget":
                self._store.forget(write.session)
                continue
            messages = [as_message(message) for message in write.messages]
            if write.f == "rewrite":
                self._store.rewrite(write.session, messages)
            else:
                life: dict[str, Any] = {} if write.ttl_s is None else {"ttl_s": write.ttl_s}
                self._store.append(write.session, messages, key=write.key, **life)
        return []

    def tell(self, session: str) -> dict[str, Any]:
        """Everything that can be known of a session, or the error of asking."""
        try:
            found, stat = self._store.history(session), self._store.stat(session)
        except HoldfastError as error:
            return {"session": session, "error": _words(error)}
        return {
            "session": session,
            "state": found.state.value,
            "last": stat.last,
            "ttl_s": stat.ttl_s,
            "messages": [_message_json(message) for message in found],
            "damaged": [each.seq for each in found.damaged],
        }

    def add(self, session: str) -> dict[str, Any]:
        """Append one message; returns it as it must be read back."""
        message = _more()
        ack = self._store.append(session, message)
        return {**_message_json(message), "seq": ack.first}

    def retry(self, retry: dict[str, Any]) -> str:
        """Use a key again: what is wrong with the answer, or nothing."""
        ack = self._store.append(retry["session"], _more(), key=retry["key"])
        if not ack.repeated:
            return f"a retry with the key {retry['key']!r} was taken for new"
        numbers = [retry["first"], retry["last"]]
        answer = [ack.first, ack.last]
        return "" if answer == numbers else f"the ack of a retry was {numbers}, is {answer}"

    def acks(self, writes: Iterable[Write]) -> Iterator[dict[str, Any]]:
        """The keys that were used, with the numbers that they stand for."""
        for write in writes:
            if write.key is not None:
                ack = self._store.append(write.session, _more(), key=write.key)
                yield {
                    "session": write.session,
                    "key": write.key,
                    "first": ack.first,
                    "last": ack.last,
                }


class UserStore:
    """A user's store, through the small surface that every store has."""

    rewrites = False

    def __init__(self, client: plain.Client, *, keyed: bool) -> None:
        self._client = client
        self.keyed = keyed and client.takes_key

    def fill(self, writes: Iterable[Write]) -> list[str]:
        """Do all of it; what the store refuses is returned in words, and is not in the capsule."""
        refused = []
        for write in writes:
            try:
                if write.f == "forget":
                    self._client.forget(write.session)
                else:
                    self._client.append(write.session, write.messages, key=write.key)
            except Exception as error:  # noqa: BLE001 - a user's store may raise anything
                refused.append(f"{write.f} {write.session!r}: {_words(error)}")
        return refused

    def tell(self, session: str) -> dict[str, Any]:
        """Its messages as it gives them, or the error of asking."""
        try:
            read = self._client.history(session)
        except Exception as error:  # noqa: BLE001 - as above
            return {"session": session, "error": _words(error)}
        numbers = read.seqs or (None,) * len(read.messages)
        messages = [
            {**message, **({} if seq is None else {"seq": seq})}
            for message, seq in zip(read.messages, numbers, strict=True)
        ]
        # Through JSON, as it will come out of the capsule.
        plainly = json.loads(json.dumps(messages, default=repr))
        return {"session": session, "messages": plainly, "damaged": list(read.damaged)}

    def add(self, session: str) -> dict[str, Any]:
        """Append one message; returns it as it must be read back."""
        message = {"id": "capsule.more", "role": "user", "content": "one more"}
        self._client.append(session, [message])
        return message

    def acks(self, writes: Iterable[Write]) -> Iterator[dict[str, Any]]:
        """The keys that were used, with what was written under each."""
        for write in writes:
            if write.key is not None:
                messages = list(write.messages)
                yield {"session": write.session, "key": write.key, "messages": messages}

    def retry(self, retry: dict[str, Any]) -> str:
        """Use a key again: what is wrong with what is there then, or nothing."""
        before = len(self._client.history(retry["session"]).messages)
        self._client.append(retry["session"], retry["messages"], key=retry["key"])
        added = len(self._client.history(retry["session"]).messages) - before
        return f"a retry with the key {retry['key']!r} added {added} messages" if added else ""


def as_message(turn: dict[str, Any]) -> Message:
    """A message of a capsule as our own class."""
    extra = {name: value for name, value in turn.items() if name not in plain.FIELDS}
    return Message(turn["role"], turn["content"], id=turn["id"], created_at=AT, extra=extra)


def _more() -> Message:
    return Message("user", "one more", id="capsule.more", created_at=AT)


def _message_json(message: Message) -> dict[str, Any]:
    at = message.created_at
    return {
        "seq": message.seq,
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "created_at": None if at is None else at.isoformat(),
        "extra": message.extra,
        "unknown": message.unknown,
    }


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
