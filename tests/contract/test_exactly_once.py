"""4 exactly-once: a retry with the same key adds nothing and returns the first ack."""

from __future__ import annotations

import threading

import pytest

from holdfast import UsageError
from tests.contract.harness import AnyStore, Opener, say, texts


def test_a_retry_adds_nothing_and_returns_the_first_ack(store: AnyStore):
    first = store.append("s", [say("a"), say("b")], key="request-7")
    store.append("s", say("c"))
    again = store.append("s", [say("a"), say("b")], key="request-7")
    assert again == first
    assert (again.repeated, first.repeated) == (True, False)
    assert texts(store.history("s")) == ["a", "b", "c"]


def test_a_retry_from_another_process_or_after_a_restart_is_known(open_store: Opener):
    with open_store() as store:
        first = store.append("s", say("a"), key="k")
    assert open_store().append("s", say("a"), key="k") == first
    assert texts(open_store().history("s")) == ["a"]


def test_of_simultaneous_tries_with_one_key_exactly_one_adds(open_store: Opener):
    stores = [open_store() for _ in range(4)]
    acks = []

    def write(number: int) -> None:
        acks.append(stores[number].append("s", [say("a"), say("b")], key="k"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(acks) == 4
    assert set(acks) == {acks[0]}
    assert sum(not ack.repeated for ack in acks) == 1
    assert texts(stores[0].history("s")) == ["a", "b"]


def test_a_key_is_text_and_not_empty(store: AnyStore):
    for key in ("", 7, b"k"):
        with pytest.raises(UsageError, match="key"):
            store.append("s", say("a"), key=key)  # type: ignore[arg-type]
    assert len(store.history("s")) == 0
