"""From the words of strace to operations: hand-made traces whose meaning is known by reasoning."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import FaultNotProven
from holdfast.verify.power.trace.calls import (
    NEVER_NS,
    Call,
    buffers,
    content,
    in_order,
    parse,
)
from holdfast.verify.power.trace.inode_operations import (
    ROOT,
    Copy,
    Edit,
    Names,
    Operation,
    Resize,
    Sync,
    Write,
)
from holdfast.verify.power.trace.replay import CallReplay
from holdfast.verify.power.trace.tree import Base

NEW = 'openat(AT_FDCWD</d>, "a", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3</d/a>'


def replay(*threads: list[str]) -> CallReplay:
    """Each thread's calls, `start end call`, in milliseconds; the directory is /d, and empty."""
    calls: list[Call] = []
    for number, lines in enumerate(threads):
        text = []
        for line in lines:
            start, end, call = line.split(" ", 2)
            took = int(end) - int(start)
            text.append(f"0.{int(start):03}000000 {call} <0.{took:03}000000>".encode())
        calls += parse(text, (1, 100 + number))
    found = CallReplay("/d", Base(Path("/nowhere")))
    found.replay(in_order(calls))
    return found


def operations(*threads: list[str]) -> list[Operation]:
    return replay(*threads).operations


def writes(*threads: list[str]) -> list[tuple[int, bytes]]:
    return [(o.offset, o.data) for o in operations(*threads) if isinstance(o, Write)]


def test_strings_come_back_as_the_bytes_that_were_written():
    assert content(rb'"hello\n\0\0011\377\"\\x, ) = 3"') == b'hello\n\0\x011\xff"\\x, ) = 3'
    assert content(b'"cut short"...') is None
    assert buffers(rb'[{iov_base="A]\"", iov_len=3}, {iov_base="B", iov_len=1}]') == b'A]"B'
    assert buffers(b'[{iov_base="A"..., iov_len=3}]') is None


def test_a_call_that_never_returned_is_kept_apart_and_a_failed_one_is_dropped():
    lines = [
        b'1.000000000 write(3</d/a>, "x", 1) = ?',
        b'1.000000000 write(3</d/a>, "y", 1) = -1 ENOSPC (No space left on device) <0.000000001>',
        b'1.000000000 write(3</d/a>, "z", 1) = ? ERESTARTSYS (To be restarted) <0.000000001>',
        b"1.000000000 +++ killed by SIGKILL +++",
        b"1.000000000 --- SIGCHLD {si_signo=SIGCHLD} ---",
    ]
    [call] = parse(lines, (1, 1))
    assert (call.result, call.end_ns) == (None, NEVER_NS)
    found = replay([f"1 2 {NEW}", '3 4 write(3</d/a>, "x", 1) = ?'])
    assert [type(o) for o in found.operations] == [Names]
    assert [(o.offset, o.data) for o in found.unfinished if isinstance(o, Write)] == [(0, b"x")]


def test_an_offset_follows_writes_reads_and_seeks():
    assert writes(
        [
            f"1 2 {NEW}",
            '3 4 write(3</d/a>, "hello", 5) = 5',
            "5 6 lseek(3</d/a>, 1, SEEK_SET) = 1",
            "7 8 read(0x3, 0x7f00, 0x2) = 0x2",
            '9 10 write(3</d/a>, "L", 1) = 1',
            '11 12 pwrite64(3</d/a>, "zz", 2, 4096) = 2',
            '13 14 write(3</d/a>, "short", 5) = 2',
        ]
    ) == [(0, b"hello"), (3, b"L"), (4096, b"zz"), (4, b"sh")]


def test_what_appends_writes_at_the_end_whoever_moved_it():
    assert writes(
        [
            '1 2 openat(AT_FDCWD</d>, "a", O_WRONLY|O_CREAT|O_APPEND, 0600) = 3</d/a>',
            '3 4 write(3</d/a>, "one", 3) = 3',
            "5 6 lseek(3</d/a>, 0, SEEK_SET) = 0",
            '7 8 write(3</d/a>, "two", 3) = 3',
            "9 10 ftruncate(3</d/a>, 1) = 0",
            '11 12 write(3</d/a>, "!", 1) = 1',
        ]
    ) == [(0, b"one"), (3, b"two"), (1, b"!")]


def test_a_duplicate_and_a_child_share_the_offset_and_another_open_does_not():
    parent = [
        f"1 2 {NEW}",
        "3 4 dup(3</d/a>) = 4</d/a>",
        '5 6 write(3</d/a>, "ab", 2) = 2',
        '7 8 write(4</d/a>, "cd", 2) = 2',
        "9 20 clone(child_stack=NULL, flags=SIGCHLD) = 101",
        '21 22 write(4</d/a>, "gh", 2) = 2',
        '23 24 openat(AT_FDCWD</d>, "a", O_RDWR) = 5</d/a>',
        '25 26 write(5</d/a>, "AB", 2) = 2',
    ]
    child = ['11 12 write(3</d/a>, "ef", 2) = 2']
    assert writes(parent, child) == [
        (0, b"ab"), (2, b"cd"), (4, b"ef"), (6, b"gh"), (0, b"AB"),
    ]  # fmt: skip


def test_a_number_that_another_thread_reuses_while_close_returns_is_the_new_file():
    first = [
        f"1 2 {NEW}",
        "3 4 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD}, 88) = 101",
        "10 20 close(3</d/a>) = 0",
    ]
    second = [
        '11 15 openat(AT_FDCWD</d>, "b", O_RDWR|O_CREAT, 0600) = 3</d/b>',
        '16 17 write(3</d/b>, "bbb", 3) = 3',
        "18 19 lseek(3</d/b>, 0, SEEK_SET) = 0",
        '21 22 write(3</d/b>, "B", 1) = 1',
    ]
    found = [o for o in operations(first, second) if isinstance(o, Write)]
    assert [(o.inode, o.offset, o.data) for o in found] == [(2, 0, b"bbb"), (2, 0, b"B")]


