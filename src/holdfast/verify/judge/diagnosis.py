"""Which promises a session breaks by themselves: the fewest that, given up together, explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from types import MappingProxyType
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
_NOTHING: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
_OF_A_READ: Final = frozenset({"fresh", "snapshot", "ordered"})
"""What explains one read each that lacks something; the others are broken by appends and forgets."""
_TRIED_MAX: Final = 8
"""So many findings of a promise are tried for one that no other promise explains."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of a session, and the promises that, given up together, explain them all."""

    found: list[Found] = field(default_factory=list)
    chosen: frozenset[str] = frozenset()

    @property
    def choices(self) -> frozenset[str]:
        """The promises each of which explains everything by itself."""
        needs = [f.also | {f.cause} for f in self.found]
        return frozenset.intersection(*needs)

    def names(self) -> dict[str, tuple[str, ...]]:
        """What the roots of each promise are called."""
        return {
            cause: tuple(dict.fromkeys(f.anomaly.name for f in self.found if f.cause == cause))
            for cause in _in_order(self.chosen)
        }

    def anomalies(self, elsewhere: Mapping[str, tuple[str, ...]] = _NOTHING) -> list[Anomaly]:
        """The findings of the diagnosis are roots, the others follow from them.

        `elsewhere` are the names of roots in other sessions, where this one has none.
        """
        names = {cause: own or elsewhere[cause] for cause, own in self.names().items()}
        every = tuple(dict.fromkeys(name for own in names.values() for name in own))
        roots = [f.anomaly for f in self.found if f.cause in names]
        echoes = [
            replace(f.anomaly, follows_from=_from(f, names) or every)
            for f in self.found
            if f.cause not in names
        ]
        return [*roots, *echoes]


def _in_order(causes: Collection[str]) -> list[str]:
    """A set has another order in each process; the same history gets the same words in all."""
    return [cause for cause in _PREFERRED if cause in causes]


def _from(echo: Found, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The names of the roots that explain it."""
    return tuple(name for cause, own in names.items() if cause in echo.also for name in own)


def diagnose(recheck: Recheck, session: Session, found: list[Found]) -> Diagnosis:
    """What explains the findings of one session, by itself."""
    if not found:
        return Diagnosis()
    return Diagnosis(found, _proven(recheck, found, _diagnosis(recheck, session, found)))


def settled(sessions: list[Diagnosis]) -> list[Anomaly]:
    """All anomalies of a history. One store made it, so one defect explains what it can.

    Where several promises explain a session equally well, the one counts that other sessions
    leave no choice about; otherwise the one that most of them prefer, or most reads speak for.
    """
    firm: Counter[str] = Counter()
    loose: Counter[str] = Counter()
    anywhere = frozenset().union(*(one.chosen for one in sessions))
    for one in sessions:
        (loose if (one.choices & anywhere) - one.chosen else firm).update(one.chosen)
    votes = sum((_votes(one.found) for one in sessions), Counter[str]())
    agreed = [
        _agreed(one, lambda cause: (firm[cause], loose[cause], votes[cause])) for one in sessions
    ]
    names: dict[str, tuple[str, ...]] = {}
    for one in agreed:
        names |= {cause: own for cause, own in one.names().items() if own and cause not in names}
    return [
        anomaly
        for one, was in zip(agreed, sessions, strict=True)
        for anomaly in (one if one.chosen <= names.keys() else was).anomalies(names)
    ]


def _agreed(one: Diagnosis, rank: Callable[[str], tuple[int, int, int]]) -> Diagnosis:
    if not one.choices - one.chosen:
        return one
    best = max(_in_order(one.choices), key=lambda c: (rank(c), c in one.chosen))
    return replace(one, chosen=frozenset({best})) if any(rank(best)[:2]) else one


def _diagnosis(recheck: Recheck, session: Session, found: list[Found]) -> frozenset[str]:
    """By search where the session is small, otherwise by what the rules say explains what."""
    needs = {frozenset({f.cause}) | f.also for f in found}
    cost = _costs(recheck, found)
    by_rules = _smallest(found, cost, lambda s: all(s & need for need in needs))
    if by_rules is None or not is_small(session) or len({f.cause for f in found}) == 1:
        return by_rules or frozenset(f.cause for f in found)
    operations = operations_of(session)
    alone = [f.also | {f.cause} for f in found if f.anomaly.name in _BEYOND_SEARCH]

    def explains(given_up: frozenset[str]) -> bool:
        return all(given_up & need for need in alone) and not recheck.impossible(
            operations, "", given_up=given_up, states_max=STATES_MAX
        )

    return _smallest(found, cost, explains, by_rules) or by_rules


def _smallest(
    found: list[Found],
    cost: Callable[[frozenset[str]], int],
    explains: Callable[[frozenset[str]], bool],
    favourite: frozenset[str] = frozenset(),
) -> frozenset[str] | None:
    """The smallest set of promises that explains everything; the better one of two."""
    candidates = _in_order({f.cause for f in found})
    votes = _votes(found)
    for size in range(1, len(candidates) + 1):
        sets = [frozenset(c) for c in combinations(candidates, size)]
        fitting = [s for s in sets if explains(s)]
        if fitting:
            return max(fitting, key=lambda s: (s == favourite, -cost(s), sum(votes[p] for p in s)))
    return None


def _costs(recheck: Recheck, found: list[Found]) -> Callable[[frozenset[str]], int]:
    """How many operations must have broken their promise, where these promises were."""

    def cost(given_up: frozenset[str]) -> int:
        broken: set[tuple[str, int]] = set()
        for f in found:
            causes = [f.cause, *_in_order(f.also)]
            promise = next((cause for cause in causes if cause in given_up), None)
            if promise in _OF_A_READ and f.cause != "ordered":
                broken |= {(promise, number) for number in f.reads}
            elif promise == "forgotten":
                broken.add((promise, recheck.forget_of(f.anomaly)))
            elif promise is not None:
                fault = recheck.fault_before(f.anomaly) if promise == "durable" else None
                by = recheck.append_of(f.anomaly) if fault is None else -1 - fault
                broken.add((promise, by))  # one fault takes away any number
        return len(broken)

    return cost


def _votes(found: list[Found]) -> Counter[str]:
    """How many reads speak for each promise.

    What came back speaks for a late read as much, unless a later read shows whether it stays; that
    it was missing before speaks for nothing more.
    """
    back = {f.anomaly.message for f in found if f.anomaly.name == "resurrected"}
    said: set[tuple[str, str, int | None]] = set()
    for f in found:
        name, message = f.anomaly.name, f.anomaly.message
        if f.lean or message not in back:
            said.add((f.lean or f.cause, name, f.read))
        elif name == "resurrected":
            said |= {(cause, name, f.read) for cause in {"fresh", f.cause} & (f.also | {f.cause})}
    return Counter(promise for promise, _, _ in said)


def _proven(recheck: Recheck, found: list[Found], chosen: frozenset[str]) -> frozenset[str]:
    """Those of several promises that are broken even where all the others are given up."""
    if len(chosen) == 1:
        return chosen
    proven = {
        cause
        for cause in chosen
        if any(
            recheck.confirms(f.anomaly, chosen - {cause})
            for f in islice((f for f in found if f.cause == cause), _TRIED_MAX)
        )
    }
    return frozenset(proven) or chosen
