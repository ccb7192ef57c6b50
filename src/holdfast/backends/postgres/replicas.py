"""Which replica to read from, and how far it must have come. Pure: no connection, no waiting."""

from __future__ import annotations

import threading
from typing import ClassVar, Final

from holdfast.backends.postgres.errors import BACKEND
from holdfast.backends.postgres.hosts import Hosts, Position, as_text, is_position, read_position
from holdfast.errors import EngineUnreachable

PRIMARY: Final = -1
AVOID_S: Final = 2.0
"""How long a replica that failed is left alone."""
WAIT_S: Final = 0.5
"""How long a read waits for a replica that is behind, before it goes to the primary."""


class Replicas:
    """The replicas of a store, and the position that they must have come to.

    That is where the primary was when the store was opened, then where its own last write is.
    """

    NOWHERE: ClassVar[str] = "FFFFFFFF/FFFFFFFF"
    """A position that no replica reaches: the primary answers."""

    def __init__(
        self, count: int, primary: Hosts, *, position: str = "", wait_s: float = WAIT_S
    ) -> None:
        self.wait_s = wait_s
        self._primary = primary
        self._avoid_until_s = [0.0] * count
        self._next = 0
        self._written: Position = read_position(position) if position else (0, 0)
        self._losses = 0
        self._in_doubt = False
        self._changing = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._avoid_until_s)

    def look_again(self) -> None:
        """The primary does not answer as one does: another one may have taken its place."""
        self._primary.look_again()

    def losses(self) -> int:
        """How often the position of a write was not learnt; taken before one is asked for."""
        return self._losses

    def wrote(self, position: str, losses_before: int) -> None:
        """A write of this store is at or before that position of the log."""
        with self._changing:
            if position == self.NOWHERE:
                self._losses += 1
                self._in_doubt = True
                return
            place = read_position(position)
            self._primary.see(place[0])
            self._written = max(self._written, place)
            if losses_before == self._losses:  # asked after the last loss, hence beyond it
                self._in_doubt = False

    def token_for(self, seen: str | None) -> str | None:
        """Where a replica must have come to; None if nobody can know, so that the primary answers.

        That is the later of what this store wrote and what the caller has seen.
        """
        wanted = self._seen(seen)
        if not self or self._in_doubt or wanted is None:
            return None
        least = max(wanted, self._written, self._primary.began)
        # Of two timelines nobody can say here what both have: the primary on the later one knows.
        is_later = least[0] != self._primary.timeline or 0 < wanted[0] < least[0]
        return None if is_later else as_text(least)

    def _seen(self, seen: str | None) -> Position | None:
        """What the caller has seen; (0, 0) for nothing, None where that has no place in the log."""
        if not seen:  # an ack whose writer had no replicas
            return (0, 0) if seen is None else None
        if not self and not is_position(seen):
            return None
        position = read_position(seen)
        self._primary.suspect(position[0])
        return position if position[0] else None

    def check_timeline(self, seen: str | None, timeline: int) -> None:
        """Raise where the primary that answered is on an earlier timeline than what was seen."""
        wanted = read_position(seen)[0] if seen and is_position(seen) else 0
        if 0 < timeline < wanted:
            raise EngineUnreachable(
                f"what was seen is on timeline {wanted}, and the server that answers is on {timeline}: "
                "it was deposed, or the ack is of another cluster. Nothing was written. Name "
                "all servers in the URL, or try again when the new primary answers",
                operation="history",
                backend=BACKEND,
            )

    def choose(self, token: str | None, now_s: float) -> int:
        """The next replica in turn that has not failed lately, or the primary."""
        if token is None or token == self.NOWHERE:
            return PRIMARY
        with self._changing:
            for _ in self._avoid_until_s:
                self._next = (self._next + 1) % len(self._avoid_until_s)
                if self._avoid_until_s[self._next] <= now_s:
                    return self._next
        return PRIMARY

    def avoid(self, server: int, now_s: float) -> None:
        """A replica failed: leave it alone for a while."""
        self._avoid_until_s[server] = now_s + AVOID_S
