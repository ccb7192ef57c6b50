"""Group commit, busy neighbours, failing disks, forks and interrupts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Conflict, EngineUnreachable, OutcomeUnknown, Store, StoreClosed, codec
from holdfast.backends.sqlite import backend, statements
from holdfast.backends.sqlite.writer import Pending
from holdfast.commands import Append
from tests.contract.harness import say, texts
from tests.waiting import wait_until


@pytest.fixture
def path(disk_path: Path) -> Path:
    return disk_path / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with holdfast.connect(f"sqlite:///{path}?busy_timeout_s=0.2") as store:
        yield store


def writer_of(store: Store) -> Any:
    return store._backend._database.writer  # type: ignore[attr-defined]


def test_concurrent_appends_share_commits(store: Store):
    writer = writer_of(store)
    commit, groups = writer.commit, []

    def counted(group: Sequence[Pending]) -> None:
        groups.append(len(group))
        commit(group)

    writer.commit = counted

    def write(number: int) -> None:
        for turn in range(25):
            store.append(f"s{number % 3}", say(f"{number}:{turn}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(groups) == 400
    assert len(groups) < 200, f"{len(groups)} commits for 400 writes"
    assert sum(len(store.history(f"s{number}")) for number in range(3)) == 400


def test_a_refused_write_does_not_take_its_group_with_it(store: Store):
    group = [
        Pending(Append(b"s", [codec.encode(say("a"))])),
        Pending(Append(b"s", [codec.encode(say("b"))], expect=7)),
        Pending(Append(b"s", [codec.encode(say("c"))], expect=1)),
        Pending(Append(b"s", [codec.encode(say("d"))], key=b"k" * 16)),
        Pending(Append(b"s", [codec.encode(say("d"))], key=b"k" * 16)),
    ]
    writer_of(store).commit(group)
    assert isinstance(group[1].error, Conflict)
    assert [group[n].reply.first for n in (0, 2, 3, 4)] == [1, 2, 3, 3]
    assert texts(store.history("s")) == ["a", "c", "d"]


def test_a_long_group_is_written_in_bulk_and_stays_in_order(store: Store):
    for size in (1, 2, 3, 31, 32, 33, 100):
        store.append("s", [say(f"{size}.{part}") for part in range(size)])
    expected = [f"{size}.{part}" for size in (1, 2, 3, 31, 32, 33, 100) for part in range(size)]
    assert texts(store.history("s")) == expected


def test_another_writer_that_holds_the_lock_too_long_is_named(store: Store, path: Path):
    store.append("s", say("before"))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    begin = time.monotonic()
    with pytest.raises(EngineUnreachable, match="kept the lock"):
        store.append("s", say("x"), key="k")
    assert 0.2 <= time.monotonic() - begin < 10
    assert texts(store.history("s")) == ["before"], "readers do not wait for writers"
    other.execute("ROLLBACK")
    other.close()
    assert store.append("s", say("x"), key="k").first == 2


def test_waiting_for_a_neighbour_succeeds_when_it_lets_go_in_time(path: Path):
    with holdfast.connect(f"sqlite:///{path}?busy_timeout_s=10") as store:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=store.append, args=("s", say("x")))
        thread.start()
        wait_until(store._backend._writing.locked)  # type: ignore[attr-defined]
        other.execute("COMMIT")
        other.close()
        thread.join(10)
        assert texts(store.history("s")) == ["x"]


def test_an_interrupt_in_the_middle_of_a_write_leaves_nothing_and_a_usable_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    real = statements.WRITES[Append]

    def interrupted(ledger: Any, command: Any, *rest: Any) -> Any:
        real(ledger, command, *rest)
        raise KeyboardInterrupt

    store.append("s", say("before"))
    with monkeypatch.context() as patch:
        patch.setitem(statements.WRITES, Append, interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append("s", say("never"))
    assert store.append("s", say("after")).first == 2
    assert texts(store.history("s")) == ["before", "after"]


def test_closing_while_others_write_loses_no_acknowledged_message(path: Path):
    store = holdfast.connect(f"sqlite:///{path}")
    acknowledged: list[str] = []

    def write(number: int) -> None:
        for turn in range(1000):
            try:
                store.append("s", say(f"{number}:{turn}"))
            except StoreClosed:
                return
            acknowledged.append(f"{number}:{turn}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(acknowledged) > 50)
    store.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    with holdfast.connect(f"sqlite:///{path}") as again:
        assert sorted(texts(again.history("s"))) == sorted(acknowledged)


# The async API: a thread writes for the tasks.


def test_tasks_write_although_no_thread_can_be_started(path: Path, monkeypatch: pytest.MonkeyPatch):
    """A container's limit of processes, or an interpreter that ends."""
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "holdfast-sqlite-writer":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def write() -> list[Any]:
        async with await holdfast.connect_async(f"sqlite:///{path}") as store:
            monkeypatch.setattr(threading.Thread, "start", refused)
            async with asyncio.timeout(5):
                await asyncio.gather(*(store.append("s", say(f"{n}")) for n in range(3)))
            monkeypatch.undo()
            async with asyncio.timeout(5):
                await store.append("s", say("a thread again"))
            return texts(await store.history("s"))

    assert sorted(asyncio.run(write())) == ["0", "1", "2", "a thread again"]


