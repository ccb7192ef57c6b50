"""The words of a text, for finding by them: the same on every engine, in any script. Pure.

Engines cut text into words in ways of their own, and few can cut Chinese. So words are made
here, and an index keeps their hashes: equal on every engine, and nothing to read.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_RUNS: Final = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:['\u2019.\-][^\W_{_CJK}]+)*")
_PIECES: Final = re.compile(r"['\u2019.\-]")
_IS_CJK: Final = re.compile(rf"[{_CJK}]")

_STOP: Final = (
    "a about again all also am an and any are as at be because been before but by can can't could "
    "did do does doesn't doing don't for from get gets go goes had has have having he her him his "
    "how i i'd i'll i'm i've if in into is isn't it it's its just let may me might more most must "
    "my no not of on or other our out over please s say says she should so some such t than that "
    "the their them then there these they this those to too until up us use user user's very was "
    "we we're were what when where which while who whom whose why will with would you your"
)
STOP: Final = frozenset(_STOP.split())
"""Words that say nothing about what is asked."""
STOP_CJK: Final = frozenset(
    "的了是我你他她它们在吗呢吧啊和与也都就很有这那么什怎为谁哪几会要把被给"
)

LENGTH_USUAL: Final = 12
"""Words of a usual memory. A constant, not an average: the weight of a word never changes."""
TERMS_MAX: Final = 4096
"""Different words of one record that are kept."""


def terms(text: str) -> Iterator[str]:
    """The words of a text: stems, and pairs of neighbours where a script has no spaces."""
    for run in _RUNS.findall(text.casefold()):
        yield from _cut(run)


@lru_cache(65_536)
def _cut(run: str) -> tuple[str, ...]:
    """The words of what stands between two spaces; kept, because the same ones come again."""
    if _IS_CJK.match(run):
        return tuple(_pairs(run))
    if run in STOP:
        return ()
    pieces = _PIECES.split(run)
    stems = [stem(piece) for piece in pieces if piece and piece not in STOP]
    return tuple([run, *stems] if len(pieces) > 1 else stems)


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        if run not in STOP_CJK:
            yield run
        return
    for at in range(len(run) - 1):
        pair = run[at : at + 2]
        if not STOP_CJK.issuperset(pair):
            yield pair


def stem(word: str) -> str:
    """A word without its commonest endings; crude, but the same for asking and for finding."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha():  # noqa: PLR2004 - "gas" stays
        return word
    for ending, instead in (
        ("ies", "y"),
        ("sses", "ss"),
        ("ing", ""),
        ("ed", ""),
        ("es", ""),
        ("s", ""),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):  # noqa: PLR2004
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":  # noqa: PLR2004 - "running"
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word  # noqa: PLR2004


@lru_cache(65_536)
def term_hash(term: str) -> int:
    """What is kept of a word: a whole number of 64 bits with a sign, as every engine has."""
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def weights(text: str) -> dict[int, float]:
    """Each word of a text with its weight in it, as BM25 has it: more often, or in a short text."""
    counts = Counter(terms(text))
    length = sum(counts.values())
    scale = 1.2 * (0.25 + 0.75 * length / LENGTH_USUAL)
    common = counts.most_common(TERMS_MAX)
    return {term_hash(term): count * 2.2 / (count + scale) for term, count in common}


def asked(query: str) -> list[int]:
    """The words of a question, each once."""
    return list(dict.fromkeys(map(term_hash, terms(query))))[:TERMS_MAX]


def rarity(found: int, of: int) -> float:
    """How much a word tells that stands in `found` of so many texts."""
    return math.log(1 + (of - found + 0.5) / (found + 0.5)) if found else 0.0


def choose(counts: Sequence[int], budget: int) -> list[int]:
    """Which words to look up, rarest first, until their texts exceed the budget; at least one.

    A word that half of all texts have costs the most and tells the least.
    """
    order = sorted((count, at) for at, count in enumerate(counts) if count)
    chosen: list[int] = []
    spent = 0
    for count, at in order:
        spent += count
        if chosen and spent > budget:
            break
        chosen.append(at)
    return chosen
