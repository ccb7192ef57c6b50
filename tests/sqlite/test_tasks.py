"""Tasks of one or several event loops on one SQLite store: threads that serve them, and bounds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import OutcomeUnknown
from holdfast.backends import writes
from holdfast.backends.sqlite import backend
from tests.contract.harness import say, texts
from tests.waiting import wait_until

WRITER = "holdfast-sqlite-writer"


@pytest.fixture
def url(disk_path: Path) -> str:
    return f"sqlite:///{disk_path / 'memory.db'}"


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == WRITER]


def test_a_child_that_reads_with_the_store_of_its_parent_is_told_so(url: str):
    """The threads that read are not there in the child, and nobody would ever answer."""
    code = """
import asyncio, os, sys
import holdfast
from holdfast import Message

async def begin():
    store = await holdfast.connect_async(sys.argv[1])
    await store.append("s", Message("user", "parent"))
    await store.history("s")  # from now on a thread is there
    return store

async def read():
    async with asyncio.timeout(10):
        await store.history("s")

store = asyncio.run(begin())
if not (child := os.fork()):
    try:
        asyncio.run(read())
    except BaseException as error:
        print(type(error).__name__, "connect again in the child" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "StoreClosed True\n", done.stderr


def test_all_works_although_no_thread_can_be_started(url: str, monkeypatch: pytest.MonkeyPatch):
    """A container's limit of processes."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def write_and_read() -> list[Any]:
        async with await holdfast.connect_async(url) as store:
            await asyncio.gather(*(store.append("s", say("x")) for _ in range(3)))
            read = texts(await store.history("s"))
        monkeypatch.undo()  # asyncio itself starts one at the end
        return read

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert asyncio.run(write_and_read()) == ["x"] * 3


def test_two_event_loops_that_write_first_at_once_share_one_thread(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    store = asyncio.run(holdfast.connect_async(url))
    start, two = threading.Thread.start, threading.Barrier(2)

    def together(thread: threading.Thread) -> None:
        if thread.name == WRITER:
            with suppress(threading.BrokenBarrierError):  # as it should be: no second one starts
                two.wait(1)
        start(thread)

    def write() -> None:
        asyncio.run(asyncio.wait_for(store.append("s", say("x")), 10))

    monkeypatch.setattr(threading.Thread, "start", together)
    loops = [threading.Thread(target=write) for _ in range(2)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(20)
    assert len(writers()) == 1
    asyncio.run(store.close())
    wait_until(lambda: not writers())


def test_a_thread_that_nobody_knows_any_more_ends(url: str, monkeypatch: pytest.MonkeyPatch):
    """An interrupt while it was started had its store think that there is none."""

    async def write() -> None:
        async with await holdfast.connect_async(url) as store:
            await store.append("s", say("x"))
            [first] = writers()
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "is_alive", lambda _: False)
                await store.append("s", say("x"))
            await asyncio.to_thread(wait_until, lambda: not first.is_alive())
            assert len(writers()) == 1
            async with asyncio.timeout(5):
                await store.append("s", say("x"))

    asyncio.run(write())


def test_a_write_between_two_looks_is_bounded_as_well(url: str, monkeypatch: pytest.MonkeyPatch):
    """The timer that looks after writes had ended, and was thought to be there for a while."""
    monkeypatch.setattr(backend, "QUEUE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(backend, "LOOK_S_MAX", 0.5)
    looked = threading.Event()
    look = backend.SqliteBackend._look

    def noted(self: Any, loop: Any) -> None:
        look(self, loop)
        looked.set()

    monkeypatch.setattr(backend.SqliteBackend, "_look", noted)

    async def write() -> None:
        store = await holdfast.connect_async(url)
        await store.append("s", say("x"))
        assert await asyncio.to_thread(looked.wait, 10)
        with store._backend._backend._writing:  # type: ignore[attr-defined]
            async with asyncio.timeout(10):
                with pytest.raises(OutcomeUnknown):
                    await store.append("s", say("the disk is stuck"))
        await store.close()

    asyncio.run(write())


def test_an_outcome_that_an_interrupt_swallowed_is_told_again_although_others_write(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    wake = writes.ServedWrite.wake
    swallowed: list[Any] = []

    def interrupted(write: Any) -> None:
        if not swallowed and write.payload.command.session.startswith(b"victim"):
            swallowed.append(write)
            raise RuntimeError("from a signal's handler")
        wake(write)

    monkeypatch.setattr(writes.ServedWrite, "wake", interrupted)

    async def write() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with await holdfast.connect_async(url) as store:
            enough = False

            async def others() -> None:
                while not enough:
                    await store.append("s", say("x"))

            tasks = [asyncio.ensure_future(others()) for _ in range(200)]
            victim = asyncio.ensure_future(store.append("victim", say("x")))
            await asyncio.wait([victim], timeout=5)
            enough = True
            assert victim.done()
            await asyncio.gather(*tasks)
            assert swallowed

    asyncio.run(write())


def test_an_event_loop_that_does_not_run_is_not_told_again_and_again(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(holdfast.connect_async(url))
    tell, told = loop.call_soon_threadsafe, []

    def counted(*args: Any, **more: Any) -> Any:
        told.append(args)
        return tell(*args, **more)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

    async def begin() -> asyncio.Task[Any]:
        task = asyncio.ensure_future(store.append("s", say("x")))
        await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(begin())
    wait_until(lambda: bool(told))
    time.sleep(1)  # what must not happen: ten more in this time
    assert len(told) <= 2
    assert loop.run_until_complete(asyncio.wait_for(task, 10)).first == 1
    loop.run_until_complete(store.close())
    loop.close()
