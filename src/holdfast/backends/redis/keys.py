"""Names of Redis keys: whatever ids contain, no two sessions share one, and each has one hash slot.

    hf:{default.user-42}:head    hash: last number, floor, bytes, time to live, state; of a session that
                                 is gone it is the tombstone, which stays for `keys_kept_s`
    hf:{default.user-42}:log     list of records; expires as a whole
    hf:{default.user-42}:keys    hash: idempotency key -> numbers, and when it was used
    hf:{default.user-42}:followed, …:entries    the index of the log; derived, expires with it; or
    hf:{default.user-42}:near, …:words          for entries, where the engine compares vectors
    hf:{default.user-42}:memories:head, …       the same for what was remembered beside it
    hf:{default.user-42}:summaries:head, …      and for its summaries
    hf:{default.%FFd5e88…}:head, …              what forget(now=True) leaves: a digest for the name, and
                                                no log; not in a cluster, where it is in another slot
    hf:{default}:names           sorted set of session names: of every session that is alive, and of
                                 those whose end no listing has come across yet
    hf:{default}:gone            sorted set of names that a listing found expired or forgotten
    hf:{default}:going           hash: name -> who is about to move it from one to the other

Bytes outside `A-Z a-z 0-9 _ - ~` are written as `%41`, so that neither a dot nor a brace of an
id can be taken for one of ours.
"""

from __future__ import annotations

import functools
from typing import Final
from urllib.parse import quote_from_bytes

from redis.crc import key_slot

from holdfast.commands import MEMORIES, SUMMARIES
from holdfast.tombstones import digest_name, is_digest

SLOTS: Final = 16_384
NAMES_KEPT: Final = 1024
_SUBLOGS: Final = {MEMORIES: b"memories", SUMMARIES: b"summaries"}


def _quoted(data: bytes) -> bytes:
    """Injective, and without any byte that means something in a key or a pattern."""
    return quote_from_bytes(data, safe="~").replace(".", "%2E").encode("ascii")


class Keys:
    """The keys of one namespace."""

    def __init__(self, namespace: bytes, kept_ms: int = 0) -> None:
        self.kept_ms = kept_ms
        """How long used keys and tombstones are kept; 0 for ever."""
        self._space = _quoted(namespace)
        self.index = b"hf:{%b}:names" % self._space
        self.gone = b"hf:{%b}:gone" % self._space
        self.going = b"hf:{%b}:going" % self._space
        self.session = functools.lru_cache(NAMES_KEPT)(self._session)
        """Head, log and used keys of a session."""
        self.tombstone = functools.lru_cache(NAMES_KEPT)(self._tombstone)
        """What the keys of a session's tombstone begin with, if that bears a digest; and a mark."""

    def _session(self, name: bytes) -> tuple[bytes, bytes, bytes]:
        stem = self._stem(name)
        return stem + b"head", stem + b"log", stem + b"keys"

    def _tombstone(self, name: bytes) -> bytes | None:
        if is_digest(name):
            return None
        session = name[len(MEMORIES) :] if name.startswith(tuple(_SUBLOGS)) else name
        return self._stem(digest_name(session)) + b"tombstone"

    def staged(self, name: bytes, token: bytes) -> tuple[bytes, bytes]:
        """Where records and keys wait until a load commits them; each load has its own."""
        stem = self._stem(name)
        return stem + b"staged-log:" + token, stem + b"staged-keys:" + token

    def _stem(self, name: bytes) -> bytes:
        """A log beside a session is in the session's slot: one step can reach both."""
        for sublog, word in _SUBLOGS.items():
            if name.startswith(sublog):
                return b"hf:{%b.%b}:%b:" % (self._space, _quoted(name[len(sublog) :]), word)
        return b"hf:{%b.%b}:" % (self._space, _quoted(name))


def slot_of(key: bytes) -> int:
    """The hash slot of a key, as Redis Cluster computes it."""
    return int(key_slot(key))
