"""The index of a log in Redis: entries beside the log, compared by the client. Pure."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Final

from holdfast.recall.commands import POSTINGS_MAX, Candidate, Entry, Search, nearest
from holdfast.recall.words import choose, rarity

_HEAD: Final = struct.Struct("<IHI")
_WORD: Final = struct.Struct("<qf")


def pack(entry: Entry) -> bytes:
    """Number, length of the vector, count of words; the vector; each word with its weight."""
    head = _HEAD.pack(entry.seq, len(entry.vector), len(entry.words))
    words = b"".join(_WORD.pack(term, weight) for term, weight in entry.words.items())
    return head + entry.vector + words


def unpack(data: bytes) -> tuple[int, bytes, dict[int, float]]:
    """The inverse of `pack`, without the sketch, which nobody needs here."""
    seq, size, _ = _HEAD.unpack_from(data)
    words = data[_HEAD.size + size :]
    return seq, data[_HEAD.size : _HEAD.size + size], dict(_WORD.iter_unpack(words))


def find(search: Search, held: Sequence[bytes]) -> list[Candidate]:
    """Every entry is compared."""
    entries = [unpack(data) for data in held]
    often = Counter(term for _, _, words in entries for term in words)
    chosen = choose([often[term] for term in search.words], POSTINGS_MAX)
    rare = {search.words[at]: rarity(often[search.words[at]], len(entries)) for at in chosen}
    return nearest(
        search,
        [
            (seq, vector, sum(words[term] * worth for term, worth in rare.items() if term in words))
            for seq, vector, words in entries
        ],
    )
