"""Looking again and again: the alarm that rings before the users do."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.connection import BACKENDS
from holdfast.doctor.canary import NAMESPACE, TTL_S, Canary
from holdfast.doctor.finding import EXIT_FINDINGS, EXIT_SOUND, EXIT_UNSEEN, Soundness
from holdfast.doctor.look import audit
from holdfast.doctor.tally import Tally
from holdfast.errors import HoldfastError, UsageError
from holdfast.secrets import SecretUrl

AUDIT_EVERY_S: Final = 30.0
"""With a canary, the settings are looked at so often; without, in every round."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What to watch, and how."""

    target: SecretUrl
    namespace: str = "default"
    canary: bool = False
    every_s: float = 10.0
    time_s: float = 10.0
    port: int | None = None
    rounds: int | None = None
    ttl_s: float = TTL_S


def watch(options: WatchOptions) -> int:
    """Look until a signal comes, or so many rounds are over; an engine that is away ends nothing.

    The exit code: 1 if anything was lost, misplaced or expired at the wrong time, 3 if no round
    ever ended well, otherwise 0.
    """
    if options.canary and str(options.target).partition(":")[0] not in BACKENDS:
        raise UsageError("--canary needs a store of holdfast: sqlite, redis or postgresql")
    tally, stop = Tally(), threading.Event()
    with _stopped_by_signals(stop), contextlib.ExitStack() as stack:
        _say(_opening(options))
        if options.port is not None:
            from holdfast.doctor.metrics import HOST, served  # noqa: PLC0415 - an extra

            port = stack.enter_context(served(tally, options.port))
            _say(f"metrics: http://{HOST}:{port}/metrics")
        _Rounds(options, tally).run(stop)
    _say(_closing(tally))
    if tally.broken:
        return EXIT_FINDINGS
    return EXIT_SOUND if tally.last_success == tally.last_success else EXIT_UNSEEN


class _Rounds:
    def __init__(self, options: WatchOptions, tally: Tally) -> None:
        self._options, self._tally = options, tally
        self._canary = (
            Canary(options.target.reveal(), tally, ttl_s=options.ttl_s) if options.canary else None
        )
        self._audited_s = -AUDIT_EVERY_S

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; never because the engine is away."""
        try:
            while not stop.is_set():
                begin_s = time.monotonic()
                self._round()
                if self._options.rounds is not None and self._tally.rounds >= self._options.rounds:
                    return
                stop.wait(max(0.0, self._options.every_s - (time.monotonic() - begin_s)))
        finally:
            if self._canary is not None:
                with contextlib.suppress(HoldfastError):  # what it wrote expires by itself
                    self._canary.close()

    def _round(self) -> None:
        tally = self._tally
        tally.rounds += 1
        broken = tally.broken
        if self._canary is not None:
            tally.up = self._attempt(self._canary.round)
        if self._canary is None or time.monotonic() - self._audited_s >= AUDIT_EVERY_S:
            self._audited_s = time.monotonic()
            self._look()
        if tally.up:
            tally.last_success = time.time()
            _say(_line(tally, tally.broken - broken))

    def _look(self) -> None:
        options, tally = self._options, self._tally
        tally.audit = audit(
            options.target.reveal(), namespace=options.namespace, time_s=options.time_s
        )
        if self._canary is None:
            tally.up = set(tally.audit.sound.values()) != {Soundness.UNKNOWN}
            if not tally.up:
                self._failed("EngineUnreachable", "; ".join(tally.audit.unseen))

    def _attempt(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except UsageError:
            raise
        except HoldfastError as error:
            self._failed(type(error).__name__, str(error))
            return False
        return True

    def _failed(self, name: str, words: str) -> None:
        self._tally.errors[name] += 1
        _say(f"error: {name}: {words}")


def _opening(options: WatchOptions) -> str:
    where = str(options.target)
    if not options.canary:
        return f"watching {where} every {options.every_s:g} s; nothing is written"
    made = "; its tables are made if they are missing" if where.startswith("postgres") else ""
    return (
        f"watching {where} every {options.every_s:g} s. The canary WRITES: into the namespace "
        f"{NAMESPACE} of a holdfast store there, and nowhere else{made}"
    )


def _line(tally: Tally, broken: int) -> str:
    audit = tally.audit
    findings = sum(finding.counts for finding in audit.findings) if audit is not None else 0
    words = "ok" if not broken else "BROKEN"
    if tally.round_trips:
        words += (
            f": {tally.round_trip_s * 1000:.1f} ms, {tally.acknowledged} acknowledged, "
            f"{tally.lost} lost, {tally.misordered} misordered, "
            f"{tally.expired_early + tally.expired_late} expired at the wrong time"
        )
    return f"{words}; {findings} finding(s)"


def _closing(tally: Tally) -> str:
    errors = ", ".join(f"{count} {name}" for name, count in sorted(tally.errors.items()))
    return (
        f"stopped after {tally.rounds} round(s): {tally.acknowledged} acknowledged, {tally.lost} "
        f"lost, {tally.misordered} misordered, {tally.expired_early} expired early, "
        f"{tally.expired_late} late; errors: {errors or 'none'}"
    )


def _say(words: str) -> None:
    clean = "".join(char if char.isprintable() else repr(char)[1:-1] for char in words)
    print(f"{time.strftime('%H:%M:%S')} {clean}", flush=True)  # noqa: T201 - this is the terminal


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM end the watch after the present round, cleanly."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in SIGNALS}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
