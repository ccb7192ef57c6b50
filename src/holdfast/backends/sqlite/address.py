"""What a URL of SQLite stands for: a file, and how to open it. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.commands import Settings
from holdfast.errors import Refused, UsageError


def path_of(address: str) -> Path:
    """The file that a URL names."""
    url = urlsplit(address)
    if url.netloc:
        raise UsageError(
            f"this URL names a host ({url.netloc.rpartition('@')[2]}); a file has none. Write three slashes for a relative "
            "path (sqlite:///memory.db), four for an absolute one (sqlite:////var/lib/memory.db)"
        )
    if "#" in address:  # what follows it would be cut off, and another file opened
        raise UsageError("this URL has a # in it: write %23 for one in a file's name")
    path = unquote(url.path[1:])
    if not path or path == ":memory:" or "\0" in path:
        raise UsageError(
            "sqlite needs a file: memory that is gone with the process is what this store exists "
            "to prevent. Write sqlite:///memory.db"
        )
    return Path(path).absolute()


def read_address(asked: Settings) -> dict[str, Any]:
    """The arguments of the backend that a URL stands for."""
    if asked.replicas:
        raise Refused("SQLite has no replicas. Use PostgreSQL or Redis, or leave them out")
    url = asked.url.reveal()
    settings: dict[str, Any] = {"path": path_of(url), "keys_kept_ms": asked.keys_kept_ms}
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name == "mode" and value in {"rw", "rwc"}:
            settings["create"] = value == "rwc"
        elif name == "busy_timeout_s":
            settings["busy_timeout_s"] = _seconds(value)
        else:
            raise UsageError(
                f"sqlite does not know {name}={value}; it knows mode=rw (the file must be there), "
                "mode=rwc and busy_timeout_s"
            )
    return settings


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:  # noqa: PLR2004 - an hour is more than anybody waits
        raise UsageError(f"busy_timeout_s must be seconds from 0 to 3600, not {value!r}")
    return seconds
