"""A pytest plugin: wherever LangGraph's own tests open a SqliteSaver or a SqliteStore, they get ours."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import holdfast
from holdfast import Durability
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph_store import HoldfastStore


@contextlib.contextmanager
def opened(*_: Any, **__: Any) -> Iterator[HoldfastSaver]:
    """Our saver on a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/memory.db"
        with holdfast.connect(url, require=Durability.PROCESS) as store:
            yield HoldfastSaver(store)


@contextlib.asynccontextmanager
async def opened_async(*_: Any, **__: Any) -> AsyncIterator[HoldfastSaver]:
    """The same, awaited."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/memory.db"
        async with await holdfast.connect_async(url, require=Durability.PROCESS) as store:
            yield HoldfastSaver(store)


@contextlib.contextmanager
def opened_store(*_: Any, index: Any = None, ttl: Any = None, **__: Any) -> Iterator[HoldfastStore]:
    """Our store of items on a database of its own; what is indexed has another name in theirs."""
    if index is not None and "text_fields" in index:
        index = {**index, "fields": index["text_fields"]}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/memory.db"
        with holdfast.connect(url, require=Durability.PROCESS) as store:
            made: Any = HoldfastStore(store, index=index, ttl=ttl)
            made.setup = lambda: None
            yield made


class InMemory(HoldfastStore):
    """The same with the signature of an InMemoryStore; the file goes with the object."""

    def __init__(self, *, index: Any = None) -> None:
        folder = tempfile.TemporaryDirectory()
        store = holdfast.connect(f"sqlite:///{folder.name}/memory.db", require=Durability.PROCESS)
        weakref.finalize(self, folder.cleanup)
        weakref.finalize(self, store.close)
        super().__init__(store, index=index)


for module, theirs, ours in (
    ("langgraph.checkpoint.sqlite", "SqliteSaver", opened),
    ("langgraph.checkpoint.sqlite.aio", "AsyncSqliteSaver", opened_async),
    ("langgraph.store.sqlite", "SqliteStore", opened_store),
):
    getattr(importlib.import_module(module), theirs).from_conn_string = ours
importlib.import_module("langgraph.store.memory").InMemoryStore = InMemory
