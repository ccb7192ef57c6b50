"""Moved clocks: days that pass within moments, hosts whose time has drifted, a step back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.errors import FaultNotProven, VerifyError
from holdfast.verify import shims
from holdfast.verify.clock import CLOCK_ERROR_S, DAY_S, Clock
from holdfast.verify.engines import Clocked, Engine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.proof import await_true
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.load import TTL_S_MAX
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess
from holdfast.verify.workload.plan import Step

WEEK_S: Final = 7 * DAY_S
"""The time to live that our own store is tried with."""
DRIFT_S: Final = 120.0
"""How far the clocks of two hosts are apart."""
BACK_S: Final = 3600.0
TELLS_TIME: Final = ("redis", "valkey", "postgres")
"""Servers that can be asked for the time, which proves that they follow."""
_ACTIVE_WITHIN_S: Final = 2.0


class _Clocks(Scenario):
    """What both need: the library, and an engine of their own."""

    fault = "clock"
    apart = True

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine of ours, and the library that moves its clock."""
        try:
            shims.library("clock")
        except VerifyError as error:
            return str(error)
        return context.why_no_own_engine()


class ClockExpiry(_Clocks):
    """A time to live of days: alive before it is over, gone as a whole after, in moments."""

    name = "clock-expiry"
    about = "days pass within moments: sessions live as long as they should, and no longer"
    tests = ("expiring",)

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs a time to live that is too long to be waited for."""
        if "expiring" not in context.claimed:
            return "expiring is not claimed"
        ttl_s = _ttl_s(context)
        if ttl_s is None:
            return "the target claims expiring and names no ttl_s"
        if ttl_s <= TTL_S_MAX:
            return f"its time to live of {ttl_s:g} s is waited for instead"
        if context.spec.engine is not None and context.spec.engine.kind == "chroma":
            return "chroma tells nobody what time it is"
        return super().reason_not(context)

    def run(self, context: ScenarioContext) -> Outcome:
        """A story in five parts, each told on a later day."""
        ttl_s = _ttl_s(context) or WEEK_S
        engine, spec = context.own_engine(settings=clock_settings(context), clock=True)
        # Ours is opened with a time to live for this scenario alone.
        spec = replace(spec, ttl_s=ttl_s) if spec.is_holdfast else spec
        with engine, context.clients(self, spec=spec) as clients:
            if isinstance(engine, SqliteEngine) and engine.clock is not None:
                clients.instruments = [engine.clock]
            script = [step for _, steps in _STORY for step in (Step("clock"), *steps, _WAIT)]
            for client in clients.start(scripts=[script]):
                _tell(context, clients, engine, client, ttl_s / 7)
            header = {"ttl_s": ttl_s, "clock_error_s": CLOCK_ERROR_S}
            kept = f"of {ttl_s:g} s to live: there after 6/7 of it, gone as a whole after 8/7"
            return context.conclude(self, clients, kept, header=header)


class ClockDrift(_Clocks):
    """Two hosts whose clocks are minutes apart, and then one of them steps back."""

    name = "clock-drift"
    about = "the clocks of two hosts are minutes apart, and one steps back an hour"
    tests = ("ordered",)

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Where the clients are the engine, what expires would expire by either clock."""
        if context.spec.embedded and context.about["ttl_s"] is not None:
            return "its sessions expire by the very clocks that would drift"
        return context.alone or super().reason_not(context)

    def run(self, context: ScenarioContext) -> Outcome:
        """Both hosts work on the same sessions, before and after the step."""
        engine, spec = context.own_engine(clock=True)
        with engine, context.clients(self, spec=spec) as clients:
            ahead, behind = hosts = _hosts(engine)
            context.landed("clock", ahead.move(DRIFT_S / 2).seen)
            context.landed("clock", behind.move(-DRIFT_S / 2).seen)
            begun = []
            for host in hosts:
                clients.instruments = [host]
                begun += clients.begin(shape=context.shape(self.name))
            for client in clients.opened(begun):
                client.go()
            clients.until_acknowledged(context.amount(80))
            context.landed("clock", behind.move(-BACK_S).seen, in_flight=len(clients.in_flight()))
            if isinstance(engine, Clocked) and engine.kind in TELLS_TIME:
                context.landed("clock", engine.move_clock(-BACK_S).seen)
            clients.until_acknowledged(context.amount(80))
            clients.instruments = []  # the client that reads it all back has the real time
            kept = f"hosts {DRIFT_S:g} s apart, and a step back of {BACK_S:g} s"
            return context.conclude(self, clients, kept)


