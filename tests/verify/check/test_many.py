"""Many threads or tasks in one client: what only a service does, under load, kills and power cuts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from holdfast.verify import Target
from holdfast.verify.adapters import plain
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult
from holdfast.verify.scenarios.power import why_not
from tests.verify.check.checking import Notes, tell

STORES = "tests.verify.check.many_stores"


def run(name: str, **asked: Any) -> CheckResult:
    return check(CheckOptions(target=f"{STORES}:{name}", engine="sqlite", **asked), Notes())


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_writes_of_a_group_that_are_not_synced_are_lost_at_a_power_cut():
    result = run("groups_unsynced", seed=7, promises=("durable",), faults=("power",))
    assert result.promises["durable"].verdict is Verdict.BROKEN, tell(result)


def test_tasks_that_share_one_transaction_tear_one_another():
    result = run("tasks_one_transaction", seed=7, promises=("atomic",), faults=("none",))
    assert result.promises["atomic"].verdict is Verdict.BROKEN, tell(result)


@pytest.mark.parametrize("name", ["grouped", "tasks_one_by_one"])
def test_sound_stores_that_are_shared_raise_no_alarm(name: str):
    promises = ("durable", "atomic", "ordered", "snapshot", "fresh", "exactly-once")
    faults = ("kill",) if why_not() else ("kill", "power")
    result = run(name, seed=7, promises=promises, faults=faults, time_s=15)
    assert result.verdict is Verdict.KEPT, tell(result)


class Loops:
    """An async store that is opened without an event loop, and notes in which it is called."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    async def append(self, _session: str, _messages: list[Any]) -> None:
        self.seen.add(id(asyncio.get_running_loop()))

    async def history(self, _session: str, limit: int | None) -> list[Any]:
        return [][:limit]

    async def forget(self, session: str) -> None: ...


def test_threads_that_ask_first_at_once_get_one_event_loop(monkeypatch: pytest.MonkeyPatch):
    store, both = Loops(), threading.Barrier(2)

    class Slow(plain.EventLoopThread):
        def __init__(self) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.5)  # broken where only one makes it
            super().__init__()

    monkeypatch.setattr(plain, "EventLoopThread", Slow)
    with plain.Client(Target(open=lambda: store), shared=True) as client:
        threads = [threading.Thread(target=client.append, args=("s", [])) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(store.seen) == 1


def test_a_call_that_takes_too_long_is_cancelled_and_told():
    class Waits(Loops):
        cancelled = False

        async def history(self, _session: str, limit: int | None) -> list[Any]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            return [][:limit]

    store = Waits()
    with plain.Client(Target(open=lambda: store), patience_s=0.05) as client:
        with pytest.raises(TimeoutError):
            client.history("s")
        client.append("s", [])
    assert store.cancelled
