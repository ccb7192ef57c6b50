"""How large the files are under retention: flat, however long sessions go on."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast
from bench.figure import Figure
from holdfast import Message, Retention, Store

APPENDS = 100_000
EARLY = 10_000
SESSIONS = 16
KEPT = 200
KEYS_KEPT_S = 2.0
"""So that keys go within the run; with the default of 90 days they are what a file grows by meanwhile."""
TEXT = "what somebody said, about as long as people say things " * 3


def run() -> Iterator[Figure]:
    """The size after all appends, beside that after a tenth of them."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder, "kept.db")
        kept: Any = {"retention": Retention(last=KEPT), "keys_kept_s": KEYS_KEPT_S}
        with holdfast.connect(f"sqlite:///{path}", **kept) as store:
            _append(store, EARLY)
            early = path.stat().st_size
            _append(store, APPENDS - EARLY)
            late = path.stat().st_size
            log = Path(f"{path}-wal").stat().st_size
            count = sum(store.stat(f"s{at}").count for at in range(SESSIONS))
    detail = f"{early / 1e6:.2f} MB after {EARLY:,}, {late / 1e6:.2f} MB after {APPENDS:,}; {count:,} kept"
    yield Figure("size of a SQLite file under retention", late / early, at_most=1.1, detail=detail)
    # It is folded in every thousand pages, so its size at some instant says nothing of growth.
    yield Figure(
        "its -wal file", log / 1e6, at_most=8, unit="MB", detail="of any number of appends"
    )


def _append(store: Store, count: int) -> None:
    """In as many threads as sessions: they share syncs."""

    def write(session: str) -> None:
        for number in range(count // SESSIONS):
            store.append(session, Message("user", f"{number} {TEXT}"), key=secrets.token_hex(8))

    threads = [threading.Thread(target=write, args=(f"s{at}",)) for at in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
