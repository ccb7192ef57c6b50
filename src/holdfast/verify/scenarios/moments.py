"""The moment at which a configuration keeps least: a fault that comes then shows the most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.verify.engines.protocol import Engine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.workload.crew import Crew

MOMENTS: Final[Mapping[str, str]] = {
    "aof-rewriting": "aof_rewrite_in_progress",
    "aof-saving": "rdb_bgsave_in_progress",
}
"""Configuration of Redis -> the field of INFO that is 1 while its syncs are held up."""
ACKS: Final = 20
"""So many are acknowledged within the moment before the fault comes."""
TRIES: Final = 20


def moment_of(engine: Engine | None) -> Callable[[], bool] | None:
    """Whether it is that moment now; None where one moment is as bad as another."""
    field = MOMENTS.get(engine.config) if isinstance(engine, RedisEngine) else None
    if field is None or not isinstance(engine, RedisEngine):
        return None
    redis = engine
    return lambda: redis.info("persistence").get(field) == "1"


def await_moment(engine: Engine | None, crew: Crew) -> None:
    """Return in the middle of that moment; where it never comes, that is trouble."""
    moment = moment_of(engine)
    if moment is None:
        return
    for _ in range(TRIES):
        crew.until(moment)
        crew.until_acknowledged(ACKS)
        if moment():
            return
    crew.trouble.append(f"{MOMENTS[engine.config if engine else '']} was never caught at 1")
