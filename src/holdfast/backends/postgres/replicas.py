"""Which replica to read from, and how far it must have come. Pure: no connection, no waiting."""

from __future__ import annotations

import re
import threading
from typing import ClassVar, Final

from holdfast.errors import UsageError

PRIMARY: Final = -1
AVOID_S: Final = 2.0
"""How long a replica that failed is left alone."""
WAIT_S: Final = 0.5
"""How long a read waits for a replica that is behind, before it goes to the primary."""

_POSITION: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Replicas:
    """The replicas of a store, and the position that they must have come to.

    That is where the primary was when the store was opened, then where its own last write is.
    """

    NOWHERE: ClassVar[str] = "FFFFFFFF/FFFFFFFF"
    """A position that no replica reaches: the primary answers."""

    def __init__(self, count: int, *, position: str = "", wait_s: float = WAIT_S) -> None:
        self.wait_s = wait_s
        self._avoid_until_s = [0.0] * count
        self._next = 0
        self._written = _as_number(position) if position else 0
        self._losses = 0
        self._in_doubt = False
        self._changing = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._avoid_until_s)

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
            self._written = max(self._written, _as_number(position))
            if losses_before == self._losses:  # asked after the last loss, hence beyond it
                self._in_doubt = False

    def token_for(self, seen: str | None) -> str | None:
        """Where a replica must have come to; None if nobody can know, so that the primary answers.

        That is the later of what this store wrote and what the caller has seen.
        """
        if not self or self._in_doubt or seen == "":  # an ack whose writer had no replicas
            return None
        return _as_text(self._written if seen is None else max(self._written, _as_number(seen)))

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


def _as_number(position: str) -> int:
    found = _POSITION.fullmatch(position)
    if found is None:
        raise UsageError("seen is an ack of another engine: its token is no position of this one")
    return int(found[1], 16) << 32 | int(found[2], 16)


def _as_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
