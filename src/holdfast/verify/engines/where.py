"""Where a driver would go with a URL, after all that could lead it elsewhere."""

from __future__ import annotations

import os
from typing import Any, Final

from holdfast.errors import UsageError
from holdfast.verify.engines.drivers import as_redis
from holdfast.verify.engines.url_place import Place

_NOT_POSTGRES: Final = (
    "not the URL of a PostgreSQL, such as postgresql://user:password@host/database"
)


def redis_place(url: str) -> Place:
    """Where redis-py would go with this URL."""
    from redis.connection import parse_url  # noqa: PLC0415 - only who uses Redis needs its driver

    try:
        parts: dict[str, Any] = dict(parse_url(as_redis(url)))  # type: ignore[no-untyped-call]
    except ValueError:  # its words may quote the password: it must not be a cause
        raise UsageError("not the URL of a Redis, such as redis://:password@host:6379/0") from None
    socket = parts.get("path") if url.startswith("unix:") else None  # elsewhere it means nothing
    return Place(
        host=str(socket or parts.get("host") or "localhost"),
        port=int(parts.get("port") or 6379),
        database=str(parts.get("db") or 0),
        user=str(parts.get("username") or ""),
    )


def postgres_place(url: str) -> Place:
    """Where libpq would go with this URL, as far as it can be known without going."""
    import psycopg  # noqa: PLC0415 - only who uses PostgreSQL needs its driver
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    if not url.startswith("postgres"):
        raise UsageError("not the URL of a PostgreSQL: it begins with postgresql://")
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:  # its words may quote the password: it must not be a cause
        raise UsageError(_NOT_POSTGRES) from None
    known = {**_defaults(str(parts.get("service") or "")), **parts}
    # It connects to hostaddr where there is one, whatever host says.
    host = str(known.get("hostaddr") or known.get("host") or "")
    port = str(known.get("port") or 5432)
    if "," in f"{host}{port}":
        raise UsageError(f"one server is wanted for tests, not several: {host}:{port}")
    if not (port.isascii() and port.isdecimal()):
        raise UsageError(_NOT_POSTGRES)
    return Place(
        host=host or "/var/run/postgresql",
        port=int(port),
        database=str(known.get("dbname") or ""),
        user=str(known.get("user") or ""),
    )


def _defaults(service: str) -> dict[str, str]:
    """What libpq takes where a URL says nothing: variables, and the entry of a service file."""
    from psycopg import pq  # noqa: PLC0415 - only who uses PostgreSQL needs its driver

    before = os.environ.get("PGSERVICE")
    try:
        if service:  # libpq reads the file itself, as it will when it connects
            os.environ["PGSERVICE"] = service
        found = pq.Conninfo.get_defaults()
    except UnicodeDecodeError as error:
        raise UsageError("the service file of PostgreSQL cannot be read") from error
    finally:
        if service and before is None:
            del os.environ["PGSERVICE"]
        elif before is not None:
            os.environ["PGSERVICE"] = before
    return {one.keyword.decode(): one.val.decode() for one in found if one.val is not None}
