"""snapshot: one read is one consistent cut, and the newest N are the newest N."""

from __future__ import annotations

from typing import Final

from holdfast.verify.history import Event
from holdfast.verify.suite.judging import hold, ids, judged, new_session, recorded
from holdfast.verify.suite.peers import finish, peers
from holdfast.verify.suite.record import Recorded
from holdfast.verify.target import Target

COUNT: Final = 30


def test_the_newest_n_are_the_newest_n(target: Target) -> None:
    """Oldest first, exactly as many as asked for, or all where there are fewer."""
    events: list[Event] = []
    session = new_session()
    names = ids("m", COUNT)
    with recorded(target, events) as client:
        for name in names:
            client.append(session, [name])
        for limit in (1, 2, 10, COUNT - 1, COUNT, COUNT + 1):
            seen = client.read(session, limit)
            wanted = names[-limit:]
            hold("snapshot", seen == wanted, f"the newest {limit} of {COUNT} came back as {seen}")
    judged("snapshot", target, events)


def test_the_newest_n_of_one_session_while_another_is_busy(target: Target) -> None:
    """Messages of a neighbour take no place in the window."""
    events: list[Event] = []
    quiet, busy = new_session("quiet"), new_session("busy")
    with recorded(target, events) as client:
        client.append(quiet, ids("q", 5))
        for name in ids("b", COUNT):
            client.append(busy, [name])
        seen = client.read(quiet, 10)
    hold("snapshot", seen == ids("q", 5), f"five messages, newest 10 asked for: {seen}")


def test_a_read_during_writes_is_one_cut(target: Target) -> None:
    """While batches are written, every window holds the newest and none too many."""

    def write(client: Recorded) -> None:
        for number in range(25):
            client.append(session, ids(f"b{number}", 3))

    def read(client: Recorded) -> None:
        for _ in range(150):
            client.read(session, 10)

    session = new_session()
    with peers(target, [write, read]) as clients:
        events = finish(clients)
    with recorded(target, events) as reader:
        reader.read(session)
        reader.read(session, 10)
    judged("snapshot", target, events)
