"""durable: what was acknowledged survives."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from holdfast.verify.history import Event
from holdfast.verify.suite.judging import (
    ids,
    judged,
    killable,
    new_session,
    powered,
    recorded,
    server,
)
from holdfast.verify.suite.peers import WAIT_S, Peer, Work, finish, listen, peers
from holdfast.verify.suite.record import Recorded
from holdfast.verify.target import Target

WRITERS = 3
ACKS_BEFORE_FAULT = 20
APPENDS_MAX = 20_000
"""A writer that nobody kills ends after so many."""


def test_messages_are_there_for_a_client_that_opens_later(target: Target) -> None:
    """What one client wrote and closed, the next one reads."""
    events: list[Event] = []
    session = new_session()
    with recorded(target, events, 1) as writer:
        for name in ids("m", 10):
            writer.append(session, [name])
    with recorded(target, events, 2) as reader:
        reader.read(session)
    judged("durable", target, events)


def test_messages_survive_sigkill_of_their_writers(target: Target) -> None:
    """Writers are killed in the middle of their work; every ack that they saw must hold."""
    session = new_session()
    with peers(target, [endless(session, f"w{number}") for number in range(WRITERS)]) as clients:
        listen(clients, lambda: busy(clients))
        faults = [peer.kill() for peer in clients]
        events = [event for peer in clients for event in peer.events] + faults
    with recorded(target, events) as reader:
        reader.read(session)
    judged("durable", target, events)


def test_messages_survive_sigkill_of_the_engine(target: Target) -> None:
    """The engine is killed under its writers and started again on the same data."""
    engine = killable(target)
    session = new_session()
    events: list[Event] = []
    with peers(target, [endless(session, f"w{number}") for number in range(WRITERS)]) as clients:
        listen(clients, lambda: busy(clients))
        engine.kill()
        events.append(Event("fault", time.monotonic_ns(), name="kill"))
        for peer in clients:  # whether it has noticed or waits for an answer: it is done
            peer.kill()
            events += peer.events
    engine.start()
    with recorded(target, events) as reader:
        reader.read(session)
    judged("durable", target, events)


def test_messages_survive_a_power_cut(target: Target) -> None:
    """What was not on the disk is gone; every ack that was given before must hold."""
    engine = powered(target)
    session = new_session()
    with peers(target, [endless(session, f"w{number}") for number in range(WRITERS)]) as clients:
        listen(clients, lambda: busy(clients))

        def end() -> None:
            for peer in clients:
                peer.kill()

        if server(target) is None:  # the writers are the engine, and go with the power
            cut = engine.power_cut(end=end)
        else:
            cut = engine.power_cut()
            end()
        events = [event for peer in clients for event in peer.events]
    # An answer that came after the power had gone was given by nobody.
    dark_ns = int(cut.facts["at_ns"])
    events = [e if e.type == "invoke" or e.time_ns <= dark_ns else _unknown(e) for e in events]
    events.append(Event("fault", time.monotonic_ns(), name="power"))
    engine.start()
    with recorded(target, events) as reader:
        reader.read(session)
    judged("durable", target, events)


def _unknown(event: Event) -> Event:
    return replace(event, type="info", messages=None, seqs=None)


def test_messages_survive_a_clean_restart_of_the_engine(target: Target) -> None:
    """The engine is stopped as its makers wish, and started again."""
    engine = killable(target)
    session = new_session()
    events: list[Event] = []
    with recorded(target, events, 1) as writer:
        for name in ids("m", 10):
            writer.append(session, [name])
    engine.stop()
    engine.start()
    with recorded(target, events, 2) as reader:
        reader.read(session)
    judged("durable", target, events)


def test_concurrent_writers_lose_nothing(target: Target) -> None:
    """Several processes write to one session at once, as two requests of one user do."""

    def work(prefix: str) -> Work:
        return lambda client: [client.append(session, [name]) for name in ids(prefix, 25)]

    session = new_session()
    with peers(target, [work(f"w{number}") for number in range(WRITERS)]) as clients:
        events = finish(clients)
    with recorded(target, events) as reader:
        reader.read(session)
    judged("durable", target, events)


def test_concurrent_threads_lose_nothing(target: Target) -> None:
    """Threads of one process, each with a client of its own, write to one session at once."""
    session = new_session()
    events: list[Event] = []
    together = threading.Barrier(WRITERS)

    def write(number: int) -> None:
        with recorded(target, events, number + 1) as client:
            together.wait(WAIT_S)
            for name in ids(f"t{number}", 25):
                client.append(session, [name])

    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(write, number) for number in range(WRITERS)]:
            done.result(WAIT_S)
    with recorded(target, events) as reader:
        reader.read(session)
    judged("durable", target, events)


def endless(session: str, prefix: str) -> Work:
    """Appends one message after the other for as long as it lives, or until one fails."""

    def work(client: Recorded) -> None:
        for name in ids(prefix, APPENDS_MAX):
            if not client.append(session, [name]):
                return

    return work


def busy(clients: list[Peer]) -> bool:
    """Whether each has seen enough acks for a fault to mean something, or has ended."""
    return all(peer.ended or peer.acks() >= ACKS_BEFORE_FAULT for peer in clients)
