"""The canary: a message of our own, written, acknowledged, and looked for again in every round.

It lives in a namespace of its own and in two sessions of this process, one that stays and one
that expires. They are erased at a clean stop, and expire by themselves after any other.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Sequence
from typing import Final

from holdfast.connection import connect, existing
from holdfast.contract import Store
from holdfast.doctor.tally import Tally
from holdfast.errors import Conflict, StorageWarning
from holdfast.model import Durability, History, Message, SessionState

NAMESPACE: Final = "holdfast-canary"
TTL_S: Final = 60.0
"""Of the session that expires."""
LEASE_S: Final = 24 * 3600
"""Of the one that stays: after so long without a round it is gone by itself."""
KEPT: Final = 100
MESSAGES_MAX: Final = 200
"""Then the session is rewritten with its newest `KEPT`."""
EXPECTED_MAX: Final = 30
LATE_S: Final = 2.0


class Canary:
    """Raises an error of the tree when the engine is away, and goes on when it is back."""

    def __init__(self, url: str, tally: Tally, *, ttl_s: float = TTL_S) -> None:
        self._url, self._tally, self._ttl_s = existing(url), tally, ttl_s
        self._store: Store | None = None
        name = f"{socket.gethostname()}-{os.getpid()}"
        self.session, self.ttl_session = f"stays-{name}", f"expires-{name}"
        self._expected: list[str] = []
        """Ids of acknowledged messages, in the order of their acks."""
        self._last = 0
        self._alive: tuple[float, float] | None = None
        """When the write that began the expiring session was sent, and acknowledged."""

    def round(self) -> None:
        """Write, read back, compare."""
        store = self._opened()
        begin_s = time.monotonic()
        self._write(store)
        history = store.history(self.session)
        self._tally.took(time.monotonic() - begin_s)
        self._compare(history)
        if len(history) >= MESSAGES_MAX:
            self._shorten(store, history)
        self._look_at_expiry(store)

    def close(self) -> None:
        """Erase what it wrote, as far as the engine lets it, and let go of the store."""
        if self._store is not None:
            try:
                self._store.forget(self.session)
                self._store.forget(self.ttl_session)
            finally:
                self._store.close()

    def _opened(self) -> Store:
        if self._store is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StorageWarning)  # the audit says it in full
                self._store = connect(self._url, namespace=NAMESPACE, require=Durability.MEMORY)
        return self._store

    def _write(self, store: Store) -> None:
        message = Message("system", "canary of holdfast doctor")
        # If the outcome is unknown it is not expected either: then it is no loss, nor a surprise.
        ack = store.append(self.session, message, ttl_s=LEASE_S)
        self._tally.acknowledged += 1
        if ack.first <= self._last:  # numbers never restart, so something was forgotten
            self._tally.misordered += 1
        self._last = ack.last
        self._expected.append(message.id)

    def _compare(self, history: History) -> None:
        seen = [message.id for message in history]
        lost = [each for each in self._expected if each not in seen]
        self._tally.lost += len(lost)
        kept = [each for each in self._expected if each not in lost]
        found = [each for each in seen if each in set(kept)]
        self._tally.misordered += found != kept
        self._expected = found[-EXPECTED_MAX:]

    def _shorten(self, store: Store, history: Sequence[Message]) -> None:
        last = history[-1].seq
        try:
            ack = store.rewrite(self.session, history[-KEPT:], expect=last)
        except Conflict:
            return
        self._last = ack.last

    def _look_at_expiry(self, store: Store) -> None:
        """Begin the session that expires, or see whether it is as it should be at this moment."""
        if self._alive is None:
            sent_s = time.monotonic()
            store.append(self.ttl_session, Message("system", "canary"), ttl_s=self._ttl_s)
            self._alive = sent_s, time.monotonic()
            return
        sent_s, acked_s = self._alive
        asked_s = time.monotonic()
        stat = store.stat(self.ttl_session)
        now_s, now = time.monotonic(), time.time()
        if stat.state is SessionState.LIVE and stat.expires_at is not None:
            left_s = stat.expires_at.timestamp() - now
            self._tally.ttl_drift_s = left_s - (self._ttl_s - (now_s - acked_s))
            if asked_s - acked_s > self._ttl_s + LATE_S:
                self._tally.expired_late += 1
                self._alive = None
        else:
            if now_s - sent_s < self._ttl_s:
                self._tally.expired_early += 1
                self._tally.ttl_drift_s = now_s - sent_s - self._ttl_s
            self._alive = None
