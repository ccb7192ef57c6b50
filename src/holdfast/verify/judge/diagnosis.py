"""Which promises a session breaks by themselves: the fewest that, given up together, explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from typing import Final

from holdfast.verify.history import Session
from holdfast.verify.judge.findings import Found
from holdfast.verify.judge.leftover import is_small, operations_of
from holdfast.verify.judge.recheck import Recheck
from holdfast.verify.judge.verdict import Anomaly

_PREFERRED: Final = (
    "phantom", "isolated", "exactly-once", "forgotten", "atomic", "durable", "fresh", "ordered", "snapshot",
    "expiring",
)  # fmt: skip
"""Where two explain equally well, the one that stands first here."""
_BEYOND_SEARCH: Final = frozenset({"leak", "phantom", "duplicate", "seq-clash", "expired-late"})
"""What the search leaves out of a read before it begins, or does not look at."""
STATES_MAX: Final = 2_000
"""A search for an explanation that grows beyond this leaves it to the rules."""


def diagnosed(recheck: Recheck, session: Session, found: list[Found]) -> list[Anomaly]:
    """The findings as anomalies: those of the diagnosis are roots, the others follow from them."""
    if not found:
        return []
    chosen = _proven(recheck, found, _diagnosis(recheck, session, found))
    names = tuple(dict.fromkeys(f.anomaly.name for f in found if f.cause in chosen))
    roots = [f.anomaly for f in found if f.cause in chosen]
    echoes = [
        replace(f.anomaly, follows_from=_from(f, found, chosen) or names)
        for f in found
        if f.cause not in chosen
    ]
    return [*roots, *echoes]


def _from(echo: Found, found: Iterable[Found], chosen: frozenset[str]) -> tuple[str, ...]:
    """The names of the roots that explain it."""
    why = echo.also & chosen
    return tuple(dict.fromkeys(f.anomaly.name for f in found if f.cause in why))


def _diagnosis(recheck: Recheck, session: Session, found: list[Found]) -> frozenset[str]:
    """By search where the session is small, otherwise by what the rules say explains what."""
    needs = {frozenset({f.cause}) | f.also for f in found}
    by_rules = _smallest(found, lambda s: all(s & need for need in needs))
    if by_rules is None or not is_small(session) or len({f.cause for f in found}) == 1:
        return by_rules or frozenset(f.cause for f in found)
    operations = operations_of(session)
    alone = {f.cause for f in found if f.anomaly.name in _BEYOND_SEARCH}

    def explains(given_up: frozenset[str]) -> bool:
        return given_up >= alone and not recheck.impossible(
            operations, "", given_up=given_up, states_max=STATES_MAX
        )

    return _smallest(found, explains, by_rules) or by_rules


def _smallest(
    found: list[Found],
    explains: Callable[[frozenset[str]], bool],
    favourite: frozenset[str] = frozenset(),
) -> frozenset[str] | None:
    """The smallest set of promises that explains everything; the better one of two."""
    candidates = [p for p in _PREFERRED if any(f.cause == p for f in found)]
    votes = Counter(f.vote for f in found)
    for size in range(1, len(candidates) + 1):
        sets = [frozenset(c) for c in combinations(candidates, size)]
        fitting = [s for s in sets if explains(s)]
        if fitting:
            return max(fitting, key=lambda s: (s == favourite, sum(votes[p] for p in s)))
    return None


def _proven(recheck: Recheck, found: list[Found], chosen: frozenset[str]) -> frozenset[str]:
    """Those of several promises that are broken even where all the others are given up."""
    if len(chosen) == 1:
        return chosen
    proven = {
        f.cause
        for f in found
        if f.cause in chosen and recheck.confirms(f.anomaly, chosen - {f.cause})
    }
    return frozenset(proven) or chosen
