"""Embedders and summarizers that tests bring along: small, exact, and able to fail on demand."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from holdfast import Message
from holdfast.recall.embedders import WordLlama


@functools.cache
def wordllama() -> WordLlama:
    """One for the run: it takes half a second to load."""
    return WordLlama()


class Letters:
    """Hashes of three letters each: texts that share them are near. Needs no model."""

    def __init__(self, *, name: str = "letters", dimension: int = 64) -> None:
        self.name = name
        self.dimension = dimension
        self.calls = 0
        self.before: Callable[[int], None] = lambda _call: None

    def embed(self, texts: Sequence[str]) -> Any:
        self.calls += 1
        self.before(self.calls)
        return [self._row(f"  {text.casefold()}  ") for text in texts]

    def _row(self, text: str) -> list[float]:
        row = [0.0] * self.dimension
        for at in range(len(text) - 2):
            row[zlib.crc32(text[at : at + 3].encode("utf-8", "replace")) % self.dimension] += 1
        return row


class Counting:
    """Says how many messages it was given after what."""

    name = "counting"

    def __init__(self) -> None:
        self.before: Callable[[], None] = lambda: None

    def summarize(self, before: str, messages: Sequence[Message]) -> str:
        self.before()
        first, last = messages[0].seq, messages[-1].seq
        return f"{before}[{first} to {last}]"
