"""When a fault strikes: in the window in which a configuration keeps least."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.verify.engines.protocol import Engine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.workload.client_pool import ClientPool

WEAK_WINDOWS: Final[Mapping[str, str]] = {
    "aof-rewriting": "aof_rewrite_in_progress",
    "aof-saving": "rdb_bgsave_in_progress",
}
"""Configuration of Redis -> the field of INFO that is 1 while its syncs are held up."""
ACKS: Final = 20
"""Appends to acknowledge within the window before the fault strikes."""
TRIES: Final = 20


def weak_window_of(engine: Engine | None) -> Callable[[], bool] | None:
    """Whether that window is open now; None where any time is as bad as another."""
    field = WEAK_WINDOWS.get(engine.config) if isinstance(engine, RedisEngine) else None
    if field is None or not isinstance(engine, RedisEngine):
        return None
    redis = engine
    return lambda: redis.info("persistence").get(field) == "1"


def await_weak_window(engine: Engine | None, clients: ClientPool) -> None:
    """Return in the middle of that window; where it never opens, that is trouble."""
    in_window = weak_window_of(engine)
    if in_window is None:
        return
    for _ in range(TRIES):
        clients.until(in_window)
        clients.until_acknowledged(ACKS)
        if in_window():
            return
    clients.trouble.append(f"{WEAK_WINDOWS[engine.config if engine else '']} was never caught at 1")
