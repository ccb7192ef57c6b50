"""The judge beside an exhaustive search that knows only what a log is.

A seeded part here; the full figure, 100,000 histories, in tests/torture/test_judge_search.py.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from holdfast.verify.history import Header
from holdfast.verify.judge.decide import judge_session
from holdfast.verify.judge.explain import explain
from holdfast.verify.judge.recheck import confirmed
from holdfast.verify.judge.screen import unread_if_sound
from tests.verify.judge.oracle import legal
from tests.verify.judge.random_histories import expiring_ops, random_ops, to_history
from tests.verify.judge.writing import suspected

KINDS = pytest.mark.parametrize(
    ("forgets", "limits"),
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["full reads", "forgets", "limits", "forgets and limits"],
)


def compare(count: int, *, forgets: bool, limits: bool, seed: int) -> Counter[str]:
    """How often the judge and the search say what. The screen and the rules must agree too."""
    rng = random.Random(seed)
    tally: Counter[str] = Counter()
    for _ in range(count):
        ops = random_ops(rng, forgets=forgets, limits=limits)
        history = to_history(ops)
        session = history.sessions["s"]
        sound = legal(ops)
        found = judge_session(history, session).anomalies
        tally["sound" if sound else "broken"] += 1
        tally["false alarm"] += sound and bool(found)
        tally["missed"] += not sound and not found
        screened = unread_if_sound(session) is not None
        tally["screened"] += screened
        tally["screen disagrees"] += screened and bool(explain(history, session).anomalies)
    return tally


@KINDS
def test_small_histories_are_judged_as_an_exhaustive_search_judges_them(
    forgets: bool, limits: bool
) -> None:
    tally = compare(1500, forgets=forgets, limits=limits, seed=20)

    assert tally["false alarm"] == 0
    assert tally["missed"] == 0
    assert tally["screen disagrees"] == 0
    # A comparison proves something only if both kinds, and the screen, were often seen.
    assert min(tally["sound"], tally["broken"], tally["screened"]) > 200


@KINDS
def test_longer_sound_histories_raise_no_alarm(forgets: bool, limits: bool) -> None:
    """Too long for the search, but made by a sound store, so sound by construction."""
    rng = random.Random(3)
    for _ in range(40):
        ops = random_ops(rng, forgets=forgets, limits=limits, size=(20, 60), meddled=False)
        history = to_history(ops)

        assert judge_session(history, history.sessions["s"]).anomalies == []
        assert explain(history, history.sessions["s"]).anomalies == []


@KINDS
def test_the_rules_alone_suspect_nothing_sound_and_miss_next_to_nothing(
    forgets: bool, limits: bool
) -> None:
    """Long sessions have only the rules: no search makes up for what they miss."""
    rng = random.Random(30)
    tally: Counter[str] = Counter()
    for _ in range(1500):
        ops = random_ops(rng, forgets=forgets, limits=limits)
        history = to_history(ops)
        sound = legal(ops)
        found = suspected(history)
        proven = found.proven(partial(confirmed, history))
        tally["broken"] += not sound
        tally["false alarm"] += sound and len(found) > 0
        tally["missed"] += not sound and not proven

    assert tally["false alarm"] == 0
    assert tally["missed"] <= (tally["broken"] // 400 if forgets or limits else 0)


def test_sessions_that_expire_on_a_sound_store_raise_no_alarm() -> None:
    rng = random.Random(6)
    gone = 0
    for _ in range(1500):
        ttl_ns, error_ns = rng.randint(3, 15), rng.randint(0, 2)
        ops = expiring_ops(rng, ttl_ns=ttl_ns, error_ns=error_ns)
        header = Header("random", ttl_s=ttl_ns / 1e9, clock_error_s=error_ns / 1e9)
        history = to_history(ops, header)

        assert judge_session(history, history.sessions["s"]).anomalies == []
        assert list(suspected(history)) == []
        gone += bool(judge_session(to_history(ops), history.sessions["s"]).anomalies)
    # Without the time to live many of them would be alarms, so it was put to the test.
    assert gone > 200


@KINDS
def test_longer_broken_histories_are_explained_with_proof(forgets: bool, limits: bool) -> None:
    """`explain` raises where it can prove none of what it found, so it must not raise here."""
    rng = random.Random(4)
    found = 0
    for _ in range(60):
        ops = random_ops(rng, forgets=forgets, limits=limits, size=(15, 40))
        history = to_history(ops)
        anomalies = judge_session(history, history.sessions["s"]).anomalies
        found += bool(anomalies)
        assert all(anomaly.confirmed for anomaly in anomalies)
    assert found > 15
