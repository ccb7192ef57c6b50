"""exactly-once: a retry with the same key adds nothing."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from typing import Final

from holdfast.verify.history import Event
from holdfast.verify.suite.judging import ids, judged, new_session, recorded
from holdfast.verify.suite.peers import Work, finish, listen, peers
from holdfast.verify.suite.record import Recorded
from holdfast.verify.target import Target

WRITERS: Final = 4
KEYS: Final = 20
APPENDS_MAX: Final = 5000
_POLL_S: Final = 0.0002
ABREAST_S: Final = 5.0
"""The longest wait for the others."""


def test_a_retry_with_the_same_key_adds_nothing(target: Target) -> None:
    """The same client tries again, at once and after another write."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events) as client:
        client.append(session, ["a.0", "a.1"], key="request-1")
        client.append(session, ["a.0", "a.1"], key="request-1")
        client.append(session, ["b.0"], key="request-2")
        client.append(session, ["a.0", "a.1"], key="request-1")
        client.read(session)
    judged("exactly-once", target, events)


def test_a_retry_from_another_client_is_known(target: Target) -> None:
    """The service was restarted in between, so nothing in its memory can know the key."""
    events: list[Event] = []
    session = new_session()
    for process in (1, 2):
        with recorded(target, events, process) as client:
            client.append(session, ["a.0", "a.1"], key="request-1")
    with recorded(target, events, 3) as reader:
        reader.read(session)
    judged("exactly-once", target, events)


def test_of_simultaneous_tries_with_one_key_exactly_one_adds(target: Target) -> None:
    """Several processes make the same requests, each of them at the same moment."""
    session = new_session()
    with mmap.mmap(-1, WRITERS) as progress, peers(target, _abreast(session, progress)) as clients:
        events = finish(clients)
    with recorded(target, events) as reader:
        reader.read(session)
    judged("exactly-once", target, events)


def test_retries_for_a_killed_writer_add_what_is_missing_once(target: Target) -> None:
    """A writer dies; another makes its last requests again, not knowing which were done."""

    def work(client: Recorded) -> None:
        for name in ids("m", APPENDS_MAX):
            client.append(session, [name], key=name)

    session = new_session()
    with peers(target, [work]) as clients:
        listen(clients, lambda: clients[0].ended or clients[0].acks() > KEYS)
        fault = clients[0].kill()
        events = [*clients[0].events, fault]
    tried = [e.messages[0] for e in events if e.type == "invoke" and e.messages]
    with recorded(target, events) as client:
        for name in tried[-KEYS:]:
            client.append(session, [name], key=name)
        client.read(session)
    judged("exactly-once", target, events)


def _abreast(session: str, progress: mmap.mmap) -> Iterator[Work]:
    """Writers that wait for one another before each request; memory is shared across fork."""
    for mine in range(WRITERS):

        def work(client: Recorded, mine: int = mine) -> None:
            for number in range(KEYS):
                progress[mine] = number + 1
                _await_all(progress, number + 1)
                client.append(session, [f"m.{number}"], key=f"request-{number}")

        yield work


def _await_all(progress: mmap.mmap, step: int) -> None:
    """Return when all have come as far, or when one has been missing for too long."""
    deadline_s = time.monotonic() + ABREAST_S
    while min(progress[:]) < step and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
