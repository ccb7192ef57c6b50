"""Retention: an append cuts off old messages in its own write, whole turns only, and visibly."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from holdfast import Ack, Conflict, HoldfastError, Message, Retention, SessionState, UsageError
from holdfast.turns import open_calls
from tests.contract.harness import AnyStore, Harness, Opener, say, texts
from tests.recall.models import Letters
from tests.waiting import wait_until


def turn(number: int) -> list[Message]:
    return [Message("user", f"q{number}"), Message("assistant", f"a{number}")]


def call(name: str) -> Message:
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    return Message("assistant", None, extra={"tool_calls": calls})


def result(name: str) -> Message:
    return Message("tool", f"result of {name}", extra={"tool_call_id": name})


def test_the_last_so_many_are_kept_and_the_cut_is_seen(open_store: Opener):
    store = open_store(retention=Retention(last=4))
    for number in range(2):
        store.append("s", turn(number))
    whole = store.history("s")
    assert (whole.first_kept, whole.trimmed, whole.last) == (1, 0, 4)
    sizes = set()
    acks = []
    for number in range(2, 7):
        acks.append(store.append("s", turn(number), key=f"k{number}").last)
        sizes.add(store.stat("s").bytes)
    kept = store.history("s")
    assert texts(kept) == ["q5", "a5", "q6", "a6"]
    assert [message.seq for message in kept] == [11, 12, 13, 14]
    assert (kept.first_kept, kept.trimmed, kept.last) == (11, 10, 14)
    assert acks == [6, 8, 10, 12, 14]
    stat = store.stat("s")
    assert (stat.count, stat.last) == (4, 14)
    assert len(sizes) == 1, "messages of one size, and as many of them: as many bytes"
    for page in (store.history("s", limit=1), store.history("s", before=13, limit=9)):
        assert (page.first_kept, page.trimmed) == (11, 10)
    assert texts(store.history("s", after=2, limit=2)) == ["q5", "a5"]
    assert texts(store.history("s", before=11)) == []
    repeated = store.append("s", turn(99), key="k2")
    assert (repeated.first, repeated.last, repeated.repeated) == (5, 6, True)
    assert texts(store.history("s")) == texts(kept), "a repeated append cuts nothing off"
    with pytest.raises(Conflict):
        store.append("s", turn(99), expect=4)
    assert store.append("s", turn(7), expect=14).last == 16
    assert (store.history("s").first_kept, store.history("s").trimmed) == (13, 12)


def test_only_whole_turns_go(open_store: Opener):
    store = open_store(retention=Retention(last=3))
    batches = [[say("1"), call("a")], [result("a"), say("2")], [say("3"), call("b"), say("4")]]
    for batch in batches:
        store.append("s", batch)
    assert texts(store.history("s")) == ["3", None, "4"]
    store.append("s", [say("5"), say("6")])
    assert len(store.history("s")) == 5, "b is open: its result may come"
    store.append("s", result("b"))
    assert open_calls(store.history("s")) == []
    kept = store.history("s")
    repaired = store.history("s", turns="repaired")  # the late result behind its call: nothing else
    assert texts(repaired) == ["3", None, kept[-1].content, "4", "5", "6"]
    assert sorted(one.seq or 0 for one in repaired) == [one.seq for one in kept]
    store.append("s", say("7"))
    store.append("s", [say("8"), say("9")])
    assert texts(store.history("s")) == ["7", "8", "9"]


def test_no_append_is_cut_in_two(open_store: Opener):
    store = open_store(retention=Retention(last=3))
    store.append("s", [*turn(1), *turn(2), *turn(3)])
    for number in range(4, 10):
        store.append("s", turn(number))
        assert store.history("s").first_kept in {1, *range(7, 20, 2)}, (
            "an append of three turns goes as a whole"
        )
    kept = store.history("s")
    assert (len(kept), kept.trimmed) == (4, 14)
    again = open_store(retention=Retention(last=1))  # what it knows, it has read
    again.append("s", [say("a"), say("b"), say("c")])
    again.append("s", say("d"))
    other = open_store(retention=Retention(last=1))
    other.append("s", say("e"))
    assert texts(store.history("s")) == ["e"]
    other.append("s", [say("f"), say("g")])
    store.append("s", say("h"), retention=Retention(last=2))
    assert texts(store.history("s")) == ["f", "g", "h"], "f and g were appended together"


def test_no_append_is_cut_in_two_where_no_turn_begins(open_store: Opener):
    def answers(number: int, count: int) -> list[Message]:
        return [Message("assistant", f"{number}.{at}") for at in range(count)]

    store = open_store(retention=Retention(last=2))
    store.append("one turn", [say("q"), *answers(1, 5)])
    store.append("one turn", answers(2, 1))
    assert len(store.history("one turn")) == 7
    store.append("one turn", answers(3, 1))
    assert texts(store.history("one turn")) == ["2.0", "3.0"]
    for number in range(20):
        store.append("loop", answers(number, 3))
        again = open_store(retention=Retention(last=2)) if number == 9 else store
        again.append("loop", answers(100 + number, 2))
        assert str(texts(store.history("loop"))[0]).endswith(".0")
        assert len(store.history("loop")) <= 2 * 3 + 2


def test_appends_and_calls_that_overlap_all_the_way_do_not_grow_for_ever(open_store: Opener):
    store = open_store(retention=Retention(last=4))
    for number in range(20):
        store.append("agent", [result(f"{number}"), call(f"{number + 1}")])
        store.append("asked", [result(f"{number}"), say("and?"), call(f"{number + 1}")])
    for session in ("agent", "asked"):
        assert 4 <= len(store.history(session)) <= 2 * 4 + 3
        calls_open = open_calls(store.history(session))
        assert len(calls_open) == 1


def test_a_session_with_neither_users_nor_results_does_not_grow_for_ever(open_store: Opener):
    store = open_store(retention=Retention(last=4))
    for number in range(30):
        store.append("loop", Message("assistant", f"step {number}"))
        store.append("lost", [say(f"{number}"), call(f"never answered {number}")])
    assert 4 <= len(store.history("loop")) < 2 * 4 + 1
    assert 4 <= len(store.history("lost")) <= 2 * 4 + 2


def test_what_is_older_than_the_age_goes_with_the_next_append(open_store: Opener):
    store = open_store(retention=Retention(age_s=3))
    for number in range(3):
        store.append("s", turn(number))
    assert len(store.history("s")) == 6
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < 3.5:  # the engine's clock is what counts, and it goes on
        time.sleep(0.05)
    assert len(store.history("s")) == 6, "reading cuts nothing off"
    store.append("s", turn(3))
    kept = store.history("s")
    assert (texts(kept), kept.trimmed) == (["q3", "a3"], 6)
    old = Message("user", "of 2001", created_at=None)
    store.append("s", old)
    assert len(store.history("s")) == 3, "its own date is information only"


def test_retention_of_one_append_comes_before_that_of_the_store(open_store: Opener):
    store = open_store(retention=Retention(last=2))
    for number in range(3):
        store.append("all", turn(number), retention=None)
    assert len(store.history("all")) == 6
    store.append("all", turn(3), retention=Retention(last=4))
    assert texts(store.history("all")) == ["q2", "a2", "q3", "a3"]
    plain = open_store()
    plain.append("all", turn(4))
    assert len(plain.history("all")) == 6, "a client without one keeps what it finds"
    store.append("all", turn(5))
    assert texts(plain.history("all")) == ["q5", "a5"]


def test_what_was_cut_off_is_gone_from_the_engine_and_its_index(
    open_store: Opener, harness: Harness
):
    store = open_store(retention=Retention(last=4), embedder=Letters(), background_indexing=False)
    for number in range(8):
        store.append("s", [say(f"zebra number {number}"), say(f"yak number {number}")])
        store.wait_for("s")
    hits = store.recall("s", "zebra number 1", k=10)
    assert sorted(hit.seq for hit in hits) == [13, 14, 15, 16]
    assert hits.behind == 0
    assert store.index_lag("s") == 0, "to cut off does not make an index begin again"
    with pytest.raises((ValueError, AssertionError, IndexError)):
        assert harness.raw("s", 3) is not None


def test_rewrite_forget_and_expiry_end_what_was_trimmed(open_store: Opener):
    store = open_store(retention=Retention(last=2))
    for number in range(3):
        store.append("s", turn(number))
    assert store.history("s").trimmed == 4
    store.rewrite("s", [*turn(7), *turn(8)])
    again = store.history("s")
    assert (texts(again), again.trimmed, again.first_kept) == (["q7", "a7", "q8", "a8"], 0, 7)
    store.append("s", turn(9))
    assert (store.history("s").trimmed, store.history("s").first_kept) == (4, 11)
    assert store.forget("s").messages == 2
    gone = store.history("s")
    assert (gone.state, gone.trimmed, gone.first_kept) == (SessionState.FORGOTTEN, 0, 0)
    store.append("s", turn(1))
    assert (store.history("s").trimmed, store.history("s").first_kept) == (0, 13)


def test_an_export_says_what_was_cut_off(open_store: Opener):
    store = open_store(retention=Retention(last=2))
    for number in range(3):
        store.append("s", turn(number), key=f"k{number}")
    lines = list(store.export())
    other = open_store(namespace="other")
    assert other.load(lines).messages == 2
    assert other.load(lines).present == 1
    there = other.history("s")
    assert (texts(there), there.trimmed, there.first_kept) == (["q2", "a2"], 4, 5)
    assert other.append("s", turn(0), key="k0").repeated
    assert list(other.export()) == lines
    assert other.stat("s") == store.stat("s")


def test_a_summary_of_what_was_cut_off_stays_in_the_context(open_store: Opener):
    store = open_store(embedder=Letters(), background_indexing=False)
    store.append("s", [*turn(1), *turn(2)])
    assert store.summarize("s", keep=2) is not None
    store.append("s", turn(3), retention=Retention(last=2))
    found = store.context("s", "q1", tokens=500)
    assert [message.content for message in found.turns] == ["q3", "a3"]
    assert found.summary is not None
    assert "q1" in str(found.summary.content)
    assert found.left_out == ()


def test_writers_at_once_keep_the_last_at_least_and_lose_nothing_of_them(open_store: Opener):
    stores = [open_store(retention=Retention(last=6)) for _ in range(3)]
    plain = open_store()
    acks: list[Ack] = []
    errors: list[HoldfastError] = []

    def write(at: int) -> None:
        try:
            acks.extend(stores[at].append("s", turn(at), key=f"{at}.{n}") for n in range(12))
        except HoldfastError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    numbers = sorted(number for ack in acks for number in (ack.first, ack.last))
    assert numbers == list(range(1, 73))
    kept = plain.history("s")
    assert [message.seq for message in kept] == list(range(kept.first_kept, 73))
    assert 6 <= len(kept) <= 6 + 2 * 3 * 2
    stores[0].append("s", turn(9))
    assert len(plain.history("s")) == 6


@pytest.mark.parametrize(
    "wrong",
    [{}, {"last": 0}, {"last": -1}, {"last": True}, {"last": 1.5}, {"age_s": 0}, {"age_s": "1"},
     {"age_s": float("nan")}, {"age_s": float("inf")}, {"last": 2**32}],
)  # fmt: skip
def test_a_retention_that_makes_no_sense_is_refused(wrong: dict[str, Any]):
    with pytest.raises(UsageError):
        Retention(**wrong)


def test_what_is_no_retention_is_refused_before_anything_is_sent(store: AnyStore):
    wrong: Any = 5
    with pytest.raises(UsageError):
        store.append("s", say("x"), retention=wrong)
    assert store.stat("s").state is SessionState.NEVER


KILLED = """
import os, sys, holdfast
from holdfast import Message, Retention
with holdfast.connect(sys.argv[1], retention=Retention(last=4)) as store:
    for number in range(100000):
        turn = [Message("user", f"q{number}"), Message("assistant", f"a{number}")]
        ack = store.append("s", turn, key=f"k{number}")
        os.write(1, b"%d\\n" % ack.last)
"""


def test_a_kill_leaves_the_session_before_an_append_or_after_it(opener: Opener, harness: Harness):
    store = opener()
    words = [sys.executable, "-c", KILLED, harness.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(7)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines()
    acknowledged = max(int(line) for line in lines if line.strip())
    wait_until(lambda: store.stat("s").last >= acknowledged)
    kept = store.history("s")
    assert kept.last in {acknowledged, acknowledged + 2}
    assert [message.seq for message in kept] == list(range(kept.last - 3, kept.last + 1))
    assert (kept.first_kept, kept.trimmed) == (kept.last - 3, kept.last - 4)
    assert store.append("s", turn(0), key="k0").first == 1
    assert store.stat("s").count == 4
