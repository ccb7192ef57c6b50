"""A store class of this folder on an engine of its own, as a target."""

from __future__ import annotations

from typing import Any

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Index, Target

TTL_S = 0.6


def target_of(kind: type[Any], engine_factory: EngineFactory, promise: str) -> Target:
    """Only where expiry is the question has the store a time to live: others take their time."""
    engine = engine_factory(kind.engine, config=kind.config)
    kind.prepare(engine)
    ttl_s = TTL_S if promise == "expiring" else None
    previous = getattr(kind, "previous", None)
    return Target(
        open=lambda: kind(engine, ttl_s),
        engine=engine,
        name=kind.__name__,
        claims=kind.claims,
        ttl_s=ttl_s,
        whole_turns=getattr(kind, "for_model", None),
        index=kind.index(engine) if hasattr(kind, "index") else Index(),
        previous=None if previous is None else lambda: previous(engine, ttl_s),
    )
