"""One call of either API: made, timed, and put on record. Anything unforeseen is a finding."""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import os
import sys
import time
from collections import Counter
from typing import Any

from holdfast import Ack, Conflict, History, Message, NotApplied, OutcomeUnknown, UsageError
from holdfast.errors import StoreClosed
from tests.rounds.judge import DONE, NOT_DONE, UNKNOWN, Record
from tests.rounds.plan import Operation, Plan

BOUND_S = float(os.environ.get("HOLDFAST_ROUNDS_BOUND_S", "20"))
"""No call takes longer, however busy the machine is: nothing here waits for anything but a disk."""


NAMESPACE = f"rounds-{os.getpid()}-{time.time_ns()}"
"""Of this process: a round that is repeated on the same data finds nothing of itself there."""


class Found(Exception):
    """A promise was broken; the text is the evidence."""


class Stuck(Found):
    """A call did not return within its bound."""


class Ledger:
    """The records of one round, from all of its workers."""

    def __init__(self, plan: Plan, clock: itertools.count[int], outcomes: Counter[str]) -> None:
        self.plan = plan
        self.records: list[Record] = []
        self._clock = clock
        self._outcomes = outcomes

    def begin(self) -> int:
        """The tick before a call."""
        return next(self._clock)

    def done(self, operation: Operation, began: int, result: Any) -> None:
        """The call returned."""
        record = Record(operation, began, next(self._clock), DONE)
        if isinstance(result, Ack):
            record.first, record.last, record.repeated = result.first, result.last, result.repeated
        if isinstance(result, History):
            record.rows = [(message.seq or 0, str(message.content)) for message in result]
        self.records.append(record)
        self._outcomes[f"{operation.kind} done"] += 1

    def failed(
        self, operation: Operation, began: int, error: BaseException, *, cancelled: bool = False
    ) -> None:
        """The call raised: what that says about its write."""
        cut_short = cancelled and isinstance(error, asyncio.CancelledError | TimeoutError)
        outcome = UNKNOWN if cut_short else self._outcome(operation, error)
        self.records.append(Record(operation, began, next(self._clock), outcome))
        self._outcomes[f"{operation.kind} {type(error).__name__}"] += 1

    def _outcome(self, operation: Operation, error: BaseException) -> str:
        if isinstance(error, Conflict) and operation.expect is not None:
            return NOT_DONE
        if self.plan.closes and isinstance(error, StoreClosed):
            return NOT_DONE
        if isinstance(error, OutcomeUnknown | NotApplied | UsageError):
            raise Found(f"nothing was broken, and {operation} says {error!r}") from error
        raise Found(f"no error of ours: {operation} raised {error!r}") from error


def message(texts: tuple[str, ...]) -> list[Message]:
    return [Message("user", text) for text in texts]


def call(store: Any, operation: Operation) -> Any:
    """The call itself: a result, or for an async store an awaitable of one."""
    match operation.kind:
        case "append":
            return store.append(
                operation.session,
                message(operation.texts),
                key=operation.key,
                expect=operation.expect,
            )
        case "rewrite":
            return store.rewrite(
                operation.session, message(operation.texts), expect=operation.expect
            )
        case "history":
            return store.history(operation.session)
        case "forget":
            return store.forget(operation.session)
        case "close":
            return store.close()
    raise AssertionError(operation)


def dump_stacks() -> None:
    """Where every thread and every task of this process stands."""
    sys.stdout.flush()
    faulthandler.dump_traceback(all_threads=True)
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return
    for task in tasks:
        print(f"\n{task.get_name()}:", file=sys.stderr)
        task.print_stack(file=sys.stderr)
