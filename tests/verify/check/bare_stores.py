"""Stores without an engine: they keep their files where `BARE_DIR` says, and name no engine."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from holdfast.verify import Target
from tests.verify.check.files import SyncOff
from tests.verify.check.stores import KEEPS, Sound


def path() -> str:
    return str(Path(os.environ["BARE_DIR"]) / "memory.db")


class Swallows(SyncOff):
    """Never says that anything failed."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        try:
            super().append(session, messages, key)
        except sqlite3.Error:
            return

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        try:
            return super().history(session, limit)
        except sqlite3.Error:
            return []


sound = Target(open=lambda: Sound(path()), claims=KEEPS, name="sound")
sync_off = Target(open=lambda: SyncOff(path()), claims=KEEPS, name="sync off")
swallows = Target(open=lambda: Swallows(path()), claims=KEEPS, name="swallows")


def on_data(kind: type[Sound]) -> Target:
    data = Path(os.environ.get("BARE_DIR", "nowhere")) / "data"
    return Target(open=lambda: _made(kind, data), data=data, claims=KEEPS)


def _made(kind: type[Sound], data: Path) -> Sound:
    data.mkdir(exist_ok=True)
    return kind(str(data / "memory.db"))


sound_data, sync_off_data, swallows_data = map(on_data, (Sound, SyncOff, Swallows))
