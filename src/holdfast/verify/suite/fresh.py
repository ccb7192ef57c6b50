"""fresh: a read after the ack sees the write."""

from __future__ import annotations

from holdfast.verify.history import Event
from holdfast.verify.suite.judging import cannot, hold, judged, new_session, recorded
from holdfast.verify.suite.peers import finish, peers
from holdfast.verify.target import Target


def test_another_client_sees_each_write_at_once(target: Target) -> None:
    """The reader has read before, so a cache of its own would show."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events, 1) as writer, recorded(target, events, 2) as reader:
        reader.read(session)
        for turn in range(10):
            writer.append(session, [f"m.{turn}"])
            reader.read(session)
        writer.read(session)
    with recorded(target, events, 3) as later:
        later.read(session)
    judged("fresh", target, events)


def test_a_client_sees_what_another_process_wrote(target: Target) -> None:
    """A process writes and ends while a reader stays open."""
    events: list[Event] = []
    session = new_session()
    work = lambda client: client.append(session, ["m.1"])  # noqa: E731 - as a user would
    with peers(target, [work], begin=False) as clients, recorded(target, events, 2) as reader:
        reader.append(session, ["m.0"])
        reader.read(session)
        clients[0].go()
        events += finish(clients)
        reader.read(session)
    with recorded(target, events, 3) as later:
        later.read(session)
    judged("fresh", target, events)


def test_another_client_sees_a_forget_at_once(target: Target) -> None:
    """What one client was told to forget, another that is open no longer shows."""
    if target.claims.of("forgotten") is not True:
        cannot("the target does not claim that it can forget")
    events: list[Event] = []
    session = new_session()
    with recorded(target, events, 1) as writer, recorded(target, events, 2) as reader:
        writer.append(session, ["m.0"])
        before = reader.read(session)
        done = writer.forget(session)
        seen = reader.read(session)
    hold("fresh", before == ["m.0"], f"m.0 was acknowledged, and another client read {before}")
    if done:
        hold("fresh", seen == [], f"the session was forgotten, and another client read {seen}")
