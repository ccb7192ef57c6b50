"""How each kind of engine is run from an image: pure data and small decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import EngineMissing, UsageError
from holdfast.verify.engines.ports import HOST
from holdfast.verify.engines.raw_protocol import postgres_query, redis_call
from holdfast.verify.engines.redis import redis_arguments

_SAID_CHARS_MAX: Final = 500
_CLOSED: Final = (  # /tmp of the container
    'umask 077 && echo "requirepass $REDISCLI_AUTH" >/tmp/password.conf && '
    'exec "$@" --include /tmp/password.conf'
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a container of one kind needs; the well-known images and small ones of ours fit."""

    image: str
    """The well-known image; HOLDFAST_<KIND>_IMAGE names another."""
    port: int
    """Inside the container."""
    data: str
    """Where its data are inside the container."""
    stop_signal: str
    url: str
    arguments: Callable[[Mapping[str, str]], list[str]]
    ask_version: Callable[[int, str], str]
    """Asked on the host's port, with the password; any answer means that it is ready.

    `OSError` if there is none."""
    health: list[str]
    password_variable: str
    """In the container; all users of this machine can read a command line, and reach the port."""


def recipe_of(kind: str, config: str, provider: str) -> Recipe:
    """The recipe; `EngineMissing` or `UsageError` where a container cannot be that."""
    if kind not in RECIPES:
        raise EngineMissing(
            f"the provider {provider} has no {kind}; it has {', '.join(RECIPES)}. "
            f"For {kind} use the provider local.",
            backend=kind,
        )
    if config in ("cluster", "replica"):
        raise UsageError(
            f"the configuration {config!r} needs several servers: use the provider local"
        )
    return RECIPES[kind]


def image_of(kind: str, version: str | None) -> str:
    """The image by name and tag: that of HOLDFAST_<KIND>_IMAGE, or the well-known one."""
    named = os.environ.get(image_variable(kind)) or RECIPES[kind].image
    if version is None:
        return named
    repository, colon, tag = named.rpartition(":")
    if not colon or "/" in tag:  # a registry's port is no tag
        repository = named
    return f"{repository}:{version}"


def image_variable(kind: str) -> str:
    """The environment variable that names the image of this kind."""
    return f"HOLDFAST_{kind.upper()}_IMAGE"


def _redis_version(port: int, password: str) -> str:
    redis_call(port, "PING", password=password)
    lines: str = redis_call(port, "INFO", "server", password=password)
    facts = dict(line.split(":", 1) for line in lines.splitlines() if ":" in line)
    return facts.get("valkey_version") or facts["redis_version"]


def _postgres_version(port: int, password: str) -> str:
    rows = postgres_query(port, "SHOW server_version", password=password)
    return (rows[0][0] or "").split()[0]


def _redis_server(program: str) -> Callable[[Mapping[str, str]], list[str]]:
    def arguments(settings: Mapping[str, str]) -> list[str]:
        # Protected mode refuses clients that do not come from the container itself.
        own = {"protected-mode": "no", "dir": "/data"}
        return ["sh", "-c", _CLOSED, "sh", program, *redis_arguments({**own, **settings})]

    return arguments


def _postgres(settings: Mapping[str, str]) -> list[str]:
    return ["postgres", *(word for pair in settings.items() for word in ("-c", "=".join(pair)))]


def _redis(image: str, program: str, client: str) -> Recipe:
    return Recipe(
        image=image,
        port=6379,
        data="/data",
        stop_signal="SIGTERM",
        url=f"redis://:{{password}}@{HOST}:{{port}}/0",
        arguments=_redis_server(program),
        ask_version=_redis_version,
        health=[client, "ping"],
        password_variable="REDISCLI_AUTH",  # noqa: S106 - a name; the client reads it too
    )


RECIPES: Final[Mapping[str, Recipe]] = {
    "redis": _redis("redis:7", "redis-server", "redis-cli"),
    "valkey": _redis("valkey/valkey:8", "valkey-server", "valkey-cli"),
    "postgres": Recipe(
        image="postgres:16",
        port=5432,
        data="/var/lib/postgresql/data",
        # The fast shutdown: sessions are ended and data are written.
        stop_signal="SIGINT",
        url=f"postgresql://postgres:{{password}}@{HOST}:{{port}}/postgres",
        arguments=_postgres,
        ask_version=_postgres_version,
        health=["pg_isready", "--username=postgres"],
        password_variable="POSTGRES_PASSWORD",  # noqa: S106 - a name
    ),
}


def said(error: Any) -> str:
    """What a daemon or a command said, in one line; its end, where the reason usually is."""
    return " ".join(str(getattr(error, "explanation", None) or error).split())[-_SAID_CHARS_MAX:]
