"""loud: every failure is an error, and the store works again by itself."""

from __future__ import annotations

import contextlib
import resource
import time
from pathlib import Path
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.engines.protocol import Killable
from holdfast.verify.faults.pressure import ConnectionsHeld
from holdfast.verify.history import Event
from holdfast.verify.suite.judging import cannot, hold, ids, killable, new_session, recorded
from holdfast.verify.suite.peers import finish, peers
from holdfast.verify.suite.record import Recorded
from holdfast.verify.target import Target

BACK_WITHIN_S: Final = 5.0
"""A store works again at the latest so long after its engine does."""
REDIS_CONNECTIONS_MAX: Final = 64
"""Redis allows thousands; for the test it is told to allow so many."""
_POLL_S: Final = 0.01
PADDING: Final = "x" * 20_000
APPENDS_MAX: Final = 200


def test_nothing_is_acknowledged_by_a_dead_engine(target: Target) -> None:
    """The engine is killed; an ack that was given nevertheless has to hold."""
    engine = killable(target)
    session = new_session()
    events: list[Event] = []
    with recorded(target, events) as client:
        client.append(session, ["before.0"])
        engine.kill()
        acked = client.append(session, ["during.0"])
        engine.start()
    with Client(target) as reader:
        seen = reader.history(session).ids()
    said = "an append to an engine that was dead was acknowledged, and is not there"
    hold("loud", not acked or "during.0" in seen, f"{said}: {seen}")


def test_a_read_that_failed_is_not_an_empty_history(target: Target) -> None:
    """While the engine is down, "nothing was said" would be a lie."""
    engine = killable(target)
    session = new_session()
    events: list[Event] = []
    with recorded(target, events) as client:
        client.append(session, ["before.0"])
        engine.kill()
        seen = client.read(session)
        engine.start()
    said = f"the engine was dead and history() answered {seen} for a session with one message"
    hold("loud", seen is None or seen == ["before.0"], said)


def test_the_store_works_again_when_the_engine_is_back(target: Target) -> None:
    """The same client, not opened again, after the engine was killed and started."""
    engine = killable(target)
    session = new_session()
    events: list[Event] = []
    with recorded(target, events) as client:
        client.append(session, ["before.0"])
        engine.kill()
        client.append(session, ["during.0"])
        engine.start()
        end_s = time.monotonic() + BACK_WITHIN_S
        tries = iter(ids("after", 10_000))
        while not (back := client.append(session, [next(tries)])) and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        last = client.errors[-1:]
    hold("loud", back, f"the engine is back for {BACK_WITHIN_S:g} s, the store still says {last}")


def test_no_free_connection_is_an_error(target: Target) -> None:
    """All connections that the engine allows are taken; an ack given nevertheless has to hold."""
    engine = killable(target)
    if engine.kind not in ("redis", "valkey", "postgres"):
        cannot(f"connections of {engine.kind} cannot be taken")
    session = new_session()
    events: list[Event] = []
    acked: list[str] = []
    few = {} if engine.kind == "postgres" else {"connections_max": REDIS_CONNECTIONS_MAX}
    held = ConnectionsHeld(engine.url, **few)
    with recorded(target, events, 1) as early, held:
        acked += [name for name in ("early.0",) if early.append(session, [name])]
        with contextlib.suppress(Exception), recorded(target, events, 2) as late:
            acked += [name for name in ("late.0",) if late.append(session, [name])]
    _acks_hold(target, session, acked, "while no connection was free")


def test_a_full_disk_is_an_error(target: Target) -> None:
    """The files of an embedded store may grow no further; an ack has to hold nevertheless."""
    if isinstance(target.engine, Killable):
        cannot(f"the files of {target.engine.kind} are not written by the client")
    folder = target.engine.data_dir if target.engine is not None else None
    session = new_session()

    def work(client: Recorded) -> None:
        client.append(session, ["before.0"])
        _limit_file_size(folder)
        for name in ids("m", APPENDS_MAX):
            client.append(session, [name], padding=PADDING)

    with peers(target, [work]) as clients:
        events = finish(clients)
    names = {e.op: e.messages for e in events if e.type == "invoke" and e.messages}
    acked = [names[e.op][0] for e in events if e.type == "ok" and e.op in names]
    _acks_hold(target, session, acked, "while the disk was full")
    if len(acked) > APPENDS_MAX:
        cannot("no write failed although files could not grow: the fault did not land")


def _acks_hold(target: Target, session: str, acked: list[str], when: str) -> None:
    with Client(target) as reader:
        seen = set(reader.history(session).ids())
    lost = [name for name in acked if name not in seen]
    hold("loud", not lost, f"{len(lost)} appends were acknowledged {when}, and are not there")


def _limit_file_size(folder: Path | None) -> None:
    """From now on no file of this process grows by more than a little: EFBIG, as if full."""
    files = [path for path in folder.rglob("*") if path.is_file()] if folder is not None else []
    largest = max((path.stat().st_size for path in files), default=0)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 100_000, most))
