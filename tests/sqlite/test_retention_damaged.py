"""Retention in a file that lacks a row: it stops no append."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Retention
from tests.contract.harness import say, texts


@pytest.mark.parametrize("missing", [[1], [2], [1, 2]])
def test_a_missing_row_at_the_cut_stops_no_append(tmp_path: Path, missing: list[int]):
    path = tmp_path / "memory.db"
    with holdfast.connect(f"sqlite:///{path}", retention=Retention(last=3)) as store:
        store.append("s", say("1"))
        store.append("s", say("2"))
        store.append("s", say("3"))
        connection = apsw.Connection(str(path))
        for number in missing:
            connection.execute("DELETE FROM messages WHERE place & 0xffffffff = ?", (number,))
        connection.close()
        assert store.append("s", say("4")).last == 4
        assert store.append("s", say("5")).last == 5
        assert texts(store.history("s")) == ["3", "4", "5"]
        store.append("s", say("6"))
        stat, one = store.stat("s"), store.append("other", say("7"))
        assert (stat.count, one.last) == (3, 1)
        assert stat.bytes == 3 * store.stat("other").bytes, "messages of one size"
