"""Stores that differ only in what they sync: each a function `target(engine)` on its directory."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine
from tests.verify.check.stores import KEEPS, Sound

PLAIN = Claims(
    expiring=NotClaimed("we keep everything"),
    recallable=NotClaimed("there is no index"),
    exactly_once=NotClaimed("no keys"),
)


class SyncOff(Sound):
    """SQLite told not to wait for the disk, as many tuning guides do."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db.execute("PRAGMA synchronous=OFF")


class JsonFile:
    """One file for everything, replaced as a whole; whether it is synced before is the question."""

    synced = True
    names_synced = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        with self._lock():
            found = self._read()
            found.setdefault(session, []).extend(messages)
            self._write(found)

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        found = self._read().get(session, [])
        return found if limit is None else found[max(0, len(found) - limit) :]

    def forget(self, session: str) -> None:
        with self._lock():
            self._write({name: kept for name, kept in self._read().items() if name != session})

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, list[dict[str, Any]]]:
        try:
            return dict(json.loads((self.folder / "all.json").read_text()))
        except FileNotFoundError:
            return {}

    def _write(self, found: dict[str, Any]) -> None:
        temporary = self.folder / "all.json.tmp"
        with temporary.open("w") as file:
            json.dump(found, file)
            if self.synced:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(self.folder / "all.json")
        if self.synced and self.names_synced:
            folder = os.open(self.folder, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)


class UnsyncedRename(JsonFile):
    """Write to a temporary file, rename: "atomic", and yet nothing of it need be on the disk."""

    synced = False


class UnsyncedNames(JsonFile):
    """The file is synced and the directory is not: the old name may be back after a power cut."""

    names_synced = False


class JsonLines(JsonFile):
    """A line a message, synced before the ack; half a last line is left out. But which are a turn?"""

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        with self._lock(), (self.folder / "all.jsonl").open("a") as file:
            for message in messages:
                file.write(json.dumps([session, message]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        with self._lock():
            found = [message for name, message in self._lines() if name == session]
        return found if limit is None else found[max(0, len(found) - limit) :]

    def forget(self, session: str) -> None:
        with self._lock():
            kept = [json.dumps(each) + "\n" for each in self._lines() if each[0] != session]
            temporary = self.folder / "all.jsonl.tmp"
            with temporary.open("w") as file:
                file.writelines(kept)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.folder / "all.jsonl")

    def _lines(self) -> Iterator[Any]:
        path = self.folder / "all.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def sync_off(engine: Engine) -> Target:
    return Target(
        open=lambda: SyncOff(engine.url.removeprefix("sqlite:///")), engine=engine, claims=KEEPS
    )


def without_engine() -> Target:
    return Target(open=lambda: None, name="files of its own")


def unsynced_rename(engine: Engine) -> Target:
    return _on_files(UnsyncedRename, engine)


def unsynced_names(engine: Engine) -> Target:
    return _on_files(UnsyncedNames, engine)


def json_lines(engine: Engine) -> Target:
    return _on_files(JsonLines, engine)


def json_file(engine: Engine) -> Target:
    return _on_files(JsonFile, engine)


def _on_files(kind: type[JsonFile], engine: Engine) -> Target:
    assert engine.data_dir is not None
    folder = engine.data_dir
    return Target(open=lambda: kind(folder), engine=engine, claims=PLAIN)


def elsewhere(engine: Engine) -> Target:
    """Its data are not where the engine's are."""
    assert engine.data_dir is not None
    folder = engine.data_dir.parent.parent.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    return Target(open=lambda: JsonFile(folder), engine=engine, claims=PLAIN)
