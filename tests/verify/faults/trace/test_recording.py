"""When a replay counts as true to a directory, and which instants of it are visited."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from holdfast.errors import FaultNotProven
from holdfast.verify.power.trace import Loss, Recording
from holdfast.verify.power.trace.disk_model import PAGE_BYTES
from holdfast.verify.power.trace.inode_operations import (
    ROOT,
    Edit,
    Kind,
    Names,
    Operation,
    Sync,
    Write,
)
from holdfast.verify.power.trace.instants import Instant, choose
from holdfast.verify.power.trace.tree import Base

OLD, NEW = b"o" * 3 * PAGE_BYTES, b"n" * 3 * PAGE_BYTES


def recording(tmp_path: Path, *unfinished: Operation) -> Recording:
    kinds = {ROOT: Kind("directory"), 1: Kind("file")}
    done: list[Operation] = [Names(1, 2, (Edit(ROOT, "file", 1),)), Write(3, 4, 1, 0, OLD)]
    return Recording(Base(tmp_path / "base"), kinds, done, list(unfinished))


@pytest.mark.parametrize("pages", [0, 1, 2, 3])
def test_a_write_that_was_killed_may_have_ended_with_any_page(tmp_path: Path, pages: int):
    live = tmp_path / "live"
    live.mkdir()
    at = pages * PAGE_BYTES
    (live / "file").write_bytes(NEW[:at] + OLD[at:])
    recording(tmp_path, Write(5, 9, 1, 0, NEW)).prove(live)
    with pytest.raises(FaultNotProven) if pages else _nothing():
        recording(tmp_path).prove(live)


def test_a_write_that_was_killed_explains_nothing_but_itself(tmp_path: Path):
    live = tmp_path / "live"
    live.mkdir()
    (live / "file").write_bytes(NEW[:PAGE_BYTES] + b"?" + OLD[PAGE_BYTES + 1 :])
    with pytest.raises(FaultNotProven, match="differs at byte 0"):
        recording(tmp_path, Write(5, 9, 1, 0, NEW)).prove(live)


@pytest.mark.parametrize(("name", "fits"), [("pg_wal/0001", False), ("x/pg_wal/0001", True)])
def test_only_a_log_of_postgres_may_hold_more_than_was_seen(tmp_path: Path, name: str, fits: bool):
    """In a run directory, and only where the replay has zeros."""
    kinds = {n: Kind("directory") for n in (ROOT, 2, 3)} | {1: Kind("file")}
    folders = name.split("/")[:-1]
    inodes = [ROOT, 2, 3][: len(folders) + 1]
    done: list[Operation] = [
        Names(0, 1, (Edit(inodes[n], folder, inodes[n + 1]),)) for n, folder in enumerate(folders)
    ]
    done += [Names(1, 2, (Edit(inodes[-1], "0001", 1),)), Write(3, 4, 1, 0, b"seen" + bytes(8))]
    found = Recording(Base(tmp_path / "base"), kinds, done)
    path = tmp_path / "live" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"seenlater" + bytes(3))
    with _nothing() if fits else pytest.raises(FaultNotProven):
        found.prove(tmp_path / "live")
    path.write_bytes(b"SEEN" + bytes(8))
    with pytest.raises(FaultNotProven):
        found.prove(tmp_path / "live")


def _nothing() -> AbstractContextManager[object]:
    return nullcontext()


def test_instants_are_those_that_tell_most_the_same_for_the_same_seed_and_never_before_an_ack():
    operations: list[Operation] = []
    for n in range(0, 400, 10):
        operations += [
            Write(n, n + 1, 1, 0, b"x"),
            Sync(n + 2, n + 5, 1),
            Names(n + 6, n + 7, (Edit(ROOT, "a", 1),)),
        ]
    acks = list(range(109, 400, 10))
    first = list(choose(operations, acks, seed=1))
    assert first == list(choose(operations, acks, seed=1))
    assert first != list(choose(operations, acks, seed=2))
    assert min(instant.at_ns for instant in first) == 109
    assert {(i.why, i.loss) for i in first[:32]} >= {("after an ack", loss) for loss in Loss}
    beginnings = {i.why for i in first[:4]}
    assert len(beginnings) == 4
    # The sync of 112 to 115: the write before it is done, and it is not.
    assert 114 in {i.at_ns for i in first if i.why == "before a sync has ended"}
    assert list(choose(operations, [], seed=1)) == []


def test_a_batch_above_64_kib_is_torn_early():
    large = [Write(500 + n, 501 + n, 2, n << 13, b"x" * (1 << 13)) for n in range(9)]
    small = [
        op for n in range(0, 400, 10) for op in (Write(n, n + 1, 1, 0, b"x"), Sync(n, n + 5, 1))
    ]
    operations: list[Operation] = [*small, *large, Sync(520, 530, 2)]
    found = list(choose(operations, range(109, 400, 10), seed=1))
    assert Instant(529, Loss.TORN, "inside a large batch") in found[:8]
    assert sum(instant.why == "inside a large batch" for instant in found) == 1
