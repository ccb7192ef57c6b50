"""The drivers, where the kit talks to an engine by URL: one connection, no retry, short waits.

A measuring client must not repair what it measures, so everything that a driver does by
itself after a failure is switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import EngineMissing

if TYPE_CHECKING:
    import psycopg
    import redis

CONNECT_TIMEOUT_S: Final = 5
REPLY_TIMEOUT_S: Final = 30


def redis_client(
    url: str, *, decode: bool = True, reply_timeout_s: float = REPLY_TIMEOUT_S
) -> redis.Redis:
    """A client with one connection at most, that gives up at the first error."""
    try:
        import redis  # noqa: PLC0415 - only who uses Redis needs its driver
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise EngineMissing(
            "Redis by URL needs its driver: pip install 'holdfast[redis]'"
        ) from error
    return redis.Redis.from_url(
        as_redis(url),
        single_connection_client=True,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=reply_timeout_s,
        decode_responses=decode,
    )


def as_redis(url: str) -> str:
    """The URL by the names that redis-py knows."""
    return f"redis{url.removeprefix('valkey')}" if url.startswith("valkey") else url


def postgres_connection(url: str) -> psycopg.Connection:
    """A connection in autocommit."""
    try:
        import psycopg  # noqa: PLC0415 - only who uses PostgreSQL needs its driver
    except ImportError as error:
        raise EngineMissing(
            "PostgreSQL by URL needs its driver: pip install 'holdfast[postgres]'"
        ) from error
    return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)


def settings_by_url(url: str) -> dict[str, str]:
    """Every setting that the running engine says it has, by name; empty where it has none."""
    scheme = url.partition(":")[0]
    if scheme in ("redis", "rediss", "valkey", "valkeys", "unix"):
        with redis_client(url) as client:
            return dict(client.config_get("*"))
    if scheme in ("postgres", "postgresql"):
        with postgres_connection(url) as connection:
            rows = connection.execute("SELECT name, setting FROM pg_settings").fetchall()
        return {name: "" if value is None else str(value) for name, value in rows}
    return {}
