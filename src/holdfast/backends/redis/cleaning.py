"""The files of a Redis are rewritten at once, so that no copy of what was forgotten is left in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from holdfast.backends.redis.driver import Rest, Steps
from holdfast.backends.redis.replies import IN_THE_FILES
from holdfast.errors import HoldfastError

TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
IN_REPLICAS: Final = "the files of its replicas, until each is told the same: BGREWRITEAOF, BGSAVE"
AT_WORK: Final = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")

Ask = Callable[..., Steps[Any]]
"""Sends the words of a command to the server, and gives its reply."""


def clean(ask: Ask) -> Steps[tuple[str, ...]]:
    """Where copies are left after that, in bounded time. Whatever happens here, they were erased."""
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        info = yield from _info(ask)
        done = True
        if info.get("aof_enabled") == "1":
            words, status = (b"BGREWRITEAOF",), "aof_last_bgrewrite_status"
            done = yield from _rewrite(ask, words, status, deadline_s)
        if (yield from ask(b"CONFIG", b"GET", b"save"))[1] or _was_saved(info):
            saved = yield from _rewrite(ask, (b"BGSAVE",), "rdb_last_bgsave_status", deadline_s)
            done = done and saved
    except (HoldfastError, IndexError):  # an IndexError: it does not say whether it makes snapshots
        return (IN_THE_FILES,)
    replicas = () if info.get("connected_slaves") == "0" else (IN_REPLICAS,)
    return replicas if done else (IN_THE_FILES,)


def _was_saved(info: dict[str, str]) -> bool:
    """Whether it made a snapshot since it began, by hand or for a replica, though it makes none."""
    return info.get("rdb_saves", "0") != "0" or info.get("rdb_last_bgsave_time_sec", "-1") != "-1"


def _rewrite(ask: Ask, words: tuple[bytes, ...], status: str, deadline_s: float) -> Steps[bool]:
    """Whether a file was rewritten. One that was under way before may have old records in it.

    A server that was started again says that its last one was well, though it never ended.
    """
    began, run_id = False, None
    while time.monotonic() < deadline_s:
        info = yield from _info(ask)
        if began and info.get("run_id") != run_id:
            return False
        if any(info.get(name) == "1" for name in AT_WORK):
            yield Rest(POLL_S)
        elif began:
            return info.get(status) == "ok"
        else:
            began, run_id = (yield from _begin(ask, words)), info.get("run_id")
    return False


def _begin(ask: Ask, words: tuple[bytes, ...]) -> Steps[bool]:
    """Whether it began; False if one of another client has begun meanwhile."""
    try:
        yield from ask(*words)
    except HoldfastError as error:
        if "in progress" not in str(error):
            raise
        return False
    return True


def _info(ask: Ask) -> Steps[dict[str, str]]:
    found: dict[str, str] = {}
    for section in (b"server", b"persistence", b"replication"):
        text = yield from ask(b"INFO", section)
        lines = (line.split(":", 1) for line in bytes(text).decode().splitlines() if ":" in line)
        found |= {name: value for name, value in lines}  # noqa: C416 - pairs of a generator
    return found
