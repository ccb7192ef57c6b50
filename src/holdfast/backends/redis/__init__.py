"""Redis 6.2 to 8 and Valkey: `redis://host:6379/0`; see `address.py` for the other URLs."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """`open_backend` needs the driver; what an engine keeps (`durability.py`) is read without it."""
    if name not in {"open_backend", "open_backend_async"}:
        raise AttributeError(name)
    return getattr(importlib.import_module("holdfast.backends.redis.opening"), name)
