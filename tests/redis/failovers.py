"""A load that goes on while the primary is lost again and again, and what of it is then missing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

import holdfast
from holdfast import Durability, Message
from holdfast.errors import HoldfastError

SESSIONS = 12
AFTER_EACH = 20
WITHIN_S = 60.0
HELD_S = (0.1, 1.0, 6.0, 8.0)
"""From 5 s on (`repl-timeout`) its primary no longer counts on it, and acks go on without it."""


@dataclass
class Load:
    """One thread that appends, each message with a key, and repeats what was not acknowledged."""

    url: str
    require: Durability = Durability.REPLICA
    name: str = "m"
    pace_s: float = 0.005
    """Between two appends: the processor is for the engines."""
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    levels: set[Durability] = field(default_factory=set)
    at_s: list[float] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._grown = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def until_more(self, count: int) -> None:
        """Until so many more were acknowledged."""
        with self._grown:
            wanted = len(self.acknowledged) + count
            grown = self._grown.wait_for(
                lambda: len(self.acknowledged) >= wanted or self.failure, WITHIN_S
            )
        assert grown, f"{wanted - len(self.acknowledged)} acks were missing after {WITHIN_S:g} s"
        if self.failure is not None:
            raise self.failure

    def first_ack_s(self, after_s: float) -> float:
        """When the first ack after that came."""
        return next(at_s for at_s in self.at_s if at_s > after_s)

    def _run(self) -> None:
        try:
            with holdfast.connect(self.url, require=self.require) as store:
                number = 0
                while not self._over.wait(self.pace_s):
                    self._append(store, f"s{number % SESSIONS}", f"{self.name}{number}")
                    number += 1
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.failure = error

    def _append(self, store: Any, session: str, text: str) -> None:
        while not self._over.is_set():
            try:
                ack = store.append(session, Message("user", text), key=text)
            except HoldfastError:
                continue
            with self._grown:
                self.levels.add(ack.durability)
                self.acknowledged.append((session, text))
                self.at_s.append(time.monotonic())
                self._grown.notify_all()
            return


def lose_primaries(
    engine: Any, failovers: int, *, name: str = "m", is_lagging: bool = False
) -> tuple[Load, list[tuple[str, str]], list[Any]]:
    """So many failovers under load: the load, what is missing or twice at the end, and the evidence."""
    seen = []
    with Load(engine.url, name=name) as load:
        for number in range(failovers):
            load.until_more(AFTER_EACH)
            if is_lagging:
                let_lag(engine, HELD_S[number % len(HELD_S)])
            seen.append(engine.failover())
            engine.rejoin()
        load.until_more(AFTER_EACH)
    there = Counter(stored(engine.url))
    twice = [one for one, count in there.items() if count > 1]
    return load, [*sorted(set(load.acknowledged) - set(there)), *twice], seen


def let_lag(engine: Any, held_s: float) -> None:
    """Hold a replica; it comes back with less than the other has, and may be promoted at once."""
    held = next(one for one in engine.members if not one.is_primary())
    held.pause()
    time.sleep(held_s)  # how long it lags is what is varied, nothing waits for it
    held.resume()


def stored(url: str) -> list[tuple[str, str]]:
    """Every message that is there now, with its session."""
    with holdfast.connect(url, require=Durability.REPLICA) as store:
        return [
            (session, str(message.content))
            for session in (f"s{number}" for number in range(SESSIONS))
            for message in store.history(session)
        ]
