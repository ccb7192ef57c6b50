"""The named configurations that people really run, as the engine's own settings. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.errors import UsageError, did_you_mean

_AOF: Final = {"appendonly": "yes", "save": ""}
_SAVE_POINTS: Final = "3600 1 300 100 60 10000"

REDIS: Final[Mapping[str, Mapping[str, str]]] = {
    "rdb-only": {"appendonly": "no", "save": _SAVE_POINTS},
    "aof-everysec": {**_AOF, "appendfsync": "everysec"},
    "aof-always": {**_AOF, "appendfsync": "always"},
    "mixed": {"appendonly": "yes", "appendfsync": "everysec", "save": _SAVE_POINTS},
    "no-persistence": {"appendonly": "no", "save": ""},
    # A rewrite is nearly always under way: it begins at 16 kB and again at a tenth more, and
    # takes five milliseconds for each key. While it runs, nothing is synced although appendfsync
    # says always: that is what no-appendfsync-on-rewrite means, and many tuning guides set it.
    "aof-rewriting": {
        **_AOF,
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "yes",
        "auto-aof-rewrite-percentage": "10",
        "auto-aof-rewrite-min-size": "16kb",
        "rdb-key-save-delay": "5000",
    },
    # The same while a snapshot is written, which is as good as always here.
    "aof-saving": {
        "appendonly": "yes",
        "save": "1 1",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "yes",
        "rdb-key-save-delay": "5000",
    },
    "cluster": {**_AOF, "appendfsync": "always", "cluster-enabled": "yes"},
}

POSTGRES: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "synchronous-commit-off": {"synchronous_commit": "off"},
    "fsync-off": {"fsync": "off"},
    "replica": {},
}
"""`replica` is the default with one streaming replica beside it."""

CHROMA: Final[Mapping[str, Mapping[str, str]]] = {"server": {}}

SQLITE: Final[Mapping[str, Mapping[str, str]]] = {"default": {}}
"""SQLite has no server to configure: the process that opens the file sets its pragmas."""

CONFIGS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "redis": REDIS,
    "valkey": REDIS,
    "postgres": POSTGRES,
    "chroma": CHROMA,
    "sqlite": SQLITE,
}


def without_replica(config: str) -> str:
    """The configuration of the primary alone: what strikes a disk strikes one engine's."""
    return "default" if config == "replica" else config


def settings_of(kind: str, config: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The settings of a named configuration, with the caller's own over them."""
    known = CONFIGS[kind]
    if config not in known:
        raise UsageError(
            f"{kind} has no configuration {config!r}{did_you_mean(config, known)}; "
            f"there are: {', '.join(known)}"
        )
    return {**known[config], **extra}
