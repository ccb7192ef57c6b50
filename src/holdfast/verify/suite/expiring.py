"""expiring: a session expires as a whole, not before its time and not after."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.history import Event
from holdfast.verify.suite.judging import (
    cannot,
    clocked,
    hold,
    ids,
    judged,
    new_session,
    recorded,
)
from holdfast.verify.suite.peers import listen, peers
from holdfast.verify.suite.record import LATE_S, Recorded
from holdfast.verify.target import Target

TTL_MAX_S: Final = 3.0
"""A test does not wait longer than this for a session to expire."""
CLOCK_TTL_MIN_S: Final = 60.0
"""With less, the time that a test takes would count."""
_POLL_S: Final = 0.01
WRITERS: Final = 8
SESSIONS_MAX: Final = 2000
TRIES_MAX: Final = 3
"""On a machine that stalls, a write may come too late to be a refresh."""


def test_a_session_expires_on_time_and_as_a_whole(target: Target) -> None:
    """It is all there for all of its time, and all gone after it."""
    ttl_s = _ttl_s(target)
    events: list[Event] = []
    session = new_session()
    with recorded(target, events) as client:
        client.append(session, ids("a", 3))
        client.append(session, ["b.0"])
        _poll(lambda: client.read(session) == [], time.monotonic() + ttl_s + 2 * LATE_S)
    _as_a_whole(events)
    judged("expiring", target, events)


def test_each_write_starts_the_time_of_the_whole_session_anew(target: Target) -> None:
    """Written to in time, again and again, it is all there; and then all of it goes."""
    ttl_s = _ttl_s(target)
    events = _refresh(target, ttl_s)
    for _ in range(TRIES_MAX):
        _as_a_whole(events)
        if _all_there(events, ttl_s):
            break
        events = _refresh(target, ttl_s)  # the machine stalled, and a write came too late
    judged("expiring", target, events)


def _refresh(target: Target, ttl_s: float) -> list[Event]:
    """Write before the time is over, four times, and look all the while; then let it end."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events) as client:
        for name in ids("m", 4):
            client.append(session, [name])
            next_s = time.monotonic() + 0.45 * ttl_s
            _poll(lambda: client.read(session) is None, next_s)
        _poll(lambda: client.read(session) == [], time.monotonic() + ttl_s + 2 * LATE_S)
    return events


def _all_there(events: list[Event], ttl_s: float) -> bool:
    """Hold every read in the time of the last write to all that was written; False if one was late.

    The judge says so too, where a read found the session empty. Where the part that had expired
    was created again by the very next write, it only sees that messages are lost.
    """
    live_ns = round((ttl_s - LATE_S) * 1e9)
    written: list[str] = []
    until_ns = 0
    invoked: Event | None = None
    for event in events:
        if event.type == "invoke":
            invoked = event
        elif event.type == "ok" and invoked is not None and invoked.f == "append":
            if written and event.time_ns > until_ns:
                return False
            written += invoked.messages or ()
            until_ns = invoked.time_ns + live_ns
        elif event.type == "ok" and event.time_ns < until_ns:
            missing = [name for name in written if name not in (event.messages or ())]
            words = f"{missing} went although the session was written to in time"
            hold("expiring", not missing, words)
    return True


def test_a_long_time_to_live_passes_on_the_clock_of_the_engine(target: Target) -> None:
    """Days pass by moving the engine's clock: there shortly before its time, gone after it."""
    engine = clocked(target)
    ttl_s = float(target.ttl_s or 0)
    if ttl_s < CLOCK_TTL_MIN_S:
        cannot(f"a time to live of {ttl_s:g} s passes by itself")
    session = new_session()
    with Client(target) as client:
        sent = [{"role": "user", "content": name, "id": name} for name in ids("m", 3)]
        client.append(session, sent)
        engine.move_clock(ttl_s * 6 / 7)
        found = client.history(session).ids()
        hold("expiring", found == ids("m", 3), f"after 6/7 of its time it has {found}")
        engine.move_clock(ttl_s * 2 / 7)
        left = client.history(session).ids()
        hold("expiring", not left, f"after 8/7 of its time {left} are still there")


def test_no_crash_leaves_a_session_that_never_expires(target: Target) -> None:
    """Writers are killed, each in the middle of a new session; the refresh is part of the write."""
    ttl_s = _ttl_s(target)

    def work(client: Recorded) -> None:
        for _ in range(SESSIONS_MAX):
            client.append(new_session(), ["m"])

    with peers(target, [work] * WRITERS) as clients:
        for peer in clients:
            listen([peer], lambda peer=peer: peer.ended or peer.acks() > 1)  # type: ignore[misc]
            peer.kill()
        end_s = time.monotonic() + ttl_s + LATE_S
        last = [[e.session for e in peer.events if e.session][-1] for peer in clients]
    with Client(target) as client:
        left = set(last)

        def gone() -> bool:
            left.intersection_update([name for name in left if client.history(name).messages])
            return not left

        _poll(gone, end_s)
        kept = len(left)
    hold("expiring", not kept, f"{kept} of {WRITERS} writers that died left what never expires")


def _ttl_s(target: Target) -> float:
    if target.ttl_s is None:
        hold("expiring", False, "it is claimed, and Target(ttl_s=…) does not say after how long")
    ttl_s = float(target.ttl_s or 0)
    if ttl_s > TTL_MAX_S:
        cannot(
            f"a time to live of {ttl_s:g} s is too long to wait for; give the target a short one"
        )
    return ttl_s


def _as_a_whole(events: list[Event]) -> None:
    """What one read showed together, a later one shows together or not at all."""
    reads = [e.messages for e in events if e.type == "ok" and e.messages is not None]
    for before, after in itertools.pairwise(reads):
        gone = set(before) - set(after)
        rest = set(before) & set(after)
        words = f"{sorted(gone)} went, {sorted(rest)} of the same session stayed"
        hold("expiring", not gone or not rest, words)


def _poll(done: Callable[[], bool], end_s: float) -> None:
    """Ask until it is done or the time is over, and once more after that."""
    while not done() and time.monotonic() < end_s:
        time.sleep(_POLL_S)
    done()
