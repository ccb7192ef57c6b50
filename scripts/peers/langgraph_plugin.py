"""A pytest plugin: wherever LangGraph's own tests open a SqliteSaver, they get our saver."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

import holdfast
from holdfast import Durability
from holdfast.integrations.langgraph import HoldfastSaver


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


for module, saver, ours in (
    ("langgraph.checkpoint.sqlite", "SqliteSaver", opened),
    ("langgraph.checkpoint.sqlite.aio", "AsyncSqliteSaver", opened_async),
):
    getattr(importlib.import_module(module), saver).from_conn_string = ours
