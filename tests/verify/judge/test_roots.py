"""One defect, one accusation: roots and echoes, and not one sentence that the history denies.

Stores with one defect each are simulated as histories (`defects.py`, `simulated.py`); every clause of
every sentence is looked up (`sentences.py`). A seeded share here, the full figure in tests/torture.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.verify.history import Event, Header, History
from holdfast.verify.judge import Verdict, judge
from holdfast.verify.judge.findings import Findings
from holdfast.verify.judge.judge_command import render, to_json
from tests.verify.judge.defects import DEFECTS, OTHER, Defect, broken
from tests.verify.judge.oracle import NEVER_NS, Op
from tests.verify.judge.planned import KINDS, planned
from tests.verify.judge.random_histories import random_ops, to_history
from tests.verify.judge.sentences import untrue
from tests.verify.judge.simulated import BROKEN, Store, simulated
from tests.verify.judge.writing import append, forget, lost_reply, named, read, roots, suspected


def with_defect(defect: Defect, seed: str) -> History:
    made = broken(random.Random(f"{seed}/{defect.name}"), defect)
    return to_history([*made.ops, *(OTHER if defect.name == "leak" else [])], faults=made.faults)


def meddled(seed: str) -> History:
    """A small history of a sound store, of which one or two reads were then changed."""
    rng = random.Random(seed)
    forgets, limits = rng.random() < 0.5, rng.random() < 0.5
    return to_history(random_ops(rng, forgets=forgets, limits=limits, size=(3, 12)))


def defective(seeds: Iterable[str]) -> Iterator[tuple[str, History]]:
    """Histories of stores in which one instant is changed, each with the promise it breaks."""
    return ((defect.promise, with_defect(defect, seed)) for seed in seeds for defect in DEFECTS)


def mistaken(seeds: Iterable[str]) -> Iterator[tuple[str, History]]:
    """The same, of stores that make a mistake which people make."""
    return ((kind.promise, simulated(kind, seed)) for seed in seeds for kind in BROKEN)


def scheduled(seeds: Iterable[str]) -> Iterator[tuple[str, History]]:
    """The same, of stores whose writes are visible late and whose forgets take time."""
    broken = [kind for kind in KINDS.values() if kind.promise not in ("", "?")]
    return ((kind.promise, planned(kind, seed)) for seed in seeds for kind in broken)


SIMULATORS = {
    "changed instants": defective, "mistakes in code": mistaken, "planned times": scheduled
}  # fmt: skip


def accusations(histories: Iterable[tuple[str, History]]) -> tuple[Counter[str], list[str]]:
    """How often one promise was accused, and the right one; and what was said and is not so."""
    tally: Counter[str] = Counter()
    false: list[str] = []
    for promise, history in histories:
        result = judge(history)
        accused = {anomaly.promise for anomaly in roots(result)}
        tally["broken"] += bool(accused)
        tally["one"] += len(accused) == 1
        tally["right"] += accused == {promise}
        false += [clause for a in result.anomalies for clause in untrue(history, a)]
    return tally, false


@pytest.mark.parametrize(
    ("how", "each", "least"),
    [("changed instants", 15, 60), ("mistakes in code", 6, 24), ("planned times", 90, 15)],
)
def test_a_store_with_one_defect_is_accused_of_that_and_of_nothing_else(
    how: str, each: int, least: int
) -> None:
    tally, false = accusations(SIMULATORS[how](f"share-{number}" for number in range(each)))

    assert false == []
    assert tally["broken"] > least
    assert tally["one"] >= 0.98 * tally["broken"]
    assert tally["right"] >= 0.95 * tally["broken"]


@pytest.mark.parametrize(
    ("kind", "seed", "size"),
    [
        ("KeyForEachMessage", 32, 8), ("WrongSession", 16, 8), ("Unsorted", 13, 12),
        ("ForgetsNothing", 17, 12), ("WrittenBehind", 2, 16), ("LimitBeforeFilter", 7, 24),
        ("SkipsTheNewest", 23, 24), ("SortedByClock", 59, 14), ("OldestN", 2, 14),
        ("Replica", 248, 24), ("IgnoresKeys", 3287, 16), ("OneRowForAll", 7, 8),
    ],
)  # fmt: skip
def test_a_short_session_that_one_clause_of_a_rule_decides_is_accused_of_its_defect(
    kind: str, seed: int, size: int
) -> None:
    """Each was found by taking one clause out of a rule: then another promise is accused."""
    store = next(store for store in BROKEN if store.__name__ == kind)

    result = judge(simulated(store, f"pin-{seed}", size))

    assert {anomaly.promise for anomaly in roots(result)} == {store.promise}


def test_a_simulated_store_without_a_defect_raises_no_alarm() -> None:
    for number in range(30):
        assert judge(simulated(Store, f"sound-{number}")).anomalies == ()


@pytest.mark.parametrize("name", KINDS)
def test_whatever_a_history_holds_the_judge_can_prove_what_it_says(name: str) -> None:
    check_planned(name, (f"share-{number}" for number in range(40)))


def test_a_session_of_which_something_came_back_is_not_said_to_be_gone() -> None:
    check_planned("all at once", ["torture-3-50"])


def check_planned(name: str, seeds: Iterable[str]) -> None:
    """A sound store raises no alarm; what is said of another is proven, and every clause is so."""
    for seed in seeds:
        history = planned(KINDS[name], seed)
        anomalies = judge(history).anomalies
        assert KINDS[name].promise or anomalies == (), seed
        assert [clause for a in anomalies for clause in untrue(history, a)] == [], seed


def test_every_clause_of_every_sentence_is_so() -> None:
    said = 0
    for number in range(1500):
        history = meddled(f"clause-{number}")
        for anomaly in judge(history).anomalies:
            said += 1
            assert untrue(history, anomaly) == []
    assert said > 400


TORN = {
    "another message inside a batch, and a window that ends there": [
        append(1, 100, 500, "a0", "a1"),
        append(2, 150, 250, "b0", process=2),
        read(3, 520, 530, "a1", limit=1),
        read(4, 600, 650, "a0", "b0", "a1"),
    ],
    "half a batch before a forget, the other half after it": [
        append(1, 100, 200, "x"),
        append(2, 300, 900, "c0", "c1", process=2),
        read(3, 400, 450, "x", "c0"),
        forget(4, 500, 600),
        read(5, 1000, 1100, "c1"),
    ],
}


@pytest.mark.parametrize("why", TORN)
def test_a_torn_batch_breaks_atomic_and_nothing_else(why: str) -> None:
    result = judge(to_history(TORN[why]))

    assert {anomaly.name for anomaly in roots(result)} == {"torn"}
    assert [p for p, v in result.promises.items() if v is Verdict.BROKEN] == ["atomic"]
    assert result.weakened["fresh"] == "judged message by message, because batches are torn"
    assert result.counts["lost"] == 0


def test_a_whole_turn_that_is_absent_is_lost_and_not_torn() -> None:
    ops = [append(n, 2 * n, 2 * n + 1, f"m{n}.0", f"m{n}.1") for n in range(1, 4)]

    result = judge(to_history([*ops, read(9, 20, 21, "m1.0", "m1.1", "m3.0", "m3.1")]))

    assert named(result.anomalies) == {("lost", "m2.0")}


def test_a_forget_that_was_applied_in_part_loses_nothing() -> None:
    ops = [append(n, 2 * n, 2 * n + 1, f"m{n}") for n in range(20)]
    shown = [f"m{n}" for n in range(20)]

    result = judge(
        to_history(
            [*ops, read(30, 50, 51, *shown), forget(31, 60, 61), read(32, 70, 71, *shown[7:])]
        )
    )

    assert {anomaly.promise for anomaly in roots(result)} == {"forgotten"}
    assert result.counts["lost"] == 0


def test_a_late_read_before_a_forget_has_lost_nothing() -> None:
    ops = [append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a"), forget(4, 7, 8)]

    result = judge(to_history([*ops, read(5, 9, 10)]))

    assert named(result.anomalies) == {("stale", "b")}
    assert result.counts["lost"] == 0


def test_an_echo_names_its_root_and_is_neither_counted_nor_a_headline() -> None:
    ops = [append(n, 2 * n, 2 * n + 1, f"m{n}") for n in range(1, 5)]
    oldest = read(8, 20, 21, "m1", "m2", limit=2)
    history = to_history([*ops, oldest, read(9, 30, 31, "m1", "m2", "m3", "m4")])

    result = judge(history)
    value = to_json(result)

    echoes = [a for a in value["anomalies"] if a["follows_from"] is not None]
    assert {a["name"] for a in echoes} == {"stale"}
    assert all(a["follows_from"] == ["window"] for a in echoes)
    assert value["promises"]["fresh"] != "broken"
    assert value["promises"]["snapshot"] == "broken"
    assert value["because"] == roots(result)[0].because
    assert value["weakened"]["fresh"] == "judged apart from what follows from window"
    assert "2 stale follow from window: not counted" in render(result)


def test_an_ack_before_the_write_is_one_defect() -> None:
    """What was acknowledged from a queue comes late, after what began later, or never."""
    ops = [
        append(1, 1, 2, "a"), append(2, 3, 4, "b", process=2), read(3, 5, 6, "b"),
        append(4, 7, 8, "c"), read(5, 20, 21, "b", "a"),
    ]  # fmt: skip

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}


LATE = {
    "a read of everything lacks what a still later one shows": [
        append(1, 1, 2, "a"), append(2, 3, 4, "b", process=2), read(3, 5, 6, "b"),
        append(4, 7, 8, "c"), read(5, 20, 21, "b", "a", "c"),
    ],
    "it comes after a forget that began after it was acknowledged": [
        append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6), forget(4, 7, 8, process=2),
        append(5, 9, 10, "c"), read(6, 11, 12, "a", "b", "c"),
    ],
    "it stands in a window in which newer ones belong": [
        append(1, 1, 2, "a"), append(2, 3, 4, "b", process=2), read(3, 5, 6, "b"),
        append(4, 7, 8, "c", process=2), read(5, 9, 10, "a", limit=1), read(6, 11, 12, "b", "c", "a"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("more", [0, 20], ids=["by search", "by the rules"])
@pytest.mark.parametrize("why", LATE)
def test_an_ack_before_the_write_that_loses_nothing_is_late_and_nothing_else(
    why: str, more: int
) -> None:
    """Nobody lost it, so nothing says that it would not have survived; but a read came too early."""
    last = LATE[why][-1]
    again = [read(50 + n, 100 + 2 * n, 101 + 2 * n, *last.messages) for n in range(more)]
    ops = [*LATE[why], *again]

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"fresh"}


def test_a_read_that_began_before_the_ack_is_not_said_to_be_stale_by_a_time() -> None:
    ops = [
        append(1, 1, 4, "a"), read(2, 2, 9, "b", process=3), append(3, 5, 6, "b", process=2),
        read(4, 20, 21, "b", "a"),
    ]  # fmt: skip
    history = to_history(ops)

    result = judge(history)

    assert {anomaly.promise for anomaly in roots(result)} == {"fresh"}
    assert not [a for a in result.anomalies if "ms stale" in a.because]
    assert [clause for a in result.anomalies for clause in untrue(history, a)] == []


OTHERS_ANSWER = {
    "a read is answered with another session": read(5, 9, 10, "b", session="s"),
    "a read is answered with another session, which is empty": read(5, 3, 4, session="s"),
}


@pytest.mark.parametrize("why", OTHERS_ANSWER)
def test_an_answer_that_is_another_sessions_says_nothing_of_the_one_that_asked(why: str) -> None:
    ops = [
        append(1, 1, 2, "a"), OTHERS_ANSWER[why], append(6, 5, 6, "b", session="t"),
        read(7, 11, 12, "b"), read(8, 13, 14, "b", session="t"), read(9, 15, 16, "b"),
    ]  # fmt: skip

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"isolated"}
    assert result.counts["lost"] == 0


def test_a_late_read_of_everything_tells_that_late_windows_of_another_session_are_late_too() -> (
    None
):
    ops = [append(1, 1, 2, "a"), read(2, 3, 4), read(3, 5, 6, "a")]
    ops += [append(4 + n, 10 + 9 * n, 11 + 9 * n, f"b{n}", session="t") for n in range(9)]
    ops += [
        read(14 + n, 12 + 9 * n, 13 + 9 * n, f"b{n - 1}", session="t", limit=1) for n in range(1, 9)
    ]
    ops += [
        read(30 + n, 100 + 2 * n, 101 + 2 * n, *(f"b{m}" for m in range(9)), session="t")
        for n in range(9)
    ]

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"fresh"}


def test_a_window_that_cuts_a_batch_which_was_over_before_is_not_a_torn_batch() -> None:
    """Nobody acknowledged it, but a fault ended it: later reads show all of it."""
    whole = ("a0", "a1", "a2")
    ops = [lost_reply(1, 1, *whole, closed=2), read(2, 5, 6, "a0", "a1", limit=9)]

    result = judge(to_history([*ops, read(3, 7, 8, *whole), read(4, 9, 10, *whole)]))

    assert {anomaly.promise for anomaly in roots(result)} == {"snapshot"}


def test_what_many_reads_lack_and_one_shows_is_lost_if_it_is_gone_after_that() -> None:
    ops = [append(1, 1, 2, "a"), append(2, 3, 4, "b")]
    ops += [read(10 + n, 10 + 2 * n, 11 + 2 * n, "a") for n in range(40)]
    ops += [read(60, 100, 101, "a", "b"), read(61, 102, 103, "a"), read(62, 104, 105, "a")]

    result = judge(to_history(ops))

    assert result.promises["durable"] is Verdict.BROKEN
    assert result.counts["lost"] == 1


def test_two_defects_are_two_roots() -> None:
    ops = [
        append(1, 1, 2, "a"), append(2, 3, 4, "b"),
        read(3, 5, 6, "a", "a", "b"), read(4, 7, 8, "a"),
    ]  # fmt: skip

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"exactly-once", "durable"}


def test_a_forget_that_nobody_acknowledged_is_not_said_to_have_ended() -> None:
    history = to_history(
        [
            append(1, 10, 20, "a"),
            read(2, 30, 40),
            forget(3, 50, NEVER_NS, status="info"),
            read(4, 60, 70),
        ]
    )

    sentences = [anomaly.because for anomaly in judge(history).anomalies]

    assert sentences
    assert not [sentence for sentence in sentences if "forget 3 ended" in sentence]


def test_what_came_back_after_a_forget_is_not_said_to_be_shown_by_no_later_read() -> None:
    history = to_history(
        [
            append(1, 10, 20, "a"),
            read(2, 30, 40),
            read(3, 41, 45),
            forget(4, 50, 60),
            read(5, 70, 80, "a"),
            read(6, 90, 100),
        ]
    )

    anomalies = judge(history).anomalies

    assert anomalies
    assert not [a for a in anomalies if "no read that ended after" in a.because]
    assert [clause for a in anomalies for clause in untrue(history, a)] == []


def test_what_was_missing_before_and_after_a_forget_that_did_not_happen_is_lost() -> None:
    """The read after a forget of unknown outcome shows what is older, so it tells that it is gone."""
    ops = [
        append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a"),
        forget(4, 7, NEVER_NS, status="info"), read(5, 9, 10, "a"),
        forget(6, 11, 12), read(7, 13, 14),
    ]  # fmt: skip

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}


def test_a_forget_of_unknown_outcome_is_never_said_to_have_ended() -> None:
    ops = [
        append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a"),
        forget(4, 7, NEVER_NS, status="info"),
    ]  # fmt: skip

    history = to_history(ops)
    [stale] = roots(judge(history))

    assert (
        "forget 4 was not acknowledged and may have taken effect after read 3 began"
        in stale.because
    )
    assert untrue(history, stale) == []


@pytest.mark.parametrize("more", [0, 40], ids=["by search", "by the rules"])
def test_what_is_gone_for_good_does_not_follow_from_a_wrong_window(more: int) -> None:
    """A read that mixes instants can miss what comes later; no instant lacks it for ever."""
    ops = [append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c")]
    ops += [read(4, 7, 8, "a", "b", "c"), read(5, 9, 10, "b", limit=1), read(6, 11, 12, "b", "c")]
    ops += [read(7 + n, 13 + 2 * n, 14 + 2 * n, "b", "c") for n in range(more)]

    accused = {anomaly.promise for anomaly in roots(judge(to_history(ops)))}

    # Nothing that was lost comes back: that one read lacks "c" is another matter.
    assert "durable" in accused
    assert len(accused) == 2


SEEN_BEFORE = {
    "one read lacks what was seen before it and after it, and something else is gone": (
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"),
            read(4, 7, 8, "a", "b", "c"), read(5, 9, 10, "a", "b"), read(6, 11, 12, "b", "c"),
        ],
        {"durable", "fresh"},
    ),
    "what was seen before another began stands behind it, and one read is late": (
        [
            append(1, 1, 2, "a"), read(2, 3, 4, "a"), append(3, 5, 6, "b"), read(4, 7, 8, "b", "a"),
            append(5, 9, 10, "c"), read(6, 11, 12, "b", "a"), read(7, 13, 14, "b", "a", "c"),
        ],
        {"ordered", "fresh"},
    ),
    "what was seen before a forget came back, and one read is late": (
        [
            append(1, 1, 2, "a"), read(2, 3, 4, "a"), forget(3, 5, 6), append(4, 7, 8, "b"),
            read(5, 9, 10, "a", "b"), append(6, 11, 12, "c"), read(7, 13, 14, "a", "b"),
            read(8, 15, 16, "a", "b", "c"),
        ],
        {"forgotten", "fresh"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("more", [0, 20], ids=["by search", "by the rules"])
@pytest.mark.parametrize("why", SEEN_BEFORE)
def test_what_was_seen_before_was_not_written_late(why: str, more: int) -> None:
    ops, broken_promises = SEEN_BEFORE[why]
    again = [read(50 + n, 100 + 2 * n, 101 + 2 * n, *ops[-1].messages) for n in range(more)]

    result = judge(to_history([*ops, *again]))

    assert {anomaly.promise for anomaly in roots(result)} == broken_promises


def test_messages_of_a_batch_in_another_order_are_each_said_to_stand_where_they_stand() -> None:
    """A store that sorts by whole seconds mixes a batch up: where one is, its mates need not be."""
    ops = [
        append(1, 1, 2, "a0"), append(2, 3, 4, "b0", "b1", "b2"),
        read(3, 5, 6, "b1", "a0", "b2", "b0"), read(4, 7, 8, "b1", "b0", "a0", "b2"),
    ]  # fmt: skip
    history = to_history(ops)

    result = judge(history)

    assert {anomaly.promise for anomaly in roots(result)} == {"ordered"}
    assert [clause for a in result.anomalies for clause in untrue(history, a)] == []


@pytest.mark.parametrize("reads", [1, 20], ids=["by search", "by the rules"])
def test_a_store_that_keeps_the_last_few_has_lost_the_others_and_torn_nothing(reads: int) -> None:
    ops = [append(n, 2 * n, 2 * n + 1, f"m{n}.0", f"m{n}.1") for n in range(1, 5)]
    last = [read(9 + n, 20 + 2 * n, 21 + 2 * n, "m3.1", "m4.0", "m4.1") for n in range(reads)]

    result = judge(to_history([*ops, *last]))

    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}


def test_a_window_that_skips_the_newest_is_wrong_and_neither_late_nor_torn() -> None:
    ops = [append(n, 10 * n, 10 * n + 1, f"m{n}.0", f"m{n}.1") for n in range(1, 5)]
    shown = ["m1.0", "m1.1", "m2.0", "m2.1", "m3.0", "m3.1", "m4.0", "m4.1"]
    windows = [
        read(20 + n, 10 * n + 3, 10 * n + 4, *shown[max(0, 2 * n - 4) : 2 * n - 1], limit=3)
        for n in range(1, 5)
    ]

    result = judge(to_history([*ops, *windows, read(30, 90, 91, *shown)]))

    assert {anomaly.promise for anomaly in roots(result)} == {"snapshot"}


def test_what_a_retry_brings_back_after_a_forget_follows_from_the_retry_that_counted_twice() -> (
    None
):
    again = append(5, 50, 51, "b", key="k2")
    ops = [
        append(1, 1, 2, "a", key="k1"), append(2, 3, 4, "a", key="k1"), read(3, 5, 6, "a", "a"),
        append(4, 7, 8, "b", key="k2"), read(8, 10, 11, "a", "a", "b"), forget(6, 20, 21),
        again, read(7, 60, 61, "b"),
    ]  # fmt: skip

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"exactly-once"}


def test_one_read_of_before_a_forget_is_late_where_the_next_lacks_it_again() -> None:
    """What came back would have stayed: nobody forgot it between the two reads."""
    old = [f"a{n}" for n in range(20)]
    ops = [
        append(1, 1, 2, *old), read(2, 3, 4, *old), forget(3, 10, 13), append(4, 11, 12, "b"),
        read(5, 20, 21, *old), read(6, 30, 31, "b"),
    ]  # fmt: skip

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"fresh"}


ONE_DEFECT: dict[str, tuple[str, list[Op], Header]] = {
    "nothing but a late read, which shows what a forget took and the next read lacks": (
        "fresh",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a", "b"), forget(4, 7, 8),
            read(5, 9, 10, "a", "b"), read(6, 11, 12),
        ],
        Header("hand"),
    ),
    "a read in pages, and a forget between two of them": (
        "forgotten",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"),
            read(4, 7, 8, "a", "b", "c"), forget(5, 20, 30), read(6, 15, 35, "a"), read(7, 40, 41),
        ],
        Header("hand"),
    ),
    "two reads lack what one forget is just taking": (
        "forgotten",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"),
            read(4, 7, 8, "a", "b", "c"), forget(5, 20, 30), read(6, 15, 25, "a"),
            read(7, 16, 24, "a"), read(8, 40, 41),
        ],
        Header("hand"),
    ),
    "what came back stays": (
        "forgotten",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a", "b"), forget(4, 7, 8),
            read(5, 9, 10, "a", "b"), read(6, 11, 12, "a", "b"),
        ],
        Header("hand"),
    ),
    "a read shows what a forget took beside what is newer, and the next lacks it": (
        "snapshot",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a", "b"), forget(4, 7, 8),
            append(5, 9, 10, "c"), read(6, 11, 12, "a", "c"), read(7, 13, 14, "c"),
            *(read(20 + n, 20 + 2 * n, 21 + 2 * n, "c") for n in range(8)),
        ],
        Header("hand"),
    ),
    "a late retry brings back what a forget took, because its key went with the session": (
        "forgotten",
        [
            append(1, 1, 2, "a", key="k"), append(2, 3, 4, "b"), read(3, 5, 6, "a", "b"),
            forget(4, 7, 8), append(5, 9, 10, "a", key="k"), read(6, 11, 12, "a"),
        ],
        Header("hand"),
    ),
    "what came back was forgotten once more before a read lacked it": (
        "forgotten",
        [
            append(1, 1, 2, "a"), read(2, 3, 4, "a"), forget(3, 5, 6), read(4, 7, 8, "a"),
            forget(5, 9, 10), read(6, 11, 12),
        ],
        Header("hand"),
    ),
    "a window that is too short for it does not say that what came back is gone again": (
        "forgotten",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a", "b"), forget(4, 7, 8),
            read(5, 9, 10, "a", "b"), read(6, 11, 12, "b", limit=1),
        ],
        Header("hand"),
    ),
    "what a forget took is rightly missing, and then comes back": (
        "forgotten",
        [
            append(1, 1, 2, "a"), read(2, 3, 4, "a"), forget(3, 5, 6), read(4, 7, 8),
            read(5, 9, 10, limit=3), read(6, 11, 12, "a"),
        ],
        Header("hand"),
    ),
    "of three late reads one is followed by a read that shows that it was late": (
        "fresh",
        [
            append(1, 1, 2, "a"), forget(2, 3, 4), read(3, 5, 6, "a"), append(4, 7, 8, "b"),
            forget(5, 9, 10), read(6, 11, 12, "b"), append(7, 13, 14, "c"), forget(8, 15, 16),
            read(9, 17, 18, "c"), read(10, 19, 20),
        ],
        Header("hand"),
    ),
    "a window does not show whether the forget took what stood before the one that was retried": (
        "forgotten",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b", key="k"), forget(3, 5, 6),
            append(4, 7, 8, "b", key="k"), read(5, 9, 10, "b", limit=1),
        ],
        Header("hand"),
    ),
    "an empty answer to a read with a limit is no other window": (
        "fresh",
        [append(1, 1, 2, "a"), read(2, 3, 4, limit=5), read(3, 5, 6, "a"), read(4, 7, 8, "a")],
        Header("hand"),
    ),
    "two reads before a forget lack it: it is lost, and not late twice": (
        "durable",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a"),
            read(4, 7, 8, "a", limit=1), forget(5, 9, 10), read(6, 11, 12),
        ],
        Header("hand"),
    ),
    "what is missing while a forget is under way, and is not the oldest": (
        "durable",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"),
            read(4, 7, 20, "a", "c"), forget(5, 9, 30, process=2), read(6, 31, 32),
        ],
        Header("hand"),
    ),
    "a forget without an answer, and one read lacks what others show before and after it": (
        "snapshot",
        [
            forget(1, 1, NEVER_NS, status="info"), append(2, 3, 4, "a"), append(3, 5, 6, "b"),
            append(4, 7, 8, "c"), read(5, 9, 10, "a", "b", "c"), read(6, 11, 12, "b", "c"),
            read(7, 13, 14, "a", "b", "c"),
        ],
        Header("hand"),
    ),
    "the same, and the forget began after all of it was there": (
        "snapshot",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"),
            forget(4, 7, NEVER_NS, status="info"), read(5, 9, 10, "b", "c"),
            read(6, 11, 12, "a", "b", "c"),
        ],
        Header("hand"),
    ),
    "a read lacks one of many, and so does the last, after which nobody looks again": (
        "snapshot",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"), append(4, 7, 8, "d"),
            read(5, 9, 10, "a", "c", "d"),
            *(read(20 + n, 20 + 2 * n, 21 + 2 * n, "a", "b", "c", "d") for n in range(9)),
            read(40, 50, 51, "a", "b", "d"),
        ],
        Header("hand"),
    ),
    "only a read beside it shows what is missing between others": (
        "durable",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"),
            read(4, 7, 20, "a", "b", "c"), read(5, 10, 30, "a", "c", process=2),
        ],
        Header("hand"),
    ),
    "what was sent twice is shown twice, or was forgotten in between": (
        "exactly-once",
        [
            append(1, 1, 2, "x", key="q"), append(2, 3, 4, "x", key="q"), read(3, 5, 6, "x", "x"),
            append(4, 10, 11, "a", key="k"), forget(5, 20, 21), read(6, 22, 23),
            append(7, 24, 25, "a", key="k"),
            *(read(30 + n, 30 + 2 * n, 31 + 2 * n, "a") for n in range(8)),
        ],
        Header("hand"),
    ),
    "what was sent twice is shown twice, or is the newest once more": (
        "exactly-once",
        [
            append(1, 1, 2, "x", key="q"), append(2, 3, 4, "x", key="q"), read(3, 5, 6, "x", "x"),
            append(4, 10, 11, "a", key="k"), append(5, 12, 13, "b"), append(6, 14, 15, "a", key="k"),
            *(read(30 + n, 30 + 2 * n, 31 + 2 * n, "a", limit=1) for n in range(8)),
        ],
        Header("hand"),
    ),
    "a store that keeps the last few cut off one too many while a forget is under way": (
        "durable",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 20, "b"),
            forget(4, 6, 30, process=2), read(5, 31, 32),
        ],
        Header("hand", kept_last=3),
    ),
    "all that is old is gone at once, long before its time": (
        "expiring",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"), read(4, 7, 8, "c"),
            read(5, 9, 10, "c"),
        ],
        Header("hand", ttl_s=1000.0),
    ),
    "nothing is there, long before its time, and then a forget": (
        "expiring",
        [append(1, 1, 2, "a"), read(2, 3, 4), forget(3, 5, 6), read(4, 7, 8)],
        Header("hand", ttl_s=1000.0),
    ),
    "three reads lack one message, and none shows it again": (
        "durable",
        [
            append(1, 1, 2, "a"), read(2, 3, 4, "a"), append(3, 5, 6, "b"), read(4, 7, 8, "a"),
            read(5, 9, 10, "a"), read(6, 11, 12, "a"),
        ],
        Header("hand"),
    ),
    "a limit that skips the newest cuts a batch while it is written": (
        "snapshot",
        [
            append(1, 1, 2, "a"), read(2, 3, 4, "a"), read(3, 5, 6, "a"), read(4, 7, 8, "a"),
            append(5, 9, 12, "b", "c"), read(6, 10, 11, "a", "b", limit=2), read(7, 13, 14, "a", "b", "c"),
        ],
        Header("hand"),
    ),
    "a message twice makes what a limit allows too long": (
        "exactly-once",
        [append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "a", "b", "b", limit=2)],
        Header("hand"),
    ),
    "an old copy is written over it, and then one that has it": (
        "durable",
        [
            append(1, 1, 2, "a"), append(2, 3, 5, "m"), append(3, 4, 9, "w", process=2),
            read(4, 6, 8, "a", "m"), append(5, 7, 14, "x", process=3), read(6, 12, 13, "a", "w"),
            append(7, 15, 16, "y"),
            *(read(20 + n, 20 + 2 * n, 21 + 2 * n, "a", "m", "x", "y") for n in range(9)),
        ],
        Header("hand"),
    ),
    "a store that keeps the last few cut off one too many, and then a forget": (
        "durable",
        [
            append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(3, 5, 6, "b"),
            forget(4, 7, 8), read(5, 9, 10),
        ],
        Header("hand", kept_last=3),
    ),
}  # fmt: skip


def undone(turn: int, *, stays: bool) -> list[Op]:
    """A message, a forget, and two reads that show it again; or only the first of them does."""
    n, at, message = 10 * turn, 100 * turn, f"m{turn}"
    older = [f"m{before}" for before in range(turn)]
    return [
        append(n, at, at + 1, message), read(n + 1, at + 2, at + 3, *older, message),
        forget(n + 2, at + 4, at + 5), read(n + 3, at + 6, at + 7, *older, message),
        read(n + 4, at + 8, at + 9, *older, *([message] if stays else [])),
    ]  # fmt: skip


def test_forgets_that_are_undone_are_no_late_reads_though_one_of_them_looks_so() -> None:
    ops = [op for turn in range(4) for op in undone(turn, stays=turn < 3)]

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"forgotten"}


@pytest.mark.parametrize("why", ONE_DEFECT)
def test_of_two_that_explain_a_session_the_one_with_fewer_and_nearer_operations_is_accused(
    why: str,
) -> None:
    promise, ops, header = ONE_DEFECT[why]
    history = to_history(ops, header)

    result = judge(history)

    assert {anomaly.promise for anomaly in roots(result)} == {promise}
    assert [clause for a in result.anomalies for clause in untrue(history, a)] == []


@pytest.mark.parametrize("forgets", [(), (forget(7, 13, 14),)], ids=["read last", "then forgotten"])
def test_what_a_fault_may_have_taken_is_lost_and_no_late_read(forgets: tuple[Op, ...]) -> None:
    ops = [
        append(1, 1, 2, "a"), read(2, 3, 4, "a"), append(3, 5, 6, "b"), append(4, 7, 8, "c"),
        append(5, 9, 9, "d"), read(6, 11, 12, "a"), *forgets,
    ]  # fmt: skip
    crash = (Event("fault", 10, name="sigkill", landed=True),)

    result = judge(to_history(ops, faults=crash))

    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}


def test_what_is_gone_after_a_crash_is_lost_though_more_reads_were_late_before() -> None:
    """The acknowledgement came before the write, each time; at the crash it was too early."""
    ops = [
        append(1, 1, 2, "a"), read(2, 3, 4), read(3, 5, 6), read(4, 7, 8, "a"),
        append(5, 9, 10, "b"), read(6, 11, 12, "a"), read(7, 13, 14, "a"), read(8, 15, 16, "a", "b"),
        append(9, 17, 18, "c"), append(10, 19, 20, "d"), append(11, 21, 22, "e"), read(12, 24, 25, "a", "b"),
    ]  # fmt: skip
    crash = (Event("fault", 23, name="sigkill", landed=True),)

    result = judge(to_history(ops, faults=crash))

    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}


def test_what_a_newcomer_is_not_shown_after_a_fault_is_lost_whatever_was_late_elsewhere() -> None:
    """A store that acknowledges first has late reads, too; a process that begins later has no old state."""
    ops = [
        append(1, 1, 2, "x", process=1, session="late"), read(2, 3, 4, process=1, session="late"),
        forget(3, 5, 6, process=1, session="late"),
        *(append(10 + n, 10 + 2 * n, 11 + 2 * n, f"c{n}", process=1) for n in range(9)),
        read(40, 71, 72, "c0", "c1", process=2),
    ]  # fmt: skip
    crash = (Event("fault", 70, name="sigkill", landed=True),)

    result = judge(to_history(ops, faults=crash))

    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}
    assert result.counts["lost"] == 7


def test_what_only_its_writer_ever_saw_was_never_kept_and_no_other_read_was_late() -> None:
    """A transaction that nobody commits: its own connection sees it until the process ends."""
    ops = [
        append(1, 1, 2, "a", process=1), read(2, 3, 4, "a", process=1), read(3, 5, 6, process=2),
        read(4, 7, 8, "a", process=1), append(5, 9, 10, "b", process=2), read(6, 11, 12, "b", process=2),
        *(append(10 + n, 20 + 2 * n, 21 + 2 * n, f"c{n}", process=2) for n in range(20)),
        read(40, 71, 72, process=2),
    ]  # fmt: skip
    crash = (Event("fault", 70, name="sigkill", landed=True),)

    result = judge(to_history(ops, faults=crash))

    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}


def test_two_windows_that_show_two_parts_of_a_batch_are_not_said_to_show_one_message() -> None:
    ops = [
        append(1, 1, 9, "a", "b", "c"), read(2, 2, 3, "b", "c", limit=2), read(3, 4, 5),
        append(4, 10, 11, "d"), read(5, 12, 13, "a", limit=1),
    ]  # fmt: skip
    history = to_history(ops)

    result = judge(history)

    assert result.anomalies
    assert [clause for a in result.anomalies for clause in untrue(history, a)] == []


def test_sessions_of_one_store_are_explained_by_one_defect_where_one_explains_them() -> None:
    """One session could be late as well as cut wrongly; the other leaves no choice."""
    ops = [append(n, 10 * n, 10 * n + 1, f"m{n}") for n in range(1, 5)]
    late = read(11, 51, 52, "m2", "m3", limit=2)
    right = [read(n, 50 + n, 51 + n, "m3", "m4", limit=2) for n in range(3, 9)]
    last = read(20, 90, 91, "m1", "m2", "m3", "m4")
    sure = [
        Op(30, "append", 1, 2, "ok", ("x",), session="t"),
        Op(31, "append", 3, 4, "ok", ("y",), session="t"),
        Op(32, "append", 5, 6, "ok", ("z",), session="t"),
        Op(33, "history", 7, 8, "ok", ("x", "z"), limit=3, session="t"),
        Op(34, "history", 9, 10, "ok", ("x", "y", "z"), session="t"),
    ]

    alone = judge(to_history([*ops, late, *_renumbered(right), last]))
    both = judge(to_history([*ops, late, *_renumbered(right), last, *sure]))

    assert {anomaly.promise for anomaly in roots(alone)} == {"fresh"}
    assert {anomaly.promise for anomaly in roots(both)} == {"snapshot"}


def _renumbered(ops: list[Op]) -> list[Op]:
    return [replace(op, number=100 + at) for at, op in enumerate(ops)]


def test_a_forget_that_was_acknowledged_and_not_done_follows_from_writes_that_were() -> None:
    """A store that swallows errors says done to both; elsewhere only a lost write explains it."""
    swallowed = [append(1, 1, 2, "a"), read(2, 3, 4, "a"), forget(3, 5, 6), read(4, 7, 8, "a")]
    lost = [
        Op(10, "append", 1, 2, "ok", ("x",), session="t"),
        Op(11, "append", 3, 4, "ok", ("y",), session="t"),
        Op(12, "history", 5, 6, "ok", ("y",), session="t"),
    ]

    alone = judge(to_history(swallowed))
    both = judge(to_history([*swallowed, *lost]))

    assert {anomaly.promise for anomaly in roots(alone)} == {"forgotten"}
    assert {anomaly.promise for anomaly in roots(both)} == {"durable"}
    assert {a.follows_from for a in both.anomalies if a.session == "s"} == {("lost",)}


def test_the_same_history_gets_the_same_words_in_every_process() -> None:
    """Sets of names have another order in each process: none of it may show."""
    script = (
        "import json; from tests.verify.judge import test_roots as t; "
        "print([json.dumps(t.to_json(t.judge(t.meddled(f'd-{n}')))) for n in (15, 35)])"
    )
    words = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[3], capture_output=True, check=True, timeout=60,
        ).stdout
        for seed in "013"
    }  # fmt: skip

    assert len(words) == 1


def test_what_a_read_inside_another_lacks_is_not_lost_for_being_the_last_one() -> None:
    result = judge(
        to_history(
            [
                append(1, 0, 10, "a"),
                append(2, 20, 60, "b"),
                append(3, 20, 40, "c"),
                read(4, 30, 50, "a", "c"),
                read(5, 25, 70, "a", "b", "c"),
            ]
        )
    )
    assert named(roots(result)) == {("reorder", "b")}, result.because


def test_what_a_forget_left_over_is_shown_by_a_read_with_a_limit_and_proven_by_one_without() -> (
    None
):
    """A forget that deletes what it found before `b` came, while a reader already saw both."""
    early = [append(number, 0, 90, f"z{number}") for number in range(20, 24)]
    result = judge(
        to_history(
            [
                append(1, 15, 32, "a"),
                append(2, 17, 70, "b"),
                forget(3, 22, 72),
                append(4, 36, 58, "c", "d", "e"),
                read(5, 42, 61, "a", "b", "c", "d", "e"),
                append(6, 59, 82, "f"),
                read(7, 66, 75, "b", "c", "d", "e", "f", limit=5),
                read(8, 75, 80, "b", "c", "d", "e", "f"),
                *early,
                forget(9, 84, 100),
                *(read(number, 110, 120) for number in range(30, 36)),
            ]
        )
    )
    assert named(roots(result)) == {("resurrected", "b")}, result.because


@pytest.mark.parametrize(
    ("ended", "left"),
    [(110, 0), (75, 0), (110, 20)],
    ids=["while it is under way", "after it ended", "in a long session"],
)
def test_a_forget_that_deletes_what_it_found_before_leaves_what_came_meanwhile(
    ended: int, left: int
) -> None:
    """One that found `a` only, while a reader already saw both, breaks no other promise."""
    result = judge(
        to_history(
            [
                append(1, 0, 10, "a"),
                forget(3, 20, ended),
                append(2, 30, 40, "b", process=1),
                read(4, 50, 60, "a", "b"),
                read(5, 80, 90, "b"),
                *(read(number, 120, 130, "b") for number in range(6, 6 + left)),
            ]
        )
    )
    assert named(roots(result)) == {("resurrected", "b")}, result.because
    assert "while forget 3 may take effect" in result.because


def test_what_takes_its_place_inside_a_window_is_out_of_order_not_another_window() -> None:
    result = judge(
        to_history(
            [
                append(1, 0, 10, "z"),
                append(2, 15, 100, "a"),
                append(3, 20, 40, "b", process=1),
                read(4, 50, 60, "z", "b", limit=2, process=1),
                read(5, 110, 120, "z", "a", "b"),
            ]
        )
    )
    assert {anomaly.promise for anomaly in roots(result)} == {"ordered"}, result.because


def test_a_read_of_what_came_back_does_not_show_nothing() -> None:
    history = to_history(
        [
            append(1, 0, 10, "a"),
            forget(2, 20, 30),
            append(3, 40, 50, "b"),
            read(4, 60, 70, "a"),
        ],
        Header("hand", ttl_s=1000.0),
    )
    anomalies = judge(history).anomalies

    assert ("lost", "b") in named(anomalies)
    assert [clause for a in anomalies for clause in untrue(history, a)] == []


def test_a_retry_may_write_what_its_first_attempt_would_have_let_expire() -> None:
    history = to_history(
        [
            lost_reply(1, 0, "a", closed=20, key="k"),
            append(2, 200, 400, "a", key="k"),
            read(3, 410, 420, "a"),
        ],
        Header("hand", ttl_s=100e-9),
    )
    assert list(suspected(history)) == []


def test_a_finding_whose_first_witness_proves_nothing_is_proven_by_a_later_one() -> None:
    found = Findings("s")
    for number in (1, 2):
        found.add("lost", "a", (number,), f"read {number} lacks 'a'")

    assert [one.anomaly.witness for one in found.proven(lambda a: a.witness == (2,))] == [(2,)]


def test_a_copy_that_a_window_shows_in_another_place_is_no_other_order() -> None:
    result = judge(
        to_history(
            [
                append(1, 0, 10, "a"),
                append(2, 20, 30, "b"),
                read(3, 40, 50, "a", "b", "a"),
                read(4, 60, 70, "b", "a", limit=2),
            ]
        )
    )
    assert named(roots(result)) == {("duplicate", "a")}


LONG = range(10, 24)
"""So many more reads, and the rules decide: a search would take too long."""


def test_a_store_that_keeps_the_last_two_has_lost_the_half_of_a_batch_that_it_cut_off() -> None:
    result = judge(
        to_history(
            [
                append(1, 0, 10, "a0", "a1"),
                read(2, 20, 30, "a0", "a1"),
                append(3, 40, 50, "b"),
                *(read(number, 60, 70, "a1", "b") for number in LONG),
            ]
        )
    )
    assert {anomaly.promise for anomaly in roots(result)} == {"durable"}


def test_what_is_gone_is_not_missing_from_a_window_besides() -> None:
    result = judge(
        to_history(
            [
                append(1, 0, 10, "a"),
                append(2, 20, 30, "b"),
                read(3, 40, 50, "b", limit=5),
                *(read(number, 60, 70, "b") for number in LONG),
            ]
        )
    )
    assert named(result.anomalies) == {("lost", "a")}


@pytest.mark.parametrize(
    "seed",
    [
        "final-48626", "final-107464", "final-87478", "after-20831", "after-142931",
        "after-415975", "after-438585",
    ],
)  # fmt: skip
def test_what_came_back_is_shown_and_no_sentence_calls_it_missing(seed: str) -> None:
    history = meddled(seed)
    result = judge(history)
    assert result.verdict is Verdict.BROKEN
    assert [clause for a in result.anomalies for clause in untrue(history, a)] == []


@pytest.mark.parametrize(
    "late", [(read(6, 15, 35, "a"),), (read(6, 15, 25, "a"), read(7, 16, 24, "a"))]
)
def test_what_a_forget_is_just_taking_is_never_lost(late: tuple[Op, ...]) -> None:
    """A read in pages with a forget between two of them, and two reads beside one forget."""
    before = [append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c")]
    ops = [*before, read(4, 7, 8, "a", "b", "c"), forget(5, 20, 30), *late, read(8, 40, 41)]

    result = judge(to_history(ops))

    assert {anomaly.promise for anomaly in roots(result)} == {"forgotten"}
