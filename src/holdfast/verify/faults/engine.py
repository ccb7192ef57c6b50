"""Kill, pause and another configuration, as faults upon any engine that has the power."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.engines.drivers import settings_by_url
from holdfast.verify.engines.protocol import Engine, Killable, Pausable, Restartable
from holdfast.verify.proof import Evidence


def kill(engine: Engine) -> Evidence:
    """SIGKILL the engine with all that it runs; `engine.start()` brings it back."""
    if not isinstance(engine, Killable):
        raise UsageError(f"{_name(engine)} cannot be killed by us")
    return engine.kill()


@contextlib.contextmanager
def paused(engine: Engine) -> Iterator[Evidence]:
    """Hold the engine in mid-breath inside the block; it answers again after it."""
    if not isinstance(engine, Pausable):
        raise UsageError(f"{_name(engine)} cannot be paused by us")
    evidence = engine.pause()
    try:
        yield evidence
    finally:
        engine.resume()


def reconfigure(engine: Engine, **changes: Any) -> Evidence:
    """Restart with another `config`, `version` or `settings` on the same data.

    Proven by the settings and the version that the engine itself tells before and after.
    """
    if not isinstance(engine, Restartable):
        raise UsageError(f"{_name(engine)} cannot be restarted by us")
    before = {"version": engine.version, **settings_by_url(engine.url)}
    restarted = engine.restart(**changes)
    after = {"version": engine.version, **settings_by_url(engine.url)}
    changed = {
        name: (before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }
    if not changed:
        raise FaultNotProven(
            f"{_name(engine)} was restarted with {changes} and tells no difference"
        )
    return Evidence(
        fault="restart",
        seen=f"{restarted.seen}; {len(changed)} settings differ",
        facts={**restarted.facts, "changed": changed},
    )


def _name(engine: Engine) -> str:
    return f"the {engine.kind} engine of provider {engine.provider!r}"
