"""LangGraph's checkpointers as the two ends of a migration: what there is, and whose writes came first."""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver

from holdfast.connection import connect, existing
from holdfast.contract import Store
from holdfast.errors import EngineUnreachable, UsageError
from holdfast.integrations import framework_operations
from holdfast.integrations.checkpoint_log import FIELD, WRITES, Place
from holdfast.integrations.checkpoint_steps import Threads
from holdfast.integrations.framework_operations import StepRunner
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.migration.found import GONE
from holdfast.integrations.migration.opaque_values import OpaqueValues
from holdfast.integrations.migration.sources import CHECKPOINTERS
from holdfast.integrations.migration.sql import LOCK_WAIT_S, file_uri, path_in, read_only_uri
from holdfast.model import Durability
from holdfast.secrets import SecretUrl


class End(Protocol):
    """A checkpointer, and what its interface does not tell."""

    saver: BaseCheckpointSaver[Any]

    def threads(self) -> Sequence[str]:
        """Every thread."""

    def places(self, thread: str) -> Sequence[Place]:
        """Its checkpoints, the oldest first."""

    def paths(self, thread: str, place: Place) -> Mapping[str, str]:
        """Where each task stands in its graph, which is the order of the writes on a checkpoint."""

    def is_gone(self, thread: str) -> bool:
        """Whether it was erased for good."""


class HoldfastEnd:
    """Our saver."""

    def __init__(self, store: Store) -> None:
        self._store, self._runner, self._threads = store, StepRunner(store), Threads()
        self.saver: BaseCheckpointSaver[Any] = HoldfastSaver(store, serde=OpaqueValues())

    def threads(self) -> Sequence[str]:
        """Every live session of the namespace."""
        return self._runner.run(framework_operations.names())

    def places(self, thread: str) -> Sequence[Place]:
        """By their numbers."""
        catalog = self._runner.run(self._threads.open(thread))
        return [entry.place for entry in reversed(catalog.newest_first(None))]

    def paths(self, thread: str, place: Place) -> Mapping[str, str]:
        """As the records of the writes say it."""
        catalog = self._runner.run(self._threads.open(thread))
        numbers = catalog.writes.get(place, ())
        found = [one.extra[FIELD] for one in self._store.messages(thread, numbers)]
        return {one["task_id"]: one["task_path"] for one in found if WRITES in one}

    def is_gone(self, thread: str) -> bool:
        """By the tombstone."""
        return self._store.stat(thread).state in GONE


class TableEnd:
    """SqliteSaver or PostgresSaver."""

    def __init__(
        self, saver: BaseCheckpointSaver[Any], ask: Callable[..., Any], writes: str
    ) -> None:
        self.saver, self._ask, self._writes = saver, ask, writes

    def threads(self) -> Sequence[str]:
        """Those with a checkpoint."""
        rows = self._ask("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")
        return [str(row[0]) for row in rows]

    def places(self, thread: str) -> Sequence[Place]:
        """By their ids, as these savers go."""
        rows = self._ask(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? "
            "ORDER BY checkpoint_id",
            thread,
        )
        return [(str(ns), str(checkpoint_id)) for ns, checkpoint_id in rows]

    def paths(self, thread: str, place: Place) -> Mapping[str, str]:
        """Earlier releases of the savers kept none."""
        if not self._writes:
            return {}
        where = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        query = f"SELECT task_id, task_path FROM {self._writes} {where}"  # noqa: S608 - a constant
        return {task: path or "" for task, path in self._ask(query, thread, *place)}

    def is_gone(self, thread: str) -> bool:  # noqa: ARG002 - as the others
        """They do not know."""
        return False


def open_end(
    kind: str | None, url: str, *, reads: bool, namespace: str, require: Durability
) -> AbstractContextManager[End]:
    """An end, to be read only or to be written to; None is a store of ours."""
    if kind is None:
        return _holdfast(existing(url) if reads else url, namespace, require)
    return _ENDS[kind](url, reads=reads)


@contextmanager
def _holdfast(url: str, namespace: str, require: Durability) -> Iterator[End]:
    with connect(url, namespace=namespace, require=require) as store:
        yield HoldfastEnd(store)


def _saver(name: str) -> Any:
    module, _, kind = name.partition(":")
    try:
        return getattr(importlib.import_module(module), kind)
    except ImportError as error:
        package = module.replace("langgraph.checkpoint.", "langgraph-checkpoint-")
        raise UsageError(f"{error}. To have it: pip install {package}") from error


@contextmanager
def _sqlite(url: str, *, reads: bool) -> Iterator[End]:
    kind = _saver("langgraph.checkpoint.sqlite:SqliteSaver")
    path = Path(path_in(url)).absolute()
    uri = read_only_uri(path) if reads else file_uri(path)
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    try:
        saver = kind(connection, serde=OpaqueValues())

        def ask(query: str, *values: Any) -> Any:
            return connection.execute(query, values).fetchall()

        columns = [row[1] for row in ask("PRAGMA table_info(writes)")]
        if reads:  # its tables are there, or it is no source
            saver.is_setup, saver._has_task_path = True, "task_path" in columns  # noqa: SLF001 - else it writes
            if not columns:
                raise UsageError(f"{path} has no checkpoints of LangGraph")
        else:
            saver.setup()
            columns.append("task_path")
        yield TableEnd(saver, ask, "writes" if "task_path" in columns else "")
    except sqlite3.Error as error:
        raise EngineUnreachable(
            f"{path} cannot be used ({error}). Run this again to go on", operation="migrate"
        ) from error
    finally:
        connection.close()


@contextmanager
def _postgres(url: str, *, reads: bool) -> Iterator[End]:
    kind = _saver("langgraph.checkpoint.postgres:PostgresSaver")
    import psycopg  # noqa: PLC0415 - their saver needs it, so it is there
    from psycopg.rows import dict_row  # noqa: PLC0415

    scheme, rest = url.split("://", 1)
    address = f"{scheme.partition('+')[0]}://{rest}"

    def opened(**more: Any) -> Any:
        made = psycopg.connect(address, autocommit=True, connect_timeout=10, **more)
        made.execute(f"SET lock_timeout = '{LOCK_WAIT_S}s'".encode())
        if reads:
            made.execute("SET default_transaction_read_only = on")
        return made

    try:
        with opened() as connection:

            def ask(query: str, *values: Any) -> Any:
                return connection.execute(query.replace("?", "%s").encode(), values).fetchall()

            with opened(row_factory=dict_row) as beside:
                saver = kind(beside, serde=OpaqueValues())
                if not reads:
                    saver.setup()
                elif ask("SELECT to_regclass('checkpoints')") == [(None,)]:
                    raise UsageError(f"{SecretUrl(url)} has no checkpoints of LangGraph")
                yield TableEnd(saver, ask, "checkpoint_writes")
    except psycopg.Error as error:
        raise EngineUnreachable(
            f"{SecretUrl(url)} cannot be used ({type(error).__name__}). Run this again to go on",
            operation="migrate",
        ) from error


_ENDS: Final[dict[str, Callable[..., AbstractContextManager[End]]]] = dict(
    zip(CHECKPOINTERS, (_sqlite, _postgres), strict=True)
)
