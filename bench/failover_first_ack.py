"""Where the time goes between the loss of a PostgreSQL primary under Patroni and the next ack at REPLICA.

Side by side in each failover, all polling every 10 ms: who holds the lease by Patroni's own word, which
server says that it is primary, a plain psycopg client's first commit, the same client's first commit that
a synchronous standby has on its disk, and our store's first ack at `REPLICA`. The last two promise the
same; the standby has to follow the new primary before either can be given.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import psycopg

import holdfast
from bench.figure import Figure
from holdfast import Durability, HoldfastError, Message
from holdfast.verify.engines import start_engine
from holdfast.verify.proof import await_true

ROUNDS = 5
POLL_S = 0.01
WAIT_S = 120.0
STEPS = ("lease", "primary", "commit", "confirmed", "store")
_CONFIRMED = (
    "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum') "
    "AND flush_lsn >= %s::pg_lsn"
)


def run() -> Iterator[Figure]:
    """Our first ack beside a plain client's at the same durability, and beside the promotion alone."""
    with start_engine("postgres", topology="patroni") as engine:
        with psycopg.connect(engine.url, autocommit=True) as client:
            client.execute("CREATE TABLE plain (n int)")
        taken = [_failover(engine, number) for number in range(ROUNDS)]
    median = {step: statistics.median(one[step] for one in taken) for step in STEPS}
    spent = ", ".join(f"{step} {median[step]:.2f} s" for step in STEPS)
    yield Figure(
        "Patroni: first ack at REPLICA / a plain client's first confirmed commit",
        statistics.median(one["store"] / one["confirmed"] for one in taken),
        at_most=1.5,
        detail=f"{ROUNDS} failovers, medians after the kill: {spent}",
    )
    yield Figure(
        "Patroni: first ack at REPLICA / another member is primary",
        statistics.median(one["store"] / one["primary"] for one in taken),
        detail="the difference is the standby, which has to follow the new primary first",
    )
    yield Figure(
        "Patroni: a plain client's first confirmed commit / another member is primary",
        statistics.median(one["confirmed"] / one["primary"] for one in taken),
        detail="no client can be acknowledged at REPLICA sooner",
    )


def _failover(engine: Any, number: int) -> dict[str, float]:
    """How long each step took after the kill."""
    old = engine.primary()
    others = [one for one in engine.members if one is not old]
    with _Store(engine.url, f"round-{number}") as store:
        began_s = time.monotonic()
        done: dict[str, float] = {}

        def watch(step: str, look: Callable[[], bool]) -> None:
            if await_true(look, WAIT_S, POLL_S):
                done[step] = time.monotonic() - began_s

        threads = [
            threading.Thread(target=watch, args=one)
            for one in (
                ("lease", lambda: _leader(others) not in ("", old.name)),
                ("primary", lambda: any(_is_primary(one) for one in others)),
                ("commit", lambda: any(_commits(one, confirmed=False) for one in others)),
                ("confirmed", lambda: any(_commits(one, confirmed=True) for one in others)),
            )
        ]
        old.kill()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        done["store"] = store.first_after(began_s + done["primary"]) - began_s
    engine.rejoin()
    return done


def _leader(members: list[Any]) -> str:
    """Who holds the lease, by Patroni's word."""
    found = [one["name"] for one in members[0].cluster() if one["role"] == "leader"]
    return str(found[0]) if found else ""


def _is_primary(member: Any) -> bool:
    with contextlib.suppress(OSError):
        return bool(member.query("SELECT pg_is_in_recovery()") == [("f",)])
    return False


def _commits(member: Any, *, confirmed: bool) -> bool:
    """Whether a plain client's commit is done there; and is on a synchronous standby's disk."""
    try:
        with psycopg.connect(member.url, autocommit=True, connect_timeout=2) as client:
            client.execute("INSERT INTO plain VALUES (1)")
            row = client.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            found = client.execute(_CONFIRMED, row).fetchone()
    except psycopg.Error:
        return False
    return bool(found and found[0]) or not confirmed


class _Store:
    """One writer that appends through our store until the block ends."""

    def __init__(self, url: str, session: str) -> None:
        self._url, self._session = url, session
        self._acks: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        if not await_true(lambda: len(self._acks) > 0, WAIT_S):
            raise RuntimeError("the store acknowledged nothing")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)

    def first_after(self, since_s: float) -> float:
        """When the first ack after that came."""
        if not await_true(lambda: self._acks[-1] > since_s, WAIT_S):
            raise RuntimeError("the store acknowledged nothing after the failover")
        return next(at_s for at_s in self._acks if at_s > since_s)

    def _write(self) -> None:
        with holdfast.connect(self._url, require=Durability.REPLICA) as store:
            turn = 0
            while not self._stop.wait(POLL_S):
                text = f"{self._session} {turn}"
                with contextlib.suppress(HoldfastError):
                    store.append(self._session, Message("user", text), key=text)
                    self._acks.append(time.monotonic())
                    turn += 1
