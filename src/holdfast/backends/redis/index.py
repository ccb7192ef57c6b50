"""The index of a log in Redis: beside the log, compared by the engine if it can, or the client. Pure."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from holdfast.recall.index_commands import POSTINGS_MAX, Candidate, Entry, Search, nearest
from holdfast.recall.vectors import nearness
from holdfast.recall.words import choose, rarity

CLIENT_MAX: Final = 256
"""Entries of a log that the client compares even where the engine could: they take less memory so."""
_HEAD: Final = struct.Struct("<IHI")
_WORD: Final = struct.Struct("<qf")
_TERM: Final = struct.Struct("<q")


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


def question(search: Search) -> list[bytes]:
    """A search as the script takes it."""
    bounds = (b"%d" % search.limit, b"%d" % POSTINGS_MAX)
    words = (_TERM.pack(term) for term in search.words)
    return [search.model.encode(), search.vector, *bounds, *words]


def found(search: Search, reply: Any) -> list[Candidate]:
    """What the engine has found; or what it holds, compared here."""
    if reply[0] == b"held":
        return _find(search, reply[1])
    _, near, worded = reply
    # The engine's score of 0 to 1 is a cosine of -1 to 1.
    at = {int(seq): 2 * float(like) - 1 for seq, like in zip(near[::2], near[1::2], strict=True)}
    others = [(int(seq), vector) for seq, _, vector in worded if vector]
    further = nearness(search.vector, [vector for _, vector in others])
    at |= {seq: like for (seq, _), like in zip(others, further, strict=True)}
    words = {int(seq): float(worth) for seq, worth, _ in worded}
    return [Candidate(seq, like, words.get(seq, 0.0)) for seq, like in at.items()]


def _find(search: Search, held: Sequence[bytes]) -> list[Candidate]:
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
