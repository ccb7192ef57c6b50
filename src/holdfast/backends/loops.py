"""What tasks share, for each event loop its own: locks, and tasks that wait, belong to one loop.

So a store goes on in a second event loop, after the first or beside it. A loop that was closed
under its tasks leaves writes that nobody will ever carry out: they go with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Made when a loop first asks for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._of: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self) -> T:
        """That of the running event loop."""
        loop = asyncio.get_running_loop()
        mine = self._of.get(loop)
        if mine is None:
            for one in [one for one in list(self._of) if one.is_closed()]:
                self._of.pop(one, None)
            mine = self._of[loop] = self._make()
        return mine

    def all(self) -> list[T]:
        """Those of every loop that has asked and was not seen to be closed."""
        return list(self._of.values())
