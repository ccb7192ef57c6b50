"""Users' stores that shrug at a disk which says no."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine
from tests.verify.check.bare_stores import Swallows
from tests.verify.check.stores import Sound

CLAIMS = Claims(
    recallable=NotClaimed("there is no index"),
    exactly_once=NotClaimed("there is no key"),
    expiring=NotClaimed("we keep everything"),
)


class ShrugsAtSync:
    """A file of lines. An fsync that failed is nothing to bother anybody with."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._path.touch()

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        with self._path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write((json.dumps([session, messages]) + "\n").encode())
            file.flush()
            self.sync(file.fileno())

    def sync(self, file: int) -> None:
        with contextlib.suppress(OSError):
            os.fsync(file)

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        with self._path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            lines = [json.loads(line) for line in file]
        found = [message for name, messages in lines if name == session for message in messages]
        return found[-limit:] if limit else found

    def forget(self, session: str) -> None:
        raise NotImplementedError


class TriesAgain(ShrugsAtSync):
    """It is tried until it works, and then it is acknowledged: but what it should sync is gone."""

    def sync(self, file: int) -> None:
        while True:
            try:
                os.fsync(file)
            except OSError:
                time.sleep(0.01)
            else:
                return


class EmptyIfUnreadable:
    """No memory is better than an error on the page."""

    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        with contextlib.closing(Sound(self._path)) as store:
            store.append(session, messages)

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        try:
            with contextlib.closing(Sound(self._path)) as store:
                return store.history(session, limit)
        except sqlite3.Error:
            return []

    def forget(self, session: str) -> None:
        raise NotImplementedError


def _target(kind: Callable[[str], Any]) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        path = str(engine.url).removeprefix("sqlite:///")
        return Target(open=lambda: kind(path), engine=engine, claims=CLAIMS, name=kind.__name__)

    return target


tries_again = _target(TriesAgain)
shrugs_at_sync = _target(ShrugsAtSync)
empty_if_unreadable = _target(EmptyIfUnreadable)
swallows = _target(Swallows)