class Interrupted(Exception):
    """What a signal's handler raises inside a task."""


class Signals:
    """Raises at a point of a call, and once more when so many functions were called after it."""

    def __init__(self, point: int, again_after: int) -> None:
        self.left, self.again_after = point, again_after

    def first(self, frame: Any, event: str, _argument: Any) -> None:
        if event in {"call", "c_return"} and _is_ours(frame):  # where signals are handled
            self.left -= 1
            if self.left == 0:
                raise Interrupted  # and CPython drops this function, but not the one below

    def second(self, frame: Any, _event: str, _argument: Any) -> None:
        if self.left == 0 and _is_ours(frame):
            self.again_after -= 1
            if self.again_after == 0:
                raise Interrupted


def _is_ours(frame: Any) -> bool:
    return "holdfast/backends" in frame.f_code.co_filename


async def interrupted_at(path: Path, signals: Signals) -> bool:
    """Whether a write could be interrupted there; the store writes at once afterwards."""
    store = await holdfast.connect_async(f"sqlite:///{path}")
    await store.append("s", say("the thread is there"))
    sys.setprofile(signals.first)
    sys.settrace(signals.second)
    try:
        await store.append("s", say("interrupted"))
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
        sys.settrace(None)
    async with asyncio.timeout(5):
        await asyncio.gather(*(store.append("s", say("next")) for _ in range(3)))
    stored = texts(await store.history("s"))
    assert stored.count("next") == 3
    assert stored.count("interrupted") <= 1
    await store.close()
    return signals.left == 0


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("again_after", [0, 1, 2, 3])
def test_a_task_that_is_interrupted_at_any_point_leaves_the_way_free(
    disk_path: Path, again_after: int
):
    """Also by a second signal, while it deals with the first."""

    async def every_point() -> int:
        point = 1
        while await interrupted_at(disk_path / f"{point}.db", Signals(point, again_after)):
            point += 1
        return point

    assert asyncio.run(every_point()) > 10, "it was hardly interrupted at all"


