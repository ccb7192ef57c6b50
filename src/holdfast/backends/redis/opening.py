"""Opens the store for a URL: the engine answers, and what it keeps is known."""

from __future__ import annotations

from holdfast.backends.redis.address import read_address
from holdfast.backends.redis.backend import AsyncRedisBackend, RedisBackend
from holdfast.commands import Settings


def open_backend(asked: Settings) -> RedisBackend:
    """The backend for a URL, connected: the engine answers, and what it keeps is known."""
    return RedisBackend(read_address(asked))


async def open_backend_async(asked: Settings) -> AsyncRedisBackend:
    """The same for the running event loop."""
    backend = AsyncRedisBackend(read_address(asked))
    await backend.open()
    return backend
