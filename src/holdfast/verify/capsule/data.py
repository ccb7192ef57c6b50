"""The data of an engine, out into files and back under the engine of today.

What is brought back may come from anybody. An SQL dump and an append-only file are programs: the
first runs as a role that may do nothing outside its own database, the second on a Redis without the
commands that reach beyond its data. A trigger runs inside SQLite: only those of our own schema do.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import EngineFailed, EngineMissing
from holdfast.verify.engines import Engine
from holdfast.verify.engines.drivers import postgres_connection
from holdfast.verify.instrument import Launch

_DUMP_TIMEOUT_S: Final = 120.0
MEMORY_BYTES_MAX: Final = 2 << 30
"""Of address space, for each process of an engine that loads data from anybody."""
_DUMP: Final = "dump.sql"
_PLACES: Final = "/usr/lib/postgresql/*/bin/pg_dump"
_SECRET_LINES: Final = re.compile(rb"^\\(un)?restrict .*\n", re.MULTILINE)
"""What newer pg_dumps write for psql alone, with a new secret every time."""
_ROLE: Final = "capsule"
_SQLITE: Final = b"SQLite format 3\0"
_LEFT_OUT: Final = ("-shm", ".pid", ".lock")
_OBJECTS_MAX: Final = 200
_STATEMENT_BYTES_MAX: Final = 8_000
_COSTLY: Final = frozenset(
    b"randomblob zeroblob hex unhex printf format replace char group_concat string_agg quote concat "
    b"concat_ws unistr instr like glob regexp match load_extension".split()
)
"""What takes much time or memory for few bytes of a schema."""
_SQLITES_OWN: Final = frozenset(
    b"sqlite_stat1 sqlite_stat4 sqlite_sequence tbl idx stat neq nlt ndlt sample name seq".split()
)
"""Words of tables that SQLite itself adds."""


def keep(engine: Engine) -> tuple[str, dict[str, bytes]]:
    """The form and the files; the engine is stopped, except PostgreSQL.

    Its own files are too large for a repository, and belong to one major version.
    """
    if engine.kind == "postgres":
        return "sql", {_DUMP: _dump(engine.url)}
    engine.stop()
    return "files", _files_in(engine.data_dir)


def locked(kind: str) -> dict[str, str]:
    """Settings under which data from anybody are loaded; `REPLICAOF` and the like are no data."""
    if kind not in ("redis", "valkey"):
        return {}
    beyond = ("CONFIG", "MODULE", "DEBUG", "REPLICAOF", "SLAVEOF", "MIGRATE")
    return {"rename-command": " ".join(f'{name} ""' for name in beyond)}


class MemoryBound:
    """An engine under it fails before it takes all memory: `maxmemory` does not hold while it loads."""

    def wrap(self, launch: Launch) -> Launch:
        """Under a shell that becomes the engine."""
        bounded = f'ulimit -v {MEMORY_BYTES_MAX // 1024} && exec "$@"'
        return Launch(("sh", "-c", bounded, "sh", *launch.command), launch.environment)


def bring(engine: Engine, form: str, files: Mapping[str, bytes]) -> str:
    """Put the data into a fresh engine; it runs on them afterwards. The URL to open them by.

    `EngineFailed` where it does not come up on them.
    """
    if form == "sql":
        return _run_dump(engine, files[_DUMP])
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
    return engine.url


def _run_dump(engine: Engine, dump: bytes) -> str:
    """By a role that owns a database and nothing else: a dump can run no program and read no file.

    The store uses it too, since triggers of the dump run as the role that writes.
    """
    import psycopg  # noqa: PLC0415 - as in drivers

    password = secrets.token_hex(16)
    with postgres_connection(engine.url) as connection:
        connection.execute(f"CREATE ROLE {_ROLE} LOGIN PASSWORD '{password}'")
        connection.execute(f"CREATE DATABASE {_ROLE} OWNER {_ROLE} TEMPLATE template0")
    place = urlsplit(engine.url)
    host = place.netloc.rpartition("@")[2]
    url = place._replace(netloc=f"{_ROLE}:{password}@{host}", path=f"/{_ROLE}").geturl()
    try:
        with postgres_connection(url) as connection:
            connection.execute(dump)
    except psycopg.Error as error:
        raise EngineFailed(f"the dump cannot be run: {error}") from error
    return url


def check_code(folder: Path | None, database: Path, *, is_holdfast: bool) -> None:
    """`EngineFailed` where a SQLite file, a framework's too, has code that is not of our own schema.

    `is_holdfast`: the database is one of holdfast's.
    """
    files = [] if folder is None else [one for one in folder.rglob("*") if one.is_file()]
    for file in files:
        if file == database or file.read_bytes().startswith(_SQLITE):
            _check_code(file, is_holdfast=is_holdfast and file == database)


def _check_code(file: Path, *, is_holdfast: bool) -> None:
    import apsw  # noqa: PLC0415 - the driver, used past the store on purpose

    schema = resources.files("holdfast.backends.sqlite") / "schema"
    known = b"".join(one.read_bytes() for one in schema.iterdir() if one.name.endswith(".sql"))
    # As bytes: what somebody else wrote need not be UTF-8.
    asked = (
        "SELECT lower(type) IN ('table', 'index'), CAST(name AS BLOB), "
        "CAST(coalesce(sql, '?') AS BLOB) FROM sqlite_schema"
    )
    try:
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        with contextlib.closing(connection):
            rows: list[Any] = list(connection.execute(asked))
    except apsw.Error as error:
        raise EngineFailed(f"SQLite cannot read it: {error}") from error
    vocabulary = _words(known) | _SQLITES_OWN if is_holdfast else None
    foreign = [
        name
        for holds, name, sql in rows
        if not (_is_plain(sql, vocabulary) if holds else sql in known)
    ]
    if foreign or len(rows) > _OBJECTS_MAX:
        name = (foreign[0] if foreign else rows[-1][1]) or b""
        raise EngineFailed(
            f"it has code of its own, which was not run: {name.decode(errors='replace')!r}"
        )


def _is_plain(sql: bytes, vocabulary: set[bytes] | None) -> bool:
    """A table or an index that computes nothing: a CHECK, a DEFAULT or a module may cost anything."""
    words = _words(sql)
    is_cheap = len(sql) <= _STATEMENT_BYTES_MAX and not words & _COSTLY
    return is_cheap and (vocabulary is None or words <= vocabulary)


def _words(sql: bytes) -> set[bytes]:
    return set(re.findall(rb"\w+", sql.lower()))


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