def test_a_thread_uses_what_another_opened_at_the_offset_where_that_one_left_it():
    first = [
        "1 2 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD}, 88) = 101",
        f"3 4 {NEW}",
        '5 6 write(3</d/a>, "hello", 5) = 5',
        "7 8 lseek(3</d/a>, 1, SEEK_SET) = 1",
    ]
    second = ['9 10 write(3</d/a>, "E", 1) = 1']
    assert writes(first, second) == [(0, b"hello"), (1, b"E")]


def test_exec_closes_what_was_marked_so_that_a_socket_of_that_number_is_no_file():
    parent = [
        f"1 2 {NEW}",
        "3 4 vfork() = 101",
        '30 31 write(3</d/a>, "x", 1) = 1',
    ]
    child = [
        '5 6 execve("/bin/sh", ["sh"], 0x7f00 /* 1 var */) = 0',
        "7 8 read(0x3, 0x7f00, 0x10) = 0x10",
    ]
    assert writes(parent, child) == [(0, b"x")]


def test_names_are_changed_in_one_step_and_relative_to_where_the_process_is():
    found = operations(
        [
            f"1 2 {NEW}",
            '3 4 mkdir("sub", 0700) = 0',
            '5 6 rename("a", "sub/b") = 0',
            '7 8 chdir("sub") = 0',
            '9 10 link("b", "c") = 0',
            '11 12 unlinkat(AT_FDCWD</d/sub>, "b", 0) = 0',
        ]
    )
    edits = [o.edits for o in found if isinstance(o, Names)]
    assert edits == [
        (Edit(ROOT, "a", 1),),
        (Edit(ROOT, "sub", 2),),
        (Edit(ROOT, "a", None), Edit(2, "b", 1)),
        (Edit(2, "c", 1),),
        (Edit(2, "b", None),),
    ]


def test_truncating_allocating_copying_and_syncing_are_what_they_are():
    found = operations(
        [
            f"1 2 {NEW}",
            '3 4 write(3</d/a>, "hello", 5) = 5',
            '5 6 openat(AT_FDCWD</d>, "a", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 4</d/a>',
            "7 8 fallocate(4</d/a>, 0, 0, 100) = 0",
            "9 10 copy_file_range(3</d/a>, [1] => [4], 4</d/a>, [50] => [53], 3, 0) = 3",
            "9 10 sendfile(4</d/a>, 3</d/a>, [2] => [4], 2) = 2",
            "11 13 fdatasync(3</d/a>) = 0",
            "14 15 syncfs(3</d/a>) = 0",
        ]
    )
    ms = 1_000_000
    assert found[2:] == [
        Resize(5 * ms, 6 * ms, 1, 0),
        Resize(7 * ms, 8 * ms, 1, 100),
        Copy(9 * ms, 10 * ms, 1, 50, 1, 1, 3),
        Copy(9 * ms, 10 * ms, 1, 0, 1, 2, 2),
        Sync(11 * ms, 13 * ms, 1),
        Sync(14 * ms, 15 * ms, None),
    ]


def test_a_write_that_waits_for_the_disk_is_marked():
    found = operations(
        [
            '1 2 openat(AT_FDCWD</d>, "a", O_WRONLY|O_CREAT|O_DSYNC, 0600) = 3</d/a>',
            '3 4 write(3</d/a>, "x", 1) = 1',
            '5 6 openat(AT_FDCWD</d>, "a", O_WRONLY) = 4</d/a>',
            '7 8 pwritev2(4</d/a>, [{iov_base="y", iov_len=1}], 1, 0, RWF_DSYNC) = 1',
            '9 10 pwrite64(4</d/a>, "z", 1, 0) = 1',
        ]
    )
    assert [o.synced for o in found if isinstance(o, Write)] == [True, True, False]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("mmap(NULL, 100, PROT_READ|PROT_WRITE, MAP_SHARED, 3</d/a>, 0) = 0x7f00", "mmap"),
        ("io_uring_setup(8, {flags=0}) = 5", "io_uring"),
        ('rename("/elsewhere", "/d/b") = 0', "elsewhere"),
        ("sendfile(3</d/a>, 9</x>, [0] => [5], 5) = 5", "elsewhere"),
        ("splice(9<pipe:[1]>, NULL, 3</d/a>, NULL, 5, 0) = 5", "splice"),
        ('write(3</d/a>, "x"..., 9) = 9', "longer"),
        ("fallocate(3</d/a>, FALLOC_FL_COLLAPSE_RANGE, 0, 10) = 0", "cut out"),
    ],
)
def test_what_no_call_shows_leaves_the_verdict_unknown(call: str, words: str):
    with pytest.raises(FaultNotProven, match=words):
        replay([f"1 2 {NEW}", f"3 4 {call}"])


def test_shared_memory_of_sqlite_has_no_part_in_it():
    found = operations(
        [
            '1 2 openat(AT_FDCWD</d>, "x-shm", O_RDWR|O_CREAT, 0600) = 3</d/x-shm>',
            "3 4 mmap(NULL, 100, PROT_READ|PROT_WRITE, MAP_SHARED, 3</d/x-shm>, 0) = 0x7f00",
            '5 6 write(3</d/x-shm>, "x", 1) = 1',
        ]
    )
    assert found == []
