"""What a configuration is sound for, from its settings alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.doctor import chroma_rules, postgres_rules, redis_rules, sqlite_rules
from holdfast.doctor.finding import Hazard, Opinion, Soundness
from holdfast.errors import UsageError


def sound_for(kind: str, settings: Mapping[str, str]) -> dict[Hazard, Soundness]:
    """Whether what a plain writer was told is kept survives each hazard.

    `settings` are the engine's own, such as those of a named configuration; what is not among
    them is as the engine has it by default. Storage, replicas and data are not in settings:
    what depends on them alone is unknown here.
    """
    if kind not in _OPINIONS:
        raise UsageError(f"no rules for {kind!r}; there are: {', '.join(_OPINIONS)}")
    opinion = _OPINIONS[kind](settings)
    found = opinion.sound()
    return {hazard: found[hazard] for hazard in (Hazard.SIGKILL, Hazard.POWER, Hazard.EVICTION)}


def _redis(settings: Mapping[str, str]) -> Opinion:
    seen = redis_rules.RedisSeen({**redis_rules.DEFAULTS, **settings}, {})
    opinion = redis_rules.persistence(seen)
    opinion.add(redis_rules.eviction(seen))
    return opinion


_OPINIONS: Final[Mapping[str, Callable[[Mapping[str, str]], Opinion]]] = {
    "redis": _redis,
    "valkey": _redis,
    "postgres": postgres_rules.of_settings,
    "sqlite": sqlite_rules.of_settings,
    "chroma": chroma_rules.of_settings,
}
