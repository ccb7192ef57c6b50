"""A check on what a user has already: in a part of its own, of which nothing stays.

On a server that is a word in every key, or a schema; beside a file, a directory. What looks like
production is refused before anything is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from holdfast.backends.redis.address import TLS_OPTIONS
from holdfast.errors import UsageError
from holdfast.verify.engines.options import DEFAULT_CONFIG, EngineOptions
from holdfast.verify.engines.url import PostgresByUrl, RedisByUrl, with_parameter
from holdfast.verify.engines.url_place import Place, is_permitted, refusal
from holdfast.verify.rundir import RunDir

FILES: Final = ("sqlite", "chroma")
OURS: Final = ("schema", "pool_max", "pool_timeout_s", "reply_timeout_s", "failover_timeout_s")
"""What a store of ours knows in the URL of a PostgreSQL, and its driver does not."""
REDIS: Final = ("redis", "rediss", "valkey", "valkeys", "unix")


def move_in(url: str, stack: contextlib.ExitStack) -> tuple[str, str]:
    """The URL and the namespace that a check may use; with the stack all of it goes.

    `UsageError` where the server looks like production; nothing was written then.
    """
    scheme = url.partition("://")[0]
    if scheme in FILES:
        return _beside(url, stack), "default"
    if scheme.startswith("postgres"):
        theirs = _only(url, lambda name: name not in OURS)
        server = PostgresByUrl(EngineOptions("postgres", DEFAULT_CONFIG["postgres"]), theirs)
        stack.enter_context(server)
        return with_parameter(url, "schema", server.namespace), "default"
    if scheme in REDIS:
        known = ("db", *(TLS_OPTIONS if scheme in ("rediss", "valkeys") else ()))
        theirs = _only(url, lambda name: name in known)
        redis = RedisByUrl(EngineOptions("redis", DEFAULT_CONFIG["redis"]), theirs)
        stack.enter_context(redis)
        return url, redis.namespace
    host = url.removeprefix(f"{scheme}://").partition("/")[0].rpartition("@")[2]
    place = Place(host, 0, scheme)
    if not is_permitted(place):
        reason = "it leads to servers that only it knows"
        raise UsageError(refusal(place, reason))
    return url, ""


def _only(url: str, kept: Callable[[str], bool]) -> str:
    """The URL with those of its parameters that a driver knows."""
    head, _, query = url.partition("?")
    pairs = [pair for pair in query.split("&") if kept(unquote(pair.partition("=")[0]))]
    return f"{head}?{'&'.join(pairs)}" if query and pairs else head


def _beside(url: str, stack: contextlib.ExitStack) -> str:
    """A new one in a directory beside it, on the same file system."""
    scheme, _, rest = url.partition("://")
    if not rest.startswith("/"):
        raise UsageError("a file has no host: write three slashes, or four; nothing was written")
    path, mark, query = rest.partition("?")
    file = Path(unquote(path.removeprefix("/"))).absolute()
    if not file.parent.is_dir():
        raise UsageError(f"there is no directory {file.parent}; nothing was written")
    run_dir = RunDir(file.parent)
    stack.callback(run_dir.clear)
    if scheme == "chroma":  # a directory that its store does not create
        (run_dir.path / file.name).mkdir()
    return f"{scheme}:///{quote(str(run_dir.path / file.name))}{mark}{query}"
