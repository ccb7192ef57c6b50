"""The data of an engine, out into files and back under the engine of today."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.errors import EngineFailed, EngineMissing
from holdfast.verify.engines import Engine
from holdfast.verify.engines.drivers import postgres_connection

_DUMP_TIMEOUT_S: Final = 120.0
_DUMP: Final = "dump.sql"
_PLACES: Final = "/usr/lib/postgresql/*/bin/pg_dump"
_SECRET_LINES: Final = re.compile(rb"^\\(un)?restrict .*\n", re.MULTILINE)
"""What newer pg_dumps write for psql alone, with a new secret every time."""
_LEFT_OUT: Final = ("-shm", ".pid", ".lock")


def keep(engine: Engine) -> tuple[str, dict[str, bytes]]:
    """The form and the files; the engine is stopped, except PostgreSQL.

    Its own files are too large for a repository, and belong to one major version.
    """
    if engine.kind == "postgres":
        return "sql", {_DUMP: _dump(engine.url)}
    engine.stop()
    return "files", _files_in(engine.data_dir)


def bring(engine: Engine, form: str, files: Mapping[str, bytes]) -> None:
    """Put the data into a fresh engine; it runs on them afterwards.

    `EngineFailed` where it does not come up on them.
    """
    if form == "sql":
        with postgres_connection(engine.url) as connection:
            connection.execute(files[_DUMP])
        return
    engine.stop()
    folder = engine.data_dir
    if folder is None:
        raise EngineMissing(
            f"holdfast cannot reach the files of {engine.kind} from {engine.provider}"
        )
    for old in sorted(folder.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() else old.unlink()
    for name, data in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    engine.start()


def copy_of(file: Path) -> bytes:
    """A consistent copy of a SQLite file that others may be writing to."""
    import apsw  # noqa: PLC0415 - the driver, used past the store on purpose

    with tempfile.TemporaryDirectory(prefix="holdfast-capsule-") as folder:
        copy = Path(folder) / "copy"
        source = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        target = apsw.Connection(str(copy))
        try:
            with target.backup("main", source, "main") as backup:
                backup.step()
        finally:
            target.close()
            source.close()
        return copy.read_bytes()


def _files_in(folder: Path | None) -> dict[str, bytes]:
    if folder is None:
        raise EngineMissing(
            "holdfast cannot reach the files of this engine. Nothing was kept; keep an export"
        )
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(_LEFT_OUT)
    }
    if not found:
        raise EngineFailed("the engine wrote no file: is its configuration one that persists?")
    return found


def _dump(url: str) -> bytes:
    """An SQL script that any client can send: rows as INSERT, nothing that only psql knows."""
    program = _pg_dump()
    done = subprocess.run(  # noqa: S603 - a program of PostgreSQL
        [str(program), "--inserts", "--no-owner", "--no-privileges", url],
        capture_output=True,
        timeout=_DUMP_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise EngineFailed(f"{program} failed: {done.stderr.decode(errors='replace')[-500:]}")
    return _SECRET_LINES.sub(b"", done.stdout)


def _pg_dump() -> Path:
    """The newest one here: it reads every older server."""
    found = sorted(Path("/").glob(_PLACES.lstrip("/")), key=_version, reverse=True)
    on_path = shutil.which("pg_dump", path=os.environ.get("PATH"))
    if found:
        return found[0]
    if on_path:
        return Path(on_path)
    raise EngineMissing(
        f"pg_dump was looked for in {_PLACES} and on PATH. "
        "Run: sudo apt-get install -y postgresql-client",
        backend="postgres",
    )


def _version(path: Path) -> int:
    name = path.parent.parent.name
    return int(name) if name.isdigit() else 0
