"""Users' stores with a long-term memory, as `holdfast check …:NAME --engine sqlite` takes them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import replace
from typing import Any

from holdfast.verify import Index, Target
from tests.twins import broken_recall
from tests.twins.recalling import SqliteMemory


def _target(kind: type[SqliteMemory], engine: Any) -> Target:
    view = _WithPath(engine.url.removeprefix("sqlite:///"))
    with contextlib.suppress(sqlite3.OperationalError):  # the tables are there
        kind.prepare(view)
    return Target(
        open=lambda: kind(view), engine=engine, claims=kind.claims, index=kind.index(view)
    )


class _WithPath:
    """What these stores want to know of an engine."""

    def __init__(self, path: str) -> None:
        self.path = path


def sound(engine: Any) -> Target:
    return _target(SqliteMemory, engine)


def without_index(engine: Any) -> Target:
    return replace(sound(engine), index=Index())


def dual_write(engine: Any) -> Target:
    return _target(broken_recall.DualWrite, engine)


def mixed_models(engine: Any) -> Target:
    return _target(broken_recall.MixedModels, engine)


def words_only(engine: Any) -> Target:
    return _target(broken_recall.WordsOnly, engine)


def retry_indexes(engine: Any) -> Target:
    return _target(broken_recall.RetryIndexes, engine)


def summarizes_all(engine: Any) -> Target:
    return _target(broken_recall.SummarizesAll, engine)


def summary_twice(engine: Any) -> Target:
    return _target(broken_recall.SummaryTwice, engine)


def summary_never(engine: Any) -> Target:
    return _target(broken_recall.SummaryNever, engine)


def summary_stays(engine: Any) -> Target:
    return _target(broken_recall.SummaryStays, engine)


def memory_comes_back(engine: Any) -> Target:
    return _target(broken_recall.MemoryComesBack, engine)


def dies_in_a_summary(engine: Any) -> Target:
    """Its process ends in the middle of the questions."""

    class Dies(SqliteMemory):
        def summarize(self, session: str) -> None:
            del session
            os._exit(9)

    return _target(Dies, engine)


def claims_only(engine: Any) -> Target:
    target = sound(engine)
    made = target.open

    def open_store() -> Any:
        store = made()
        return type(
            "LogOnly",
            (),
            {name: getattr(store, name) for name in ("append", "history", "forget", "close")},
        )()

    return replace(target, open=open_store)
