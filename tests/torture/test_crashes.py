"""10,000 SIGKILLs and 2,000 power cuts, while many tasks write: nothing acknowledged is lost, torn, doubled or
out of order. They go on where the last run stopped (`counts`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast.verify.engines.local import open_engine
from holdfast.verify.engines.options import DEFAULT_CONFIG, EngineOptions
from holdfast.verify.power.block import BlockSupply
from holdfast.verify.rundir import Storage
from tests.contract.client import turns
from tests.forks import CONTEXT
from tests.torture import crash_writer
from tests.torture.counts import Counts

ENGINES = ("sqlite", "redis", "postgres")
TOTALS = {"kill": 10_000, "power": 2_000}
STRIKES = 20
"""On one engine, then another with empty data."""
ACKS = (5, 150)
WAIT_S = 60.0

Ack = tuple[str, str, int, int]


class Writer:
    """One process of `crash_writer`; what it saw acknowledged."""

    def __init__(self, url: str, name: str) -> None:
        self._pipe, theirs = CONTEXT.Pipe(duplex=False)
        arguments = (url, name, theirs)
        self._process = CONTEXT.Process(target=crash_writer.main, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._part = b""
        self.acks: list[Ack] = []

    def read(self, count: int) -> None:
        """At least so many acks more; each within the bound."""
        wanted = len(self.acks) + count
        while len(self.acks) < wanted:
            assert self._pipe.poll(WAIT_S), "no ack came in time"
            assert self._more(), "the writer ended"

    def kill(self) -> None:
        """SIGKILL, and what it had said before; the last line may be cut."""
        self._process.kill()
        self._process.join(WAIT_S)
        assert self._process.exitcode == -signal.SIGKILL
        while self._more():
            pass
        self._pipe.close()

    def _more(self) -> bool:
        said = os.read(self._pipe.fileno(), 65_536)
        *lines, self._part = (self._part + said).split(b"\n")
        for line in lines:
            session, name, first, last = line.decode().split()
            self.acks.append((session, name, int(first), int(last)))
        return bool(said)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", TOTALS)
def test_nothing_acknowledged_is_harmed_by_a_crash(
    fault: str, engine: str, time_s: float, chance: random.Random, request: pytest.FixtureRequest
):
    if fault == "power":
        request.getfixturevalue("can_cut")
    counts = Counts(f"crashes-{fault}-{engine}", TOTALS[fault] // len(ENGINES) + 1)
    end_s = time.monotonic() + time_s
    while counts.left and time.monotonic() < end_s:
        strikes = min(counts.left, STRIKES)
        with _started(engine, fault, chance) as started:
            acks = _struck(started, fault, strikes, chance)
            found = harmed(started.url, acks)
        counts.add(0 if found else strikes, failures=len(found), acks=len(acks))
        assert found == []
    print(counts)


@contextlib.contextmanager
def _started(kind: str, fault: str, chance: random.Random) -> Iterator[Any]:
    """A SIGKILL leaves what the kernel has, wherever a server keeps it; half of the power cuts tear."""
    storage: Storage = "disk" if kind == "sqlite" else "memory"
    options = EngineOptions(kind, DEFAULT_CONFIG[kind], storage=storage)
    if fault == "power":
        supply = BlockSupply(torn=chance.choice((None, chance.randrange(1_000_000))))
        options = EngineOptions(kind, DEFAULT_CONFIG[kind], storage=supply.directory, supply=supply)
    with open_engine(options) as engine:
        yield engine


def _struck(engine: Any, fault: str, strikes: int, chance: random.Random) -> list[Ack]:
    """Strike again and again; the tasks of a server's client live on, those of a file die with it."""
    acks: list[Ack] = []
    writer: Writer | None = None
    for number in range(strikes):
        writer = writer or Writer(engine.url, f"w{number}")
        writer.read(chance.randint(*ACKS))
        if engine.kind == "sqlite":
            dying, writer = writer, None
            engine.power_cut(dying.kill) if fault == "power" else dying.kill()
            acks += dying.acks
        else:
            engine.power_cut() if fault == "power" else engine.kill()
        engine.start()
    if writer is not None:
        writer.read(crash_writer.SESSIONS)
        writer.kill()
        acks += writer.acks
    return acks


def harmed(url: str, acks: list[Ack]) -> list[str]:
    """What is lost, torn, doubled, or stands where its ack or its writer's order says it does not."""
    found: list[str] = []
    by_session: dict[str, list[Ack]] = defaultdict(list)
    for ack in acks:
        by_session[ack[0]].append(ack)
    with holdfast.connect(url) as store:
        for session, acked in by_session.items():
            history = store.history(session)
            texts = [str(message.content) for message in history]
            at = dict(zip((cast("int", message.seq) for message in history), texts, strict=True))
            found += [
                f"{name} at {first}-{last}: {at.get(first)}, {at.get(last)}"
                for _, name, first, last in acked
                if (at.get(first), at.get(last)) != (f"{name}?", f"{name}!") or last != first + 1
            ]
            if len(set(texts)) < len(texts):
                found.append(f"{session}: something twice")
            if [text[:-1] for text in texts[0::2]] != [text[:-1] for text in texts[1::2]]:
                found.append(f"{session}: a turn is not in one piece")
            order: dict[str, list[int]] = defaultdict(list)
            for text in texts[0::2]:
                writer, _, turn = text[:-1].rpartition("-")
                order[writer].append(int(turn))
            found += [
                f"{writer}: turns {own}" for writer, own in order.items()
                if own != list(range(len(own)))
            ]  # fmt: skip
    return found


def test_what_is_harmed_is_seen(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/memory.db"
    with holdfast.connect(url) as store:
        for name, messages in itertools.islice(turns("s.0"), 3):
            store.append("s", messages, key=name)
        acks = [("s", f"s.0-{turn}", 2 * turn + 1, 2 * turn + 2) for turn in range(3)]
        assert harmed(url, acks) == []
        assert harmed(url, [*acks, ("s", "s.0-3", 7, 8)]) == ["s.0-3 at 7-8: None, None"]
        store.append("s", messages)
        assert "s: something twice" in harmed(url, acks)
        store.append("s", messages[:1])
        assert "s: a turn is not in one piece" in harmed(url, acks)
