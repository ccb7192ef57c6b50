"""Whether a target works on what a fault is going to strike: beside it no fault says anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import FaultNotProven
from holdfast.linux import connections, open_names
from holdfast.verify.process_tree import tree
from holdfast.verify.scenarios.base import ScenarioContext
from holdfast.verify.workload.client_pool import ClientPool

_SEEN_WITHIN_S: Final = 2.0
"""So long a store that connects for each operation is watched until one is caught connected."""

Files = Mapping[str, tuple[int, int, int]]


def files_of(directory: Path | None) -> Files:
    """Each file below it, with its inode, size and time of the last change."""
    return {} if directory is None else dict(_files(directory))


def _files(directory: Path) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            try:
                seen = path.stat()
            except FileNotFoundError:  # a journal that is gone meanwhile
                continue
            yield str(path), (seen.st_ino, seen.st_size, seen.st_mtime_ns)


def prove_written(name: str, before: Files, directory: Path | None) -> None:
    """`FaultNotProven` where nothing was written below the directory since `before`."""
    if files_of(directory) == before:
        raise FaultNotProven(
            f"{name}: writes were acknowledged and none reached the engine's directory: does the "
            "target keep its data elsewhere?"
        )


def prove_connected(name: str, context: ScenarioContext, clients: ClientPool) -> None:
    """`FaultNotProven` where clients at work have no connection to the engine."""
    several = context.spec.engine is not None and context.spec.engine.topology is not None
    port = None if several else urlsplit(context.spec.url).port
    if context.spec.is_holdfast or not clients.acknowledged() or port is None:
        return
    if not clients.until(lambda: _is_connected(clients, port), within_s=_SEEN_WITHIN_S):
        raise FaultNotProven(
            f"{name}: writes were acknowledged and no client is connected to the engine: does the "
            "target keep its data elsewhere?"
        )


def _is_connected(clients: ClientPool, port: int) -> bool:
    pids = [pid for client in clients.processes if client.alive for pid in tree(client.process.pid)]
    names = {one.name for pid in pids for one in connections(pid) if one.remote_port == port}
    return any(not names.isdisjoint(open_names(pid)) for pid in pids)
