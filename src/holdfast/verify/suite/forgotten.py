"""forgotten: deleting removes, and nothing brings it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.history import Event
from holdfast.verify.suite.judging import cannot, hold, ids, judged, new_session, recorded, server
from holdfast.verify.suite.record import turn
from holdfast.verify.target import Target
from holdfast.verify.workload import memories

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


def test_what_was_forgotten_is_not_found_by_meaning(target: Target) -> None:
    """Neither what was said nor what was remembered: here, later, and after a restart."""
    _must_recall(target)
    session = new_session()
    with Client(target) as client:
        memories.fill(client, session, memories.SECRETS)
        client.recall(session, memories.SECRETS[0], k=1)
        if client.summarizes:
            client.summarize(session)
        client.forget(session)
        _not_found(client, session, "at once")
    engine = server(target)
    if engine is not None:
        engine.stop()
        engine.start()
    with Client(target) as later:
        _not_found(later, session, "for a later client")
    left = memories.left_behind(target, session)
    hold("forgotten", not left, "; ".join(left))


def test_a_late_retry_does_not_make_it_found_again(target: Target) -> None:
    """What was said or remembered before the forget is sent once more."""
    _must_recall(target)
    if target.claims.of("exactly-once") is not True:
        cannot("the target claims no key, so a retry cannot be told from a new append")
    session = new_session()
    with Client(target) as client:
        memories.fill(client, session, memories.SECRETS, key="request-1")
        client.recall(session, memories.SECRETS[0], k=1)
        client.forget(session)
        memories.fill(client, session, memories.SECRETS, key="request-1", late=True)
        _not_found(client, session, "after a late retry")


def test_no_vector_of_a_long_session_is_left(target: Target) -> None:
    """Also what lies behind the first page: not found, and not stored."""
    _must_recall(target)
    session = new_session()
    texts = [f"{name} is a secret" for name in ids("m", MANY)]
    with Client(target) as client:
        client.append(session, [turn(text) for text in texts])
        client.remember(session, texts[0] + " that was remembered")
        found = memories.missing(client, session, texts[-1], texts[-1], memories.K)
        hold("recallable", found is None, str(found))
        client.forget(session)
        _not_found(client, session, "at once", [*texts[:2], *texts[-2:]])
    left = memories.left_behind(target, session)
    hold("forgotten", not left, "; ".join(left))


def test_an_index_that_is_rebuilt_brings_nothing_back(target: Target) -> None:
    """From the log, which has nothing left of it."""
    _must_recall(target)
    index = target.index
    if index.lose is None or index.count is None:
        cannot(memories.NO_INDEX)
    session = new_session()
    with Client(target) as client:
        memories.fill(client, session, memories.SECRETS)
        client.recall(session, memories.SECRETS[0], k=1)
        client.forget(session)
        memories.fill(client, session, [text for text, _ in memories.FACTS])
        client.recall(session, memories.SECRETS[0], k=1)
    before = index.count(session)
    index.lose(session)
    if not before or index.count(session):
        cannot(f"the index was not lost: it had {before} vectors and has {index.count(session)}")
    with Client(target) as later:
        _not_found(later, session, "after its index was rebuilt")


def _must_recall(target: Target) -> None:
    for promise, reason in target.claims.not_claimed():
        if promise == "recallable":
            cannot(f"recallable is not claimed: {reason}")


def _not_found(
    client: Client, session: str, when: str, texts: Sequence[str] = memories.SECRETS
) -> None:
    wrong = memories.unforgotten(client, session, texts)
    hold("forgotten", not wrong, f"{when}: {''.join(wrong[:1])}, {len(wrong)} such")
