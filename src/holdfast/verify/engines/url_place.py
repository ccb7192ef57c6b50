"""Where a URL leads, and whether that looks like production. Pure, but for one name lookup."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PERMIT_VARIABLE: Final = "HOLDFAST_URL_IS_FOR_TESTS"
"""Set to the very place that an error named, it says: I know what this is, use it."""

_SAYS_PRODUCTION: Final = re.compile(
    r"(?<![a-z])(prod|production|prd|live)(?![a-z])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Place:
    """A database on a server, as a person would name it."""

    host: str
    port: int
    database: str
    user: str = ""

    @property
    def name(self) -> str:
        """Host, port and database; never a password."""
        return f"{self.host}:{self.port}/{self.database}"

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine: loopback, or a socket in the file system."""
        return self.host.startswith(("/", "@")) or _is_loopback(self.host)


def looks_like_production(place: Place, others: Sequence[str]) -> str:
    """Why this should not be tested upon, in words; empty if nothing speaks against it.

    `others` are keys or tables in it that are not of a check.
    """
    if not place.is_here:
        return f"{place.host} is not this machine"
    for word in (place.host, place.database, place.user):
        if _SAYS_PRODUCTION.search(word):
            return f"the name {word!r} says production"
    if others:
        shown = ", ".join(repr(name) for name in others[:3])
        return f"it holds other data, such as {shown}"
    return ""


def is_permitted(place: Place) -> bool:
    """Whether the environment names exactly this place as one for tests."""
    return os.environ.get(PERMIT_VARIABLE) == place.name


def refusal(place: Place, reason: str) -> str:
    """The sentence that refuses, and how to insist."""
    return (
        f"{place.name} looks like production: {reason}. Nothing was written. "
        f"If it is for tests, say so: export {PERMIT_VARIABLE}={place.name}"
    )


def _is_loopback(host: str) -> bool:
    """Every address of the host is a loopback one; a name that is not known is not."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # no name at all, such as a..b
        return False
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)
