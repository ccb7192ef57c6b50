"""A row of numbers that is asked, over and over, which of them are above a bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.verify.history import NEVER_NS


class Peaks:
    """The places whose number is above a bar, without a look at those that are not.

    Each entry of the tree is the highest of the two below it; the numbers stand at its end.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._size = 1 << max(len(numbers) - 1, 0).bit_length()
        self._tree = [-NEVER_NS] * self._size + [*numbers]
        self._tree += [-NEVER_NS] * (2 * self._size - len(self._tree))
        for at in range(self._size - 1, 0, -1):
            self._tree[at] = max(self._tree[2 * at], self._tree[2 * at + 1])

    def put(self, at: int, number: int) -> None:
        """Put another number at this place; one below every bar leaves it out."""
        at += self._size
        self._tree[at] = number
        while at > 1:
            at //= 2
            self._tree[at] = max(self._tree[2 * at], self._tree[2 * at + 1])

    def above(self, bar: int, end: int, begin: int = 0) -> Iterator[int]:
        """The places from `begin` and before `end` with a number above the bar, in their order."""
        waiting = [(1, 0, self._size)]
        while waiting:
            at, start, size = waiting.pop()
            if start >= end or start + size <= begin or self._tree[at] <= bar:
                continue
            if size == 1:
                yield start
            else:
                half = size // 2
                waiting += [(2 * at + 1, start + half, half), (2 * at, start, half)]
