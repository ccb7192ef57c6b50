"""2 ordered: order is the number that the engine gave inside the write."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from holdfast import Message
from tests.contract.harness import AnyStore, Opener, say, texts
from tests.contract.processes import Client


def test_numbers_begin_at_one_and_rise_without_a_gap(store: AnyStore):
    acks = [store.append("s", say(str(turn))) for turn in range(5)]
    assert [(ack.first, ack.last) for ack in acks] == [(n, n) for n in range(1, 6)]
    batch = store.append("s", [say("x"), say("y"), say("z")])
    assert (batch.first, batch.last) == (6, 8)
    assert [message.seq for message in store.history("s")] == list(range(1, 9))


def test_created_at_decides_nothing(store: AnyStore):
    now = datetime.now(UTC)
    for turn in range(5):
        store.append("s", Message("user", str(turn), created_at=now - timedelta(days=turn)))
    store.append("s", Message("user", "5", created_at=None))
    assert texts(store.history("s")) == ["0", "1", "2", "3", "4", "5"]


def test_concurrent_writers_lose_nothing_and_each_keeps_its_own_order(open_store: Opener):
    stores = [open_store() for _ in range(4)]

    def write(number: int) -> None:
        for turn in range(25):
            stores[number].append("s", say(f"{number}:{turn}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = stores[0].history("s")
    assert [message.seq for message in history] == list(range(1, 101))
    for number in range(4):
        mine = [text for text in texts(history) if text.startswith(f"{number}:")]
        assert mine == [f"{number}:{turn}" for turn in range(25)]


def test_concurrent_processes_lose_nothing_and_share_one_numbering(opener: Opener):
    opener().close()
    clients = [Client(opener.harness.url, "s", f"w{n}", count=25) for n in range(4)]
    for client in clients:
        client.finish()
    history = opener().history("s")
    assert [message.seq for message in history] == list(range(1, 4 * 25 * 2 + 1))
    at = {message.seq: message.content for message in history}
    for client in clients:
        assert len(client.acks) == 25
        for name, (first, last) in client.acks.items():
            assert (at[first], at[last]) == (f"{name}?", f"{name}!")
