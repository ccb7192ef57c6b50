"""forgotten: deleting removes, and nothing brings it back."""

from __future__ import annotations

from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.history import Event
from holdfast.verify.suite.judging import cannot, hold, ids, judged, new_session, recorded, server
from holdfast.verify.suite.record import turn
from holdfast.verify.target import Target

MANY: Final = 250
"""More than one page of anybody's delete."""


def test_a_forgotten_session_is_empty_and_stays_so(target: Target) -> None:
    """For the one who forgot it, for one who opens later, and after a restart of the engine."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events, 1) as client:
        client.append(session, ids("m", 3))
        client.read(session)
        client.forget(session)
        client.read(session)
    engine = server(target)
    if engine is not None:
        engine.stop()
        engine.start()
    with recorded(target, events, 2) as later:
        later.read(session)
    judged("forgotten", target, events)


def test_all_of_a_long_session_is_forgotten(target: Target) -> None:
    """Also what lies behind the first page."""
    session = new_session()
    with Client(target) as client:
        client.append(session, [turn(name) for name in ids("m", MANY)])
        client.forget(session)
        left = client.history(session).ids()
    hold("forgotten", not left, f"{len(left)} of {MANY} messages are left, the first is {left[:1]}")


def test_a_new_beginning_has_nothing_of_the_old(target: Target) -> None:
    """A session that is written to again begins empty."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events) as client:
        client.append(session, ids("old", 3))
        client.read(session)
        client.forget(session)
        client.append(session, ["new.0"])
        client.read(session)
    judged("forgotten", target, events)


def test_a_late_write_brings_nothing_back(target: Target) -> None:
    """A client that knew the session before it was forgotten writes once more."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events, 1) as late, recorded(target, events, 2) as other:
        late.append(session, ids("old", 3))
        late.read(session)
        other.forget(session)
        late.append(session, ["new.0"])
        other.read(session)
    with recorded(target, events, 3) as later:
        later.read(session)
    judged("forgotten", target, events)


def test_a_late_retry_brings_nothing_back(target: Target) -> None:
    """A retry of an append from before the forget adds nothing."""
    if target.claims.of("exactly-once") is not True:
        cannot("the target claims no key, so a retry cannot be told from a new append")
    session = new_session()
    events: list[Event] = []
    with recorded(target, events) as client:
        client.append(session, ["old.0", "old.1"], key="request-1")
        client.forget(session)
        client.append(session, ["old.0", "old.1"], key="request-1")
        seen = client.read(session)
    hold("forgotten", seen == [], f"a retry of what was forgotten brought back {seen}")
