"""What a failing test shows of its engines: which faults landed, and what an ack was worth."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from holdfast import connect
from holdfast.model import Durability
from holdfast.verify import proof

ASK_TIMEOUT_S: Final = 5.0
"""An engine that a test has paused answers nobody."""
_ASKED: Final = frozenset({"redis", "valkey", "postgres", "sqlite"})


def words(engines: Iterable[Any]) -> str:
    """A line an engine, with its configuration and the level of its acks, then a line a fault."""
    return "\n".join([*_about(engines), *_faults()])


def _faults() -> Iterator[str]:
    found = proof.landed()
    for number, evidence in enumerate(found, 1):
        yield f"{number}. {evidence.fault}: {evidence.seen}"
    if not found:
        yield "no fault landed in this test"


def _about(engines: Iterable[Any]) -> Iterator[str]:
    for engine in engines:
        if not hasattr(engine, "config"):
            continue  # a service: it stores where it likes
        settings = ", ".join(f"{name} {value or '(empty)'}" for name, value in _settings(engine))
        yield f"{engine.kind}, configuration {engine.config}{f' ({settings})' if settings else ''}"
        yield f"    an ack of a Holdfast store on it now: {_level(engine)}"


def _settings(engine: Any) -> Iterable[tuple[str, str]]:
    return getattr(engine, "settings", {}).items()


def _level(engine: Any) -> str:
    """What an ack survives, as the engine is now; or why nobody can say."""
    if engine.kind not in _ASKED or engine.provider == "url":
        return "not asked"
    if getattr(engine, "pid", 1) is None:
        return "none, the engine is down"
    found = [f"unknown, no answer within {ASK_TIMEOUT_S:g} s"]
    asking = threading.Thread(target=lambda: found.append(_asked(engine.url)), daemon=True)
    asking.start()
    asking.join(ASK_TIMEOUT_S)
    return found[-1]


def _asked(url: str) -> str:
    try:
        with connect(url, require=Durability.MEMORY, background_indexing=False) as store:
            return store.durability.name
    except Exception as error:  # noqa: BLE001 - a report of a failure must not fail itself
        return f"unknown, {type(error).__name__}"
