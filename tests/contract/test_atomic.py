"""3 atomic: a batch is all there or all gone, for every reader."""

from __future__ import annotations

import threading

import pytest

from holdfast import Conflict, InvalidMessage, Message
from tests.contract.harness import AnyStore, Opener, say, texts
from tests.contract.processes import Client


def test_a_batch_with_one_bad_message_leaves_nothing(store: AnyStore):
    store.append("s", say("before"))
    bad = Message("user", ["fine"])
    bad.content.append(float("nan"))  # type: ignore[union-attr] # after the check at its making
    with pytest.raises(InvalidMessage):
        store.append("s", [say("good"), bad])
    assert texts(store.history("s")) == ["before"]


def test_no_reader_ever_sees_part_of_a_batch(open_store: Opener):
    writer, reader = open_store(), open_store()
    batch = 7
    done = threading.Event()
    torn: list[int] = []

    def watch() -> None:
        while not done.is_set():
            seen = len(reader.history("s"))
            if seen % batch:
                torn.append(seen)

    thread = threading.Thread(target=watch)
    thread.start()
    for turn in range(60):
        writer.append("s", [say(f"{turn}.{part}") for part in range(batch)])
    done.set()
    thread.join()
    assert torn == []
    assert len(reader.history("s")) == 60 * batch


def test_a_turn_is_whole_or_absent_after_sigkill_at_any_moment(opener: Opener):
    opener().close()
    for number in range(5):
        client = Client(opener.harness.url, f"s{number}", "w")
        for _ in range(3 * number + 1):
            client.read_ack()
        client.kill()
    store = opener()
    for number in range(5):
        history = texts(store.history(f"s{number}"))
        assert len(history) >= 2 * (3 * number + 1)
        assert [text[:-1] for text in history[0::2]] == [text[:-1] for text in history[1::2]]


def test_rewrite_replaces_everything_in_one_step(open_store: Opener):
    writer, reader = open_store(), open_store()
    writer.append("s", [say("0")] * 3)
    done = threading.Event()
    mixed: list[list[str]] = []

    def watch() -> None:
        while not done.is_set():
            seen = texts(reader.history("s"))
            if len(seen) != 3 or len(set(seen)) != 1:
                mixed.append(seen)

    thread = threading.Thread(target=watch)
    thread.start()
    for turn in range(60):
        writer.rewrite("s", [say(str(turn))] * 3)
    done.set()
    thread.join()
    assert mixed == []
    assert texts(reader.history("s")) == ["59"] * 3


def test_rewrite_keeps_to_what_was_expected(store: AnyStore):
    store.append("s", [say("a"), say("b")])
    with pytest.raises(Conflict):
        store.rewrite("s", say("lost update"), expect=1)
    assert texts(store.history("s")) == ["a", "b"]
    store.rewrite("s", say("fine"), expect=2)
    assert texts(store.history("s")) == ["fine"]


def test_rewrite_to_nothing_empties_the_session_and_keeps_its_numbering(store: AnyStore):
    store.append("s", [say("a"), say("b")])
    ack = store.rewrite("s", [])
    assert (ack.first, ack.last) == (3, 2)
    assert texts(store.history("s")) == []
    assert store.history("s").last == 0
    assert store.append("s", say("c"), expect=0).first == 3


def test_expect_appends_only_where_the_caller_thinks_the_end_is(store: AnyStore):
    assert store.append("s", say("first"), expect=0).last == 1
    with pytest.raises(Conflict, match="ends at 1, not at 0") as caught:
        store.append("s", say("late"), expect=0)
    assert caught.value.operation == "append"
    assert caught.value.backend == store.backend
    assert store.append("s", say("second"), expect=1).last == 2
    assert texts(store.history("s")) == ["first", "second"]


def test_of_many_that_expect_the_same_end_exactly_one_wins(open_store: Opener):
    stores = [open_store() for _ in range(4)]
    outcomes: list[str] = []

    def write(number: int) -> None:
        try:
            stores[number].append("s", say(str(number)), expect=0)
            outcomes.append("won")
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict"] * 3 + ["won"]
    assert len(stores[0].history("s")) == 1
