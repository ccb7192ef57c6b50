"""isolated: sessions never leak into one another, whatever their ids contain."""

from __future__ import annotations

import contextlib
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.history import Event
from holdfast.verify.suite.judging import cannot, hold, ids, judged, new_session, recorded
from holdfast.verify.suite.peers import Work, finish, peers
from holdfast.verify.suite.record import turn
from holdfast.verify.target import Target

PLAIN_IDS: Final = ("foo", "foobar", "foo-bar", "foo_bar", "fooXbar", "Foo", "user:1", "user:11")
"""Ids that every store has to take."""
ODD_IDS: Final = (
    "foo ", " foo", "foo\n", "a:b", "a::b", "a:b:c", "{a}", "{a}b", "*", "?", "[a]", "f?o", "foo*",
    "%", "%41", "_", "a%b", "'", '"', "\\", "';--", "a/b", "../a", ".", "a&b=c", "é", "e\u0301",
    "小丽", "🦑", "foo\0", "foo\0bar", "\0",
)  # fmt: skip
"""Ids that a store may refuse with an error, and may not mistake for one another."""


def test_ids_of_any_kind_stay_apart(target: Target) -> None:
    """Each session shows its own message and no other."""
    with Client(target) as client:
        taken = _fill(client)
        for session in taken:
            seen = client.history(session).ids()
            hold("isolated", seen == [session], f"session {session!r} shows messages of {seen!r}")


def test_forgetting_one_session_touches_no_other(target: Target) -> None:
    """Every second one is forgotten; the others are as they were."""
    if target.claims.of("forgotten") is not True:
        cannot("the target does not claim that it can forget")
    with Client(target) as client:
        taken = _fill(client)
        for session in taken[::2]:
            client.forget(session)
        for session in taken[1::2]:
            seen = client.history(session).ids()
            gone = f"others were forgotten, and session {session!r} shows {seen!r}"
            hold("isolated", seen == [session], gone)


def test_sessions_that_are_written_at_once_stay_apart(target: Target) -> None:
    """Several processes, each with a session of its own."""

    def work(session: str) -> Work:
        return lambda client: [
            (client.append(session, [name]), client.read(session)) for name in ids(session, 10)
        ]

    sessions = [new_session() for _ in range(3)]
    with peers(target, [work(session) for session in sessions]) as clients:
        events: list[Event] = finish(clients)
    with recorded(target, events) as reader:
        for session in sessions:
            reader.read(session)
    judged("isolated", target, events)


def _fill(client: Client) -> list[str]:
    """One message in each session, named as the session; the ids that were taken."""
    fresh = new_session("")
    taken = [fresh + name for name in PLAIN_IDS]
    for session in taken:
        client.append(session, [turn(session)])
    for session in (fresh + name for name in ODD_IDS):
        with contextlib.suppress(Exception):  # refused, which mixes nothing up
            client.append(session, [turn(session)])
            taken.append(session)
    return taken
