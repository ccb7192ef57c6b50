"""1 durable: what was acknowledged survives."""

from __future__ import annotations

import pytest

from holdfast import Durability, Refused
from tests.contract.harness import AnyStore, Harness, Opener, say, texts
from tests.contract.processes import Client


def test_the_ack_names_a_level_at_least_as_high_as_required(store: AnyStore, harness: Harness):
    ack = store.append("s", say("hello"))
    assert ack.durability >= Durability.DISK
    assert ack.durability == harness.level == store.durability


def test_a_level_that_the_engine_cannot_give_is_refused_at_connect(open_store: Opener):
    with pytest.raises(Refused, match="REPLICA is required"):
        open_store(require=Durability.REPLICA)


def test_messages_are_there_after_closing_and_opening_again(open_store: Opener):
    with open_store() as store:
        store.append("s", [say("one"), say("two")])
    assert texts(open_store().history("s")) == ["one", "two"]


def test_every_acknowledged_turn_survives_sigkill_of_its_writers(opener: Opener):
    url = opener.harness.url
    opener().close()
    clients = [Client(url, "s", f"writer{number}") for number in range(3)]
    for client in clients:
        for _ in range(20):
            client.read_ack()
    for client in clients:
        client.kill()

    history = opener().history("s")
    at = {message.seq: message.content for message in history}
    acknowledged = {name: seqs for client in clients for name, seqs in client.acks.items()}
    assert len(acknowledged) >= 60
    for name, (first, last) in acknowledged.items():
        assert (at[first], at[last]) == (f"{name}?", f"{name}!"), f"{name} was acknowledged"
    assert len(set(texts(history))) == len(history), "something is there twice"
    assert texts(history)[0::2] == [text[:-1] + "?" for text in texts(history)[1::2]], "a torn turn"
    assert [message.seq for message in history] == list(range(1, len(history) + 1))


def test_the_store_recovers_by_itself_when_its_only_writer_was_killed(opener: Opener):
    opener().close()
    client = Client(opener.harness.url, "s", "writer")
    client.read_ack()
    client.kill()
    store = opener()
    before = len(store.history("s"))
    assert before >= 2
    ack = store.append("s", say("after the crash"))
    assert ack.first == before + 1
