"""From what was seen to a test that passes, fails with the evidence, or says why it cannot tell."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

import pytest

from holdfast.verify.adapters.plain import Client
from holdfast.verify.engines.protocol import Clocked, Killable, PowerCuttable
from holdfast.verify.history import Event
from holdfast.verify.judge import Verdict
from holdfast.verify.suite.record import Recorded, verdict
from holdfast.verify.target import Target

SHOWN_MAX: Final = 5
"""So many findings are printed; the rest is counted."""


def broken(promise: str, evidence: str) -> NoReturn:
    """Fail for that promise; the message is the evidence."""
    pytest.fail(f"{promise}: {evidence}", pytrace=False)


def hold(promise: str, kept: object, evidence: str) -> None:
    """Fail for that promise unless it was kept."""
    if not kept:
        broken(promise, evidence)


def cannot(why: str) -> NoReturn:
    """Leave a test out, aloud: it has not passed."""
    pytest.skip(f"not tested here: {why}")


def judged(promise: str, target: Target, events: Iterable[Event]) -> None:
    """Fail if the judge finds any claimed promise broken, or cannot speak for this one."""
    result = verdict(target, events)
    found = sorted(result.roots, key=lambda anomaly: anomaly.promise != promise)
    if found:
        lines = [f"{a.promise}: {a.name}: {a.because}" for a in found[:SHOWN_MAX]]
        more = len(found) - len(lines)
        pytest.fail("\n".join(lines) + (f"\n… and {more} more" if more else ""), pytrace=False)
    if result.promises[promise] is Verdict.UNKNOWN:
        pytest.fail(f"unknown whether {promise} is kept: {result.because}", pytrace=False)


@contextlib.contextmanager
def recorded(target: Target, events: list[Event], process: int = 0) -> Iterator[Recorded]:
    """A client in this process whose calls are added to the events."""
    with Client(target) as client:
        yield Recorded(client, process, events.append)


def new_session(name: str = "session") -> str:
    """A session that nobody has used: a shared engine may hold those of earlier tests."""
    return f"{name}-{secrets.token_hex(4)}"


def ids(prefix: str, count: int) -> list[str]:
    """That many ids, in order."""
    return [f"{prefix}.{number}" for number in range(count)]


def server(target: Target) -> Any:
    """The engine, where it can be killed and started; otherwise None."""
    return target.engine if isinstance(target.engine, Killable) else None


def killable(target: Target) -> Any:
    """The engine, where it can be killed and started; otherwise the test is left out."""
    if target.engine is None:
        cannot("the target names no engine, so there is nothing to kill")
    if server(target) is None:
        cannot(f"{target.engine.kind} has no process of its own that could be killed")
    return target.engine


def powered(target: Target) -> Any:
    """The engine, where its power can be cut; otherwise the test is left out."""
    engine: Any = target.engine
    if not isinstance(engine, PowerCuttable) or not engine.has_power:
        cannot("the power of its engine cannot be cut; start that with power='best'")
    return engine


def clocked(target: Target) -> Any:
    """The server, where its clock can be moved; otherwise the test is left out."""
    engine: Any = server(target)
    if not isinstance(engine, Clocked) or getattr(engine, "clock", None) is None:
        cannot("the clock of its engine cannot be moved; start that with clock=True")
    return engine
