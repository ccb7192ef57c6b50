"""Messages and histories as values."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields

import pytest

from holdfast import Ack, DamagedRecord, Durability, History, Message


def test_levels_are_ordered():
    assert Durability.MEMORY < Durability.PROCESS < Durability.DISK < Durability.REPLICA


def test_a_message_has_an_id_and_a_time_of_its_own():
    one, two = Message("user", "x"), Message("user", "x")
    assert one.id != two.id
    assert one != two
    assert one.created_at is not None
    assert one.created_at.tzinfo is not None


def test_the_number_takes_no_part_in_equality():
    assert Message("u", "x", id="1", created_at=None, seq=5) == Message(
        "u", "x", id="1", created_at=None
    )


def test_values_are_frozen_copied_and_pickled():
    message = Message("user", ["x"], extra={"a": [1]})
    for value in (
        message,
        Ack("s", 1, 2, Durability.DISK),
        History((message,), (DamagedRecord(2, "r"),), 2),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, "x")
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value
    assert len({message, message}) == 1


def test_an_ack_of_a_retry_equals_the_first():
    assert Ack("s", 1, 2, Durability.DISK) == Ack("s", 1, 2, Durability.DISK, repeated=True)


def test_a_history_with_damage_equals_no_list():
    message = Message("user", "x")
    assert History((message,)) == [message]
    assert History((message,)) == (message,)
    assert History((message,), (DamagedRecord(2, "r"),)) != [message]
    assert History((message,)) != "x"
