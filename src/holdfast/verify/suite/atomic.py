"""atomic: a batch is all there or all gone, for every reader, after any crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.children import Child
from holdfast.verify.history import Event
from holdfast.verify.suite.judging import cannot, hold, ids, judged, new_session, recorded
from holdfast.verify.suite.peers import finish, listen, peers
from holdfast.verify.suite.record import Recorded, turn
from holdfast.verify.target import Target
from holdfast.verify.workload import tool_turns

BATCH: Final = 8
BATCHES_MAX: Final = 5000
KILLED: Final = 5
STORED: Final = "stored"
WRITER_S: Final = 60.0


def test_no_reader_sees_part_of_a_batch(target: Target) -> None:
    """One process writes batches, another reads all the time."""

    def write(client: Recorded) -> None:
        for number in range(30):
            client.append(session, ids(f"b{number}", BATCH))

    def read(client: Recorded) -> None:
        for _ in range(400):
            if len(client.read(session) or ()) >= 30 * BATCH:
                return

    session = new_session()
    with peers(target, [write, read]) as clients:
        events = finish(clients)
    with recorded(target, events) as reader:
        reader.read(session)
    judged("atomic", target, events)


def test_a_batch_is_whole_or_absent_after_sigkill_of_its_writer(target: Target) -> None:
    """Writers, each with a session of its own, are killed while they write batches."""

    def write(client: Recorded, session: str) -> None:
        for number in range(BATCHES_MAX):
            client.append(session, ids(f"{session}.b{number}", BATCH))

    sessions = [new_session() for _ in range(KILLED)]
    works = [lambda client, name=name: write(client, name) for name in sessions]
    with peers(target, works) as clients:
        listen(clients, lambda: all(peer.ended or peer.acks() > 1 for peer in clients))
        faults = [peer.kill() for peer in clients]
        events = [event for peer in clients for event in peer.events] + faults
    with recorded(target, events) as reader:
        for session in sessions:
            reader.read(session)
    judged("atomic", target, events)


def test_a_model_takes_a_session_whose_writer_died_between_a_tool_call_and_its_result(
    target: Target,
) -> None:
    """A writer is killed after a tool call; another process reads for a model, and the talk goes on."""
    if target.whole_turns is None:
        cannot(tool_turns.NOT_CLAIMED)
    cases = tool_turns.cases(new_session())

    def write(say: Callable[[object], None]) -> None:
        tool_turns.begin(Client(target), cases)
        say(STORED)
        os.kill(os.getpid(), signal.SIGKILL)  # where the results would be written

    said, _ = Child(write, life_s=WRITER_S).outcome(WRITER_S)
    if STORED not in said:
        cannot(f"it stores no tool call without its result: {said}")
    with Client(target) as client:
        found = [why for case in cases if (why := tool_turns.wrong(client, case))]
    hold("atomic", not found, found[0] if found else "")


def test_a_batch_that_is_refused_leaves_nothing(target: Target) -> None:
    """The last message of a batch cannot be stored: then neither may be the others."""
    session = new_session()
    bad = turn("m.2", object())
    with Client(target) as client:
        try:
            client.append(session, [turn("m.0"), turn("m.1"), bad])
        except Exception as error:  # noqa: BLE001 - a user's store may raise anything
            said = f"raised {type(error).__name__}"
        else:
            said = "was acknowledged"
    events: list[Event] = []
    with recorded(target, events) as reader:
        seen = reader.read(session)
    whole = seen == [] if said.startswith("raised") else seen == ["m.0", "m.1", "m.2"]
    hold("atomic", whole, f"a batch of three with a bad one {said}, and {seen} is there")
