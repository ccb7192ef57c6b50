"""Vectors as bytes: what they lose is less than what tells two texts apart."""

from __future__ import annotations

import numpy as np

from holdfast.recall.vectors import pack, unpack


def test_a_vector_keeps_its_direction_and_its_largest_number_is_127():
    rows = np.random.default_rng(7).normal(size=(50, 384)).astype(np.float32) * 0.001
    packed = [one.vector for one in pack(rows, model="", count=50, dimension=384)]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    assert ((unpack(packed) * rows / lengths).sum(axis=1) > 0.9999).all()
    # Redis makes bytes of it again, by this scale: then nothing is lost there.
    assert {int(np.abs(np.frombuffer(one, np.int8).astype(int)).max()) for one in packed} == {127}


def test_a_vector_without_any_direction_stays_so():
    [one] = pack([[0.0] * 8], model="", count=1, dimension=8)
    assert one.vector == bytes(8)
    assert unpack([one.vector]).tolist() == [[0.0] * 8]
