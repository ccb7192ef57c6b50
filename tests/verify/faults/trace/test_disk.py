"""The model of a disk: what a power cut may leave, held against a slow and simple oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.verify.power.trace.disk_model import PAGE_BYTES, SECTOR_BYTES, Crash, Disk, Loss
from holdfast.verify.power.trace.inode_operations import (
    ROOT,
    Edit,
    Kind,
    Names,
    Operation,
    Resize,
    Sync,
    Write,
)
from holdfast.verify.power.trace.tree import Base

FOLDER = Kind("directory", 0o700)
LOSSES = list(Loss)


def disk(files: int, *done: Operation, strict: bool = False) -> Disk:
    kinds = {ROOT: FOLDER, **{n: Kind("file") for n in range(1, files + 1)}}
    made = Disk(Base(Path("/nowhere")), kinds, strict=strict)
    made.take(done)
    return made


def found(crash: Crash) -> dict[str, bytes]:
    return {path: bytes(crash.contents[n] or b"") for path, n in crash.tree.walk()}


def new(at: int, inode: int, name: str, folder: int = ROOT) -> Names:
    return Names(at - 1, at, (Edit(folder, name, inode),))


def write(at: int, inode: int, data: bytes, offset: int = 0) -> Write:
    return Write(at - 1, at, inode, offset, data)


def sync(at: int, inode: int | None, *, began: int | None = None) -> Sync:
    return Sync(at - 1 if began is None else began, at, inode)


OLD = (new(1, 1, "file"), write(2, 1, b"old"), sync(4, 1))


def test_what_was_synced_is_there_and_what_was_not_is_not():
    made = disk(2, *OLD, new(5, 2, "other"), write(6, 2, b"lost"))
    assert found(made.crash(6, Loss.DROPPED)) == {"file": b"old"}
    assert made.unsynced_bytes == 4
    assert found(made.everything()) == {"file": b"old", "other": b"lost"}


def test_a_sync_covers_what_had_ended_when_it_began_and_nothing_later():
    made = disk(1, new(1, 1, "file"), write(5, 1, b"A"), sync(9, 1, began=4))
    assert found(made.crash(9, Loss.DROPPED)) == {"file": b""}
    made.take([sync(11, 1, began=5)])
    assert found(made.crash(11, Loss.DROPPED)) == {"file": b"A"}


def test_any_sync_commits_every_name_before_it_but_no_data_of_other_files():
    made = disk(2, new(1, 1, "a"), write(2, 1, b"A"), new(3, 2, "b"), sync(5, 2))
    assert found(made.crash(5, Loss.DROPPED)) == {"a": b"", "b": b""}


def test_a_name_that_changed_while_a_sync_was_under_way_is_not_committed_by_it():
    made = disk(2, *OLD, new(8, 2, "late"), sync(9, 1, began=6))
    assert found(made.crash(9, Loss.DROPPED)) == {"file": b"old"}


def test_the_journal_goes_out_in_order():
    """A new size that survived proves that the name before it did, whatever pages did."""
    made = disk(2, *OLD, new(5, 2, "before"), Resize(6, 7, 1, 1), new(9, 2, "after"))
    left = [found(made.crash(9, Loss.PAGES, seed)) for seed in range(40)]
    assert {(one["file"], "before" in one, "after" in one) for one in left} == {
        (b"old", False, False),
        (b"old", True, False),
        (b"o", True, False),
        (b"o", True, True),
    }


def test_in_strict_posix_a_name_waits_for_its_own_directory():
    steps = (new(1, 1, "a"), write(2, 1, b"A"), sync(4, 1))
    made = disk(1, *steps, strict=True)
    assert found(made.crash(4, Loss.DROPPED)) == {}
    made.take([sync(6, ROOT)])
    assert found(made.crash(6, Loss.DROPPED)) == {"a": b"A"}


REPLACE = (*OLD, new(5, 2, "tmp"), write(6, 2, b"new"))
RENAME = Names(9, 10, (Edit(ROOT, "tmp", None), Edit(ROOT, "file", 2)))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(6))
def test_a_file_that_is_synced_and_renamed_is_old_or_new(loss: Loss, seed: int):
    made = disk(2, *REPLACE, sync(8, 2), RENAME)
    assert found(made.crash(10, loss, seed))["file"] in (b"old", b"new")


def test_a_file_that_is_renamed_without_a_sync_may_be_empty_under_its_new_name():
    made = disk(2, *REPLACE, RENAME)
    assert found(made.crash(10, Loss.NAMES))["file"] == b""
    assert found(made.crash(10, Loss.DROPPED))["file"] == b"old"


def test_a_journal_that_another_file_commits_brings_the_new_size_and_not_the_data():
    made = disk(2, *OLD, Resize(4, 5, 1, 0), write(6, 1, b"new"), new(7, 2, "b"), sync(9, 2))
    assert found(made.crash(9, Loss.DROPPED))["file"] == b""


def test_a_torn_write_ends_between_sectors():
    old, fresh = b"o" * 2000, b"n" * 2000
    made = disk(1, new(1, 1, "f"), write(2, 1, old), sync(4, 1), write(5, 1, fresh))
    left = {found(made.crash(5, Loss.TORN, seed))["f"] for seed in range(60)}
    assert left == {fresh[:at] + old[at:] for at in (0, 512, 1024, 1536)}


def test_pages_of_one_write_survive_each_by_itself_but_a_file_grows_in_order():
    old, fresh = b"o" * 3 * PAGE_BYTES, b"n" * 3 * PAGE_BYTES
    made = disk(1, new(1, 1, "f"), write(2, 1, old), sync(4, 1), write(5, 1, fresh))
    left = {found(made.crash(5, Loss.PAGES, seed))["f"][::PAGE_BYTES] for seed in range(100)}
    assert left == {bytes(p) for p in _products(b"on", 3)}

    steps: list[Operation] = [new(1, 1, "f"), sync(3, 1)]
    steps += [write(4 + n, 1, b"n" * PAGE_BYTES, n * PAGE_BYTES) for n in range(3)]
    grown = disk(1, *steps)
    left = {found(grown.crash(7, Loss.PAGES, seed))["f"][::PAGE_BYTES] for seed in range(60)}
    assert left == {b"", b"n", b"nn", b"nnn"}
    strict = disk(1, *steps, sync(8, ROOT, began=2), strict=True)
    left = {found(strict.crash(8, Loss.PAGES, seed))["f"][::PAGE_BYTES] for seed in range(100)}
    assert b"\0\0n" in left


def _products(letters: bytes, count: int) -> list[list[int]]:
    if not count:
        return [[]]
    return [[first, *rest] for first in letters for rest in _products(letters, count - 1)]


def test_the_same_seed_leaves_the_same():
    made = disk(1, new(1, 1, "f"), write(2, 1, b"x" * 9000), write(3, 1, b"y" * 9000))
    for loss in LOSSES:
        assert found(made.crash(3, loss, 5)) == found(made.crash(3, loss, 5))


FILES = 3
SIZES = st.integers(0, 3 * PAGE_BYTES)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, FILES), SIZES, st.integers(1, 2 * PAGE_BYTES)),
        st.tuples(st.just("resize"), st.integers(1, FILES), SIZES),
        st.tuples(st.just("sync"), st.one_of(st.none(), st.integers(1, FILES))),
    ),
    max_size=14,
)


class Oracle:
    """Every content that a file had since it was last synced."""

    def __init__(self) -> None:
        self.since: dict[int, list[bytes]] = {n: [b""] for n in range(1, FILES + 1)}

    def change(self, inode: int, content: bytes) -> None:
        self.since[inode].append(content)

    def now(self, inode: int) -> bytes:
        return self.since[inode][-1]

    def sync(self, inode: int | None) -> None:
        for n in self.since if inode is None else [inode]:
            del self.since[n][:-1]

    def allows(self, inode: int, content: bytes) -> bool:
        """Each sector is as it was at some time since, or nothing was there yet."""
        longest = max(len(version) for version in self.since[inode])
        assert len(content) <= longest
        return all(
            any(_sector(v, at) == _sector(content, at) for v in (*self.since[inode], b""))
            or _is_mixed(self.since[inode], content, at)
            for at in range(0, len(content), SECTOR_BYTES)
        )


def _sector(content: bytes, at: int) -> bytes:
    return content[at : at + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")


def _is_mixed(versions: list[bytes], content: bytes, at: int) -> bool:
    """A sector in which the size on the disk, or a new size, lies: each byte was once so."""
    ends = {len(version) // SECTOR_BYTES for version in versions}
    here = range(at, min(at + SECTOR_BYTES, len(content)))
    return at // SECTOR_BYTES in ends and all(
        any(v[n : n + 1] == content[n : n + 1] for v in versions) or content[n] == 0 for n in here
    )


@given(steps=STEPS, seed=st.integers(0, 3), strict=st.booleans())
def test_whatever_happened_every_crash_state_is_one_that_the_oracle_allows(
    steps: list[tuple[Any, ...]], seed: int, strict: bool
):
    oracle = Oracle()
    made = disk(
        FILES, *(new(n, n, f"f{n}") for n in range(1, FILES + 1)), sync(9, None), strict=strict
    )
    for number, (kind, *rest) in enumerate(steps):
        at = 10 * (number + 1)
        if kind == "write":
            inode, offset, count = rest
            data = bytes([number + 1]) * count
            made.take([write(at, inode, data, offset)])
            before = oracle.now(inode).ljust(offset, b"\0")
            oracle.change(inode, before[:offset] + data + before[offset + count :])
        elif kind == "resize":
            inode, size = rest
            made.take([Resize(at - 1, at, inode, size)])
            oracle.change(inode, oracle.now(inode)[:size].ljust(size, b"\0"))
        else:
            made.take([sync(at, rest[0])])
            oracle.sync(rest[0])
    everything = {f"f{n}": oracle.now(n) for n in range(1, FILES + 1)}
    assert found(made.everything()) == everything
    for loss in LOSSES:
        left = found(made.crash(999, loss, seed))
        for n in range(1, FILES + 1):
            assert oracle.allows(n, left[f"f{n}"]), (loss, n)
    made.take([sync(1000, None)])
    assert made.at_rest
    assert made.unsynced_bytes == 0
    assert all(found(made.crash(1001, loss, seed)) == everything for loss in LOSSES)
