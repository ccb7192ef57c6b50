"""Real exports, spoilt at random, loaded beside others: no effect outside, no error outside the tree."""

from __future__ import annotations

import itertools
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Conflict, Damaged, FormatTooNew, UsageError
from tests.contract.harness import AnyStore, Opener, say, texts
from tests.contract.spoiling import KINDS, PLACES_MAX, Mutation, below, names, source, spoilt
from tests.exports import NUMBER_MAX

EXAMPLES = 25
PLACE = st.integers(0, PLACES_MAX)
MUTATION = st.one_of(
    *(
        st.tuples(st.just(kind), PLACE, PLACE, st.sampled_from(values))
        for kind, values in KINDS.items()
    )
)


class Attack:
    """Spoilt exports, loaded one after the other beside what belongs to others."""

    def __init__(self, open_store: Any) -> None:
        self.lines = source(open_store(namespace="source"))
        self.canary: AnyStore = open_store(namespace="canary")
        self.guest: AnyStore = open_store(namespace="guest")
        self.canary.append("a", [say("c1"), say("c2")], key="k", ttl_s=3600)
        self.canary.append("gone", say("c3"))
        self.guest.append("own", [say("o1"), say("o2")], key="k")
        self.guest.remember("own", "a memory of its own")
        self.before = self._look()

    def _look(self) -> list[str]:
        return [*self.canary.export(), *self.guest.export(prefix="own")]

    def load(self, prefix: str, changes: list[Mutation]) -> None:
        """One file, all of whose sessions begin with `prefix` unless a change gives another name."""
        file = spoilt(below(prefix, self.lines), changes)
        try:
            loaded = self.guest.load(file)
            said = loaded.sessions + loaded.present + (1 if loaded.memories else 0)
        except (UsageError, Damaged, FormatTooNew, Conflict) as error:
            said = said_by(error)
        written = list(self.guest.export(prefix=prefix))
        there = len(names(written))
        told = names(file)
        elsewhere = sum(not name.lstrip(b"\xffms").startswith(prefix.encode()) for name in told)
        repeated = len(told) - len(set(told))
        assert said - elsewhere - repeated <= there <= said, file
        self._check_loaded(prefix, file)

    def _check_loaded(self, prefix: str, file: list[str]) -> None:
        """Whatever was let in is a session like any other."""
        for name in self.guest.sessions(prefix=prefix):
            history = self.guest.history(name)
            numbers = sorted([m.seq or 0 for m in history] + [d.seq for d in history.damaged])
            assert numbers == list(range(history.last - len(numbers) + 1, history.last + 1)), file
            if self.guest.stat(name).last < NUMBER_MAX:
                assert self.guest.append(name, say("more")).first == self.guest.stat(name).last
                assert texts(self.guest.history(name))[-1] == "more"

    def check(self) -> None:
        """Nobody else was touched."""
        assert self._look() == self.before

    def check_writable(self) -> None:
        """What is there goes on, and new sessions begin."""
        assert self.canary.append("a", say("c4")).first == 3
        assert self.canary.append("new", say("n")).first == 1


def said_by(error: Exception) -> int:
    """How many sessions are loaded, in the words of an error."""
    found = re.search(r"(\d+) whole session\(s\) before it", str(error))
    assert found, f"does not say what is loaded: {error}"
    return int(found[1])


def test_a_spoilt_export_touches_nothing_else_and_says_what_it_wrote(open_store: Opener):
    attack = Attack(open_store)
    numbers = itertools.count()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(MUTATION, min_size=1, max_size=3))
    def one(changes: list[Mutation]) -> None:
        attack.load(f"{next(numbers)}/", changes)
        attack.check()

    one()
    attack.check_writable()