def _append(session: str, part: int) -> Step:
    return Step("append", session, (f"{session}.{part}.0", f"{session}.{part}.1"))


def _read(session: str) -> Step:
    return Step("history", session)


_WAIT: Final = Step("wait")
_STORY: Final[Sequence[tuple[int, Sequence[Step]]]] = (
    (0, [_append("left", 0), _append("stepped", 0), _append("kept", 0), _read("left")]),
    # The clock is set back: nothing is gone, and what is written now comes after.
    (-3, [_read("left"), _append("stepped", 1), _read("stepped")]),
    (6, [_read("left"), _read("kept"), _append("kept", 1)]),
    (8, [_read("left"), _read("stepped"), _read("kept")]),
    (14, [_read("kept")]),
)
"""On which day what happens; the time to live is seven."""
_ACTIVE_ON: Final = 14
"""Until then Redis removes what it is asked for (lazy expiry); then it does so by itself."""


def _tell(
    context: ScenarioContext,
    clients: ClientPool,
    engine: Engine,
    client: ClientProcess,
    day_s: float,
) -> None:
    today = 0
    for part, (day, _) in enumerate(_STORY, 1):
        if day != today:
            move_clock(context, clients, engine, (day - today) * day_s)
        today = day
        if isinstance(engine, RedisEngine):
            _expire_actively(engine, context, active=day >= _ACTIVE_ON)
        client.go()
        clients.until(lambda: client.waiting == part or not client.alive)  # noqa: B023 - awaited
        errors = [event["error"] for event in client.events if "error" in event]
        if errors or client.waiting != part:
            clients.trouble.append(f"on day {day} of 7: {errors[0] if errors else 'it hangs'}")
            return
        if isinstance(engine, SqliteEngine) and engine.clock is not None:
            _prove(client, engine.clock)


def move_clock(context: ScenarioContext, clients: ClientPool, engine: Engine, by_s: float) -> None:
    """Later by so much on the engine's clock, and in the history."""
    if not isinstance(engine, Clocked):
        raise FaultNotProven(f"clock: {engine.kind} has none that can be moved")
    evidence = engine.move_clock(by_s)
    clients.clock_moved(by_s)
    context.landed("clock", evidence.seen)


def _prove(client: ClientProcess, clock: Clock) -> None:
    """What the client itself said the time was, on the clock that it should live by."""
    real_ns = time.time_ns() - time.monotonic_ns()
    said = [event for event in client.events if event["type"] == "clock"][-1]
    seen_s = (said["wall_ns"] - said["time_ns"] - real_ns) / 1e9
    if abs(seen_s - clock.offset_s) > CLOCK_ERROR_S:
        raise FaultNotProven(
            f"clock: a client should be at {clock.offset_s:+.1f} s and is at {seen_s:+.1f} s"
        )


def _expire_actively(engine: RedisEngine, context: ScenarioContext, *, active: bool) -> None:
    engine.call("DEBUG", "SET-ACTIVE-EXPIRE", "1" if active else "0")
    before = _expired_keys(engine)
    # A store that compares times by itself has no key that expires, so this may be in vain.
    if active and await_true(lambda: _expired_keys(engine) > before, _ACTIVE_WITHIN_S):
        context.landed("clock", "Redis removed expired keys by itself, nobody had asked for them")


def _expired_keys(engine: RedisEngine) -> int:
    return int(engine.info("stats")["expired_keys"])


def clock_settings(context: ScenarioContext) -> dict[str, object]:
    """Since Redis 7 the DEBUG command, by which active expiry is held, must be asked for."""
    engine = context.spec.engine
    if engine is None or engine.kind not in ("redis", "valkey") or engine.version.startswith("6."):
        return {}
    return {"enable-debug-command": "local"}


def _hosts(engine: Engine) -> tuple[Clock, Clock]:
    if engine.data_dir is None:
        raise VerifyError(f"clock: {engine.kind} has no directory of ours")
    home = engine.data_dir.parent
    return Clock(home, "host-ahead"), Clock(home, "host-behind")


def _ttl_s(context: ScenarioContext) -> float | None:
    return WEEK_S if context.spec.is_holdfast else context.about["ttl_s"]
