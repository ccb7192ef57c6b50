"""Whether the other servers of the URL still follow the primary, as each says itself. Pure.

An ack at REPLICA on a later timeline needs two servers there: who was promoted, and a standby that
has the write on its disk. So where all others but one say that they follow the timeline of the
primary, nothing was acknowledged on a later one before they were asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from holdfast.backends.postgres.errors import BACKEND
from holdfast.backends.postgres.hosts import Hosts
from holdfast.errors import EngineUnreachable

AVOID_S: Final = 10.0
"""So long a server that did not answer is not asked: one that is silent costs seconds."""


class Followers:
    """The servers that are asked, by their place among all; none where a URL names only one."""

    def __init__(self, primary: Hosts, first: int) -> None:
        self._primary, self._first = primary, first
        count = len(primary.members)
        self.wanted = max(1, count - 2)
        """So many must say so: of the primary and one more nothing needs to be known."""
        self._avoid_until_s = dict.fromkeys(
            range(first, first + count if count > 1 else first), 0.0
        )
        self._last: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._avoid_until_s)

    @property
    def timeline(self) -> int:
        """The one that the primary is on, as far as is known."""
        return self._primary.timeline

    def order(self, now_s: float) -> Iterator[int]:
        """First those that followed last time, and none that has failed lately."""
        for server in dict.fromkeys((*self._last, *self._avoid_until_s)):
            if self._avoid_until_s[server] <= now_s:
                yield server

    def avoid(self, server: int, now_s: float) -> None:
        """It did not answer."""
        self._avoid_until_s[server] = now_s + AVOID_S

    def follow(self, servers: list[int]) -> None:
        """These are enough: they are asked first from now on."""
        self._last = servers


def each_member(primary: Hosts) -> list[Hosts]:
    """Every server of a URL by itself, whether it is the primary or not."""
    address = primary.address
    return [
        Hosts(replace(address, conninfo={**one, "target_session_attrs": "any"}), replica=True)
        for one in primary.members
        if len(primary.members) > 1
    ]


def check_timeline(answered: int, least: int) -> None:
    """Raise where a member is on a later timeline than the server that answered a read."""
    if answered < least:
        raise EngineUnreachable(
            f"a server of the URL is on timeline {least}, and the primary that answers is on {answered}: "
            "it was deposed. Nothing was written. Try again when the new primary answers",
            backend=BACKEND,
        )
