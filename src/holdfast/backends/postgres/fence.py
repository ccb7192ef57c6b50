"""Before a read at REPLICA: whether its primary still is one, by the word of other servers. Pure.

An ack at REPLICA on a later timeline needs two servers there: who was promoted, and a standby that
has the write on its disk. So where all others but one say that they are standbys on the timeline of the
primary, nothing was acknowledged on a later one before they were asked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from holdfast.backends.postgres.asks import Ask, Steps, ask
from holdfast.backends.postgres.errors import BACKEND
from holdfast.backends.postgres.hosts import Hosts
from holdfast.backends.postgres.replicas import PRIMARY
from holdfast.backends.postgres.statements import Rows, Statement, Statements
from holdfast.errors import EngineUnreachable, HoldfastError

AVOID_S: Final = 10.0
"""So long a server that did not answer is not asked: one that is silent costs seconds."""
LOOK_S: Final = 10.0
"""How long a look at all servers is good for, where no standby answers."""


class Fence:
    """Asks the servers of a URL that names several; `first` is the place of the first among all pools."""

    def __init__(self, primary: Hosts, first: int, statements: Statements) -> None:
        self._primary, self._statements = primary, statements
        count = len(primary.members)
        self._wanted = max(1, count - 2)
        self._avoid_until_s = dict.fromkeys(range(first, first + count), 0.0)
        self._last: list[int] = []
        self._looked_s = -math.inf

    def read(
        self, statement: Statement, confirmed: Callable[[int], Steps[str | None]]
    ) -> Steps[Rows]:
        """What the primary shows; `confirmed` asks whether a standby has what it wrote."""
        least = yield from self._least_timeline()
        if least is None:
            yield from self._write(confirmed)
        rows = yield from ask(PRIMARY, statement)
        if statement.timeline < (least or 0):
            raise EngineUnreachable(
                f"a server of the URL is on timeline {least}, and the primary that answers is on "
                f"{statement.timeline}: it was deposed. Nothing was written. Try again when the new "
                "primary answers",
                operation=statement.operation,
                backend=BACKEND,
            )
        return rows

    def _least_timeline(self) -> Steps[int | None]:
        """The timeline that the primary must be on; None if too few servers say anything."""
        agree: list[int] = []
        for server in self._order():
            try:
                [(is_standby, timeline)] = yield Ask(server, self._statements.timeline())
            except HoldfastError:
                self._avoid_until_s[server] = time.monotonic() + AVOID_S
                continue
            if (timeline or 0) > self._primary.timeline:
                self._primary.look_again()
                return int(timeline)
            if is_standby and timeline == self._primary.timeline:
                agree.append(server)
            if len(agree) >= self._wanted:
                self._last = agree
                return self._primary.timeline
        return None

    def _order(self) -> Iterator[int]:
        """First those that agreed last time, and none that has failed lately."""
        now_s = time.monotonic()
        for server in dict.fromkeys((*self._last, *self._avoid_until_s)):
            if self._avoid_until_s[server] <= now_s:
                yield server

    def _write(self, confirmed: Callable[[int], Steps[str | None]]) -> Steps[None]:
        """A standby is to confirm something that the primary writes, or all servers are looked at."""
        if time.monotonic() < self._looked_s + LOOK_S:
            return
        statement = self._statements.fence()
        try:
            yield from ask(PRIMARY, statement)
        except HoldfastError:  # the read finds out by itself
            return
        if (yield from confirmed(statement.timeline)) is None:
            self._primary.look_again()
            self._looked_s = time.monotonic()


def each_member(primary: Hosts) -> list[Hosts]:
    """Every server of a URL that names several, by itself, whether it is the primary or not."""
    address = primary.address
    return [
        Hosts(replace(address, conninfo={**one, "target_session_attrs": "any"}), replica=True)
        for one in primary.members
        if len(primary.members) > 1
    ]