def test_a_task_waits_no_longer_than_its_bound_for_a_disk_that_is_stuck(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What was not begun is not done, what was is unknown; both are told."""
    monkeypatch.setattr(backend, "QUEUE_TIMEOUT_S", 0.2)

    async def write() -> Any:
        store = await holdfast.connect_async(f"sqlite:///{path}")
        await store.append("s", say("before"))
        inner: Any = store._backend._backend  # type: ignore[attr-defined]
        group = inner._group
        with inner._writing:
            async with asyncio.timeout(10):
                first = asyncio.ensure_future(store.append("s", say("begun")))
                while not group._under_way:  # noqa: ASYNC110 - set by a thread, without an event
                    await asyncio.sleep(0)
                said = await asyncio.gather(
                    first, store.append("s", say("queued")), return_exceptions=True
                )
        await store.close()
        return said

    begun, queued = asyncio.run(write())
    assert isinstance(begun, OutcomeUnknown)
    assert isinstance(queued, EngineUnreachable)


def test_expired_sessions_are_swept_while_others_write(store: Store, path: Path):
    store.append("gone", [say("x")] * 2500, ttl_s=0.01)
    store.append("kept", say("x"), ttl_s=3600)
    reader = apsw.Connection(str(path))

    def swept() -> bool:
        store.append("busy", say("x"))
        [(left,)] = reader.execute(
            "SELECT count(*) FROM messages WHERE place >> 32 = "
            "(SELECT id FROM sessions WHERE name = x'676f6e65')"
        ).fetchall()
        return left == 0

    wait_until(swept)
    assert store.history("gone").state is holdfast.SessionState.EXPIRED
    assert store.stat("gone").last == 2500
    assert len(store.history("kept")) == 1
    reader.close()


def test_a_session_that_has_given_all_its_numbers_says_so_and_keeps_what_it_has(
    store: Store, path: Path
):
    store.append("s", say("first"))
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE messages SET place = 1 << 32 | 0xfffffffe")
    connection.execute("UPDATE sessions SET floor = 0xfffffffd")
    connection.close()
    for write in (store.append, store.rewrite):
        with pytest.raises(holdfast.EngineFull, match="Go on in a new session"):
            write("s", [say("a"), say("b")])
    assert store.append("s", say("last")).last == 0xFFFFFFFF
    assert texts(store.history("s")) == ["first", "last"]


def test_a_store_does_not_cross_a_fork(path: Path):
    code = """
import os, sys
import holdfast
from holdfast import Message
store = holdfast.connect(sys.argv[1])
store.append("s", Message("user", "parent"))
child = os.fork()
if not child:
    try:
        store.append("s", Message("user", "child"))
    except holdfast.StoreClosed as error:
        assert "connect again in the child" in str(error)
        store.close()
        with holdfast.connect(sys.argv[1]) as own:
            own.append("s", Message("user", "child"))
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
store.append("s", Message("user", "parent again"))
print([m.content for m in store.history("s")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{path}"], capture_output=True, text=True
    )
    assert done.stdout == "['parent', 'child', 'parent again']\n", done.stderr


FAILING_SYNC = """
import sys
import apsw
import holdfast
from holdfast import Message

class Disk(apsw.VFS):
    fails = False
    def __init__(self): super().__init__("failing", "unix", makedefault=True)
    def xOpen(self, name, flags): return File(name, flags)

class File(apsw.VFSFile):
    def __init__(self, name, flags): super().__init__("unix", name, flags)
    def xSync(self, flags):
        if Disk.fails:
            raise apsw.IOError()
        return super().xSync(flags)

disk = Disk()
store = holdfast.connect(sys.argv[1])
store.append("s", Message("user", "before"))
Disk.fails = True
try:
    store.append("s", Message("user", "?"), key="k")
except holdfast.OutcomeUnknown as error:
    print("unknown", error.operation, "same key" in str(error))
Disk.fails = False
store.append("s", Message("user", "?"), key="k")
store.append("s", Message("user", "after"))
print([m.content for m in store.history("s")], [m.seq for m in store.history("s")])
"""


def test_a_write_whose_sync_failed_is_never_acknowledged(path: Path):
    """The engine is real; only the operating system's answer to fsync is changed."""
    done = subprocess.run(
        [sys.executable, "-c", FAILING_SYNC, f"sqlite:///{path}"], capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "unknown append True",
        "['before', '?', 'after'] [1, 2, 3]",
    ], done.stderr


def test_a_retry_does_not_keep_its_store_from_writing_after_a_neighbour_wrote(
    store: Store, path: Path
):
    store.append("s", [say("a")], key="k")
    store.append("s", [say("a")], key="k")
    with holdfast.connect(f"sqlite:///{path}") as neighbour:
        neighbour.append("s", [say("b")])
    assert store.append("s", [say("c")]).first == 3
    assert texts(store.history("s")) == ["a", "b", "c"]
