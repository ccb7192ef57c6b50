"""Rounds of tasks on one event loop: the async API."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.rounds.calls import BOUND_S, Ledger, Stuck, call
from tests.rounds.plan import Operation, Plan, Worker


async def run_round(plan: Plan, stores: list[Any], ledger: Ledger) -> None:
    """Every worker of the plan, to its end."""
    tasks = [asyncio.create_task(_work(worker, stores, ledger)) for worker in plan.workers]
    cancels = [
        asyncio.create_task(_cancel(task, worker))
        for task, worker in zip(tasks, plan.workers, strict=True)
        if worker.cancel_turns is not None or worker.cancel_us is not None
    ]
    await within([*tasks, *cancels], "a call")
    for task in tasks:
        if not task.cancelled():
            task.result()


async def within(tasks: list[asyncio.Task[Any]], what: str) -> None:
    """Wait for tasks, not for ever."""
    _, pending = await asyncio.wait(tasks, timeout=BOUND_S)
    if pending:
        raise Stuck(f"{what} did not return within {BOUND_S:g} s: {pending}")


async def _work(worker: Worker, stores: list[Any], ledger: Ledger) -> None:
    await _pause(worker.pause_turns, worker.pause_us)
    for operation in worker.operations:
        began = ledger.begin()
        try:
            result = await _call(stores[worker.store], operation, worker.call_timeout_s)
        except BaseException as error:
            ledger.failed(operation, began, error, cancelled=worker.is_cancelled)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            ledger.done(operation, began, result)


async def _call(store: Any, operation: Operation, timeout_s: float | None) -> Any:
    if timeout_s is None or operation.kind == "close":
        return await call(store, operation)
    return await asyncio.wait_for(call(store, operation), timeout_s)


async def _cancel(task: asyncio.Task[Any], worker: Worker) -> None:
    await _pause(worker.cancel_turns or 0, worker.cancel_us or 0)
    task.cancel()


async def _pause(turns: int, time_us: int) -> None:
    """By turns of the loop, since its own timers are no finer than a millisecond."""
    for _ in range(turns):
        await asyncio.sleep(0)
    until_s = time.perf_counter() + time_us / 1e6
    while time.perf_counter() < until_s:  # noqa: ASYNC110 - it is a moment that is waited for
        await asyncio.sleep(0)
