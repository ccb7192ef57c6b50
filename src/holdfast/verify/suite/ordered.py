"""ordered: what was acknowledged earlier stands earlier."""

from __future__ import annotations

from holdfast.verify.history import Event
from holdfast.verify.suite.judging import hold, ids, judged, new_session, recorded
from holdfast.verify.suite.peers import Work, finish, peers
from holdfast.verify.target import Target


def test_a_message_stands_after_those_acknowledged_before_it(target: Target) -> None:
    """Two clients take turns, each waiting for the ack of the other."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events, 1) as one, recorded(target, events, 2) as other:
        for turn in range(12):
            (one, other)[turn % 2].append(session, [f"m.{turn}"])
        other.read(session)
    judged("ordered", target, events)


def test_a_batch_keeps_its_order(target: Target) -> None:
    """The messages of one append come back in the order in which they were given."""
    events: list[Event] = []
    # Neither rising nor falling: an order by the text or by chance would not be this one.
    names = ["m.7", "m.2", "m.9", "m.1", "m.8", "m.3"]
    session = new_session()
    with recorded(target, events) as client:
        client.append(session, names)
        seen = client.read(session)
    hold("ordered", seen == names, f"{names} was appended as one batch, and {seen} came back")


def test_every_read_shows_one_order(target: Target) -> None:
    """While several processes write, no two reads may disagree on what stood first."""

    def work(prefix: str) -> Work:
        return lambda client: [
            (client.append(session, [name]), client.read(session)) for name in ids(prefix, 12)
        ]

    session = new_session()
    with peers(target, [work(f"w{number}") for number in range(3)]) as clients:
        events = finish(clients)
    with recorded(target, events) as reader:
        reader.read(session)
    judged("ordered", target, events)
