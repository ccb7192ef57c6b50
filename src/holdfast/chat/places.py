"""Places: a few requests of each address are worked on at a time, and one of its answers.

Its others wait for them. The event loop goes round all that is being worked on, so a request waits
for a few of every other address and never for all that one of them has sent. What only waits (a
stream, while a model thinks) has no place.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager


def is_full(taken: Counter[str], address: str, most: int) -> bool:
    """Whether an address has its share: as many as are free, so that there is room for the next one."""
    return taken[address] >= most - taken.total()


@contextmanager
def counted(taken: Counter[str], address: str) -> Iterator[None]:
    """One more of it meanwhile."""
    taken[address] += 1
    try:
        yield
    finally:
        taken[address] -= 1
        if not taken[address]:
            del taken[address]


class Places:
    """So many for each name, kept only while one is held or waited for."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._names: dict[Hashable, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def held(self, name: Hashable) -> AsyncIterator[None]:
        """In the order in which they came under this name."""
        places, wanted = self._names.get(name) or (asyncio.Semaphore(self._each), 0)
        self._names[name] = (places, wanted + 1)
        try:
            async with places:
                yield
        finally:
            places, wanted = self._names[name]
            if wanted == 1:
                del self._names[name]
            else:
                self._names[name] = (places, wanted - 1)
