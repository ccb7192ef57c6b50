"""Capsules are data: one from somebody who hates you runs nothing, and reaches nothing outside it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import os
import random
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.errors import VerifyError
from holdfast.verify.capsule import data, kept, work

CAPSULES = Path(__file__).parents[2] / "capsules" / "0.1.0"
FILES = ("sqlite", "sqlite-schema-3", "export")
Change = Callable[[dict[str, Any]], object]


def copy_of(name: str, folder: Path) -> Path:
    shutil.copytree(CAPSULES / name, folder / name)
    return folder / name


def put(folder: Path, file: str, data: bytes) -> None:
    """Replace a file of a capsule, and its sum."""
    place = folder / "data" / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    change(folder, lambda value: value["files"].update({file: hashlib.sha256(data).hexdigest()}))


def change(folder: Path, how: Change) -> None:
    manifest = folder / "capsule.json"
    value = json.loads(manifest.read_text())
    how(value)
    manifest.write_text(json.dumps(value))


def verify(folder: Path, *words: str) -> Result:
    done = CliRunner().invoke(main, ["capsule", "verify", str(folder), *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def unpacked(folder: Path, file: str) -> bytes:
    return lzma.decompress((folder / "data" / f"{file}.xz").read_bytes())


PROGRAM = "COPY (SELECT 1) TO PROGRAM 'touch {mark}';"
CODE = {
    "program": PROGRAM,
    "as superuser": f"RESET ROLE; RESET SESSION AUTHORIZATION; {PROGRAM}",
    "file": "COPY (SELECT 1) TO '{mark}';",
    "trigger": f"""
        CREATE FUNCTION holdfast.ran() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN {PROGRAM} RETURN NEW; END $$;
        CREATE TRIGGER ran BEFORE INSERT ON holdfast.messages
            FOR EACH ROW EXECUTE FUNCTION holdfast.ran();""",
    "event trigger": f"""
        CREATE FUNCTION holdfast.ran() RETURNS event_trigger LANGUAGE plpgsql AS
            $$ BEGIN {PROGRAM} END $$;
        CREATE EVENT TRIGGER ran ON ddl_command_start EXECUTE FUNCTION holdfast.ran();""",
}


@pytest.mark.parametrize("code", CODE.values(), ids=CODE)
def test_a_dump_runs_no_program(tmp_path: Path, code: str):
    # Where the server's own user may write: it must be the rights that stop it.
    mark = Path("/tmp") / f"holdfast-ran-{os.urandom(8).hex()}"
    folder = copy_of("postgres-15", tmp_path)
    dump = unpacked(folder, "dump.sql") + code.format(mark=mark).encode()
    put(folder, "dump.sql.xz", lzma.compress(dump))
    done = verify(folder)
    assert not mark.exists()
    assert done.exit_code == 1
    assert "permission denied" in done.output or "must be superuser" in done.output


def test_a_dump_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(work, "VERIFY_S", 2.0)
    folder = copy_of("postgres-15", tmp_path)
    forever = (
        b"DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN END; "
        b"END LOOP; END $$;"
    )
    put(folder, "dump.sql.xz", lzma.compress(forever))
    begin_s = time.monotonic()
    assert verify(folder).exit_code == 1
    assert time.monotonic() - begin_s < 50, "one sleep of the dump is longer"


def test_a_dump_does_not_fill_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its files are in memory here: a few bytes make as many as its author likes."""
    monkeypatch.setattr(work, "DATA_BYTES_MAX", 150 << 20, raising=False)
    folder = copy_of("postgres-15", tmp_path)
    large = (
        b"CREATE TABLE holdfast.large (at int, word text); ALTER TABLE holdfast.large ALTER word SET STORAGE PLAIN;"
        + b"INSERT INTO holdfast.large SELECT n, repeat('x', 7000) FROM generate_series(1, 5000) n;"
        * 20
    )
    put(folder, "dump.sql.xz", lzma.compress(unpacked(folder, "dump.sql") + large))
    done = verify(folder)
    assert done.exit_code == 1, done.output
    assert "the dump cannot be run" in done.output


def test_what_a_dump_answers_does_not_fill_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A driver keeps an answer whole, in the process that looks: a line of a dump makes any size."""
    monkeypatch.setattr(work, "OWN_BYTES_MAX", 50 << 20, raising=False)
    monkeypatch.setattr(work, "VERIFY_S", 100.0)
    folder = copy_of("postgres-15", tmp_path)
    large = b"SELECT repeat('x', 1000000) FROM generate_series(1, 150); SELECT pg_sleep(90);"
    put(folder, "dump.sql.xz", lzma.compress(unpacked(folder, "dump.sql") + large))
    begin_s = time.monotonic()
    done = verify(folder)
    assert done.exit_code == 1, done.output
    assert "the dump cannot be run" in done.output
    assert time.monotonic() - begin_s < 80, "the dump sleeps for longer"


@pytest.mark.parametrize("state", ["lixe", ""])
def test_a_dump_whose_sessions_are_none_ends_in_words(tmp_path: Path, state: str):
    folder = copy_of("postgres-15-schema-8", tmp_path)
    dump = unpacked(folder, "dump.sql")
    tail = (
        "DO $$ DECLARE c text; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE contype = 'c' "
        "AND conrelid = 'holdfast.sessions'::regclass LOOP EXECUTE "
        "format('ALTER TABLE holdfast.sessions DROP CONSTRAINT %I', c); END LOOP; END $$; "
        f"UPDATE holdfast.sessions SET state = '{state}';"
    )
    put(folder, "dump.sql.xz", lzma.compress(dump + tail.encode()))
    done = verify(folder)
    assert done.exit_code == 1, done.output
    assert "cannot be read: Damaged" in done.output


def test_a_dump_whose_functions_answer_nothing_ends_in_words(tmp_path: Path):
    folder = copy_of("postgres-15-schema-8", tmp_path)
    mute = r"""
        DO $$ DECLARE f record; BEGIN FOR f IN
            SELECT oid, pg_get_functiondef(oid) AS text FROM pg_proc
            WHERE pronamespace = 'holdfast'::regnamespace AND proretset AND prokind = 'f'
        LOOP EXECUTE regexp_replace(f.text, 'AS \$function\$.*', 'AS $x$ BEGIN RETURN; END $x$'); END LOOP;
        END $$;"""
    put(folder, "dump.sql.xz", lzma.compress(unpacked(folder, "dump.sql") + mute.encode()))
    done = verify(folder)
    assert done.exit_code == 1, done.output


def commands(*lines: str) -> bytes:
    """Commands as an append-only file has them."""
    words = [line.split() for line in lines]
    return b"".join(
        b"*%d\r\n" % len(line) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in line)
        for line in words
    )


@pytest.mark.parametrize("name", ["redis-6.2-aof", "redis-7.0-aof"])
@pytest.mark.parametrize(
    "lines",
    [
        ("CONFIG SET dir {outside}", "SET a 1", "SAVE"),
        ("MODULE LOAD {outside}/evil.so",),
        ("REPLICAOF 127.0.0.1 1",),
        ("MIGRATE 127.0.0.1 1 a 0 1000",),
    ],
    ids=["config", "module", "replica", "migrate"],
)
def test_an_append_only_file_reaches_nothing_beyond_its_data(
    tmp_path: Path, name: str, lines: tuple[str, ...]
):
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    folder = copy_of(name, tmp_path)
    [file] = list((folder / "data").rglob("*.aof.xz"))
    tail = commands("SELECT 0", *(line.format(outside=outside) for line in lines))
    data = lzma.decompress(file.read_bytes()) + tail
    put(folder, str(file.relative_to(folder / "data")), lzma.compress(data))
    done = verify(folder)
    assert list(outside.iterdir()) == []
    assert done.exit_code == 1, done.output
    assert "today's engine does not take it" in done.output
    assert "unknown command" in done.output.lower(), "it was stopped by what is locked"


def test_an_append_only_file_does_not_take_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Forty bytes make half a gigabyte, and an engine that reads its own file asks no limit of its own."""
    monkeypatch.setattr(data, "MEMORY_BYTES_MAX", 1 << 30)
    folder = copy_of("redis-7.0-aof", tmp_path)
    [file] = list((folder / "data").rglob("*.aof.xz"))
    tail = commands("SELECT 0", *(f"SETBIT large-{at} 4294967295 1" for at in range(3)))
    whole = lzma.decompress(file.read_bytes()) + tail
    put(folder, str(file.relative_to(folder / "data")), lzma.compress(whole))
    done = verify(folder)
    assert done.exit_code == 1, done.output
    assert "today's engine does not take it" in done.output


@pytest.mark.parametrize("called", ["trigger", "TRIGGER"])
def test_a_sqlite_file_with_code_of_its_own_is_not_opened(tmp_path: Path, called: str):
    """A recursive query in a trigger would keep an append busy for ever.

    SQLite runs it in whatever letters its schema calls it a trigger.
    """
    folder = copy_of("sqlite-schema-3", tmp_path)
    file = tmp_path / "memory.db"
    file.write_bytes(unpacked(folder, "memory.db"))
    connection = apsw.Connection(str(file))
    connection.execute(
        "CREATE TRIGGER busy BEFORE INSERT ON messages BEGIN SELECT count(*) FROM (WITH RECURSIVE "
        "c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c); END"
    )
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("UPDATE sqlite_schema SET type = ? WHERE name = 'busy'", (called,))
    connection.close()
    put(folder, "memory.db.xz", lzma.compress(file.read_bytes()))
    done = verify(folder)
    assert done.exit_code == 1
    assert "code of its own, which was not run: 'busy'" in done.output


_CHECKED = "UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (floor ', '{} CHECK (floor ')"
COSTLY = {
    "check": _CHECKED.format("CHECK (length(hex(zeroblob(1000000))))"),
    "default": "UPDATE sqlite_schema SET sql = replace(sql, 'floor      INTEGER NOT NULL DEFAULT 0', "
    "'floor INTEGER NOT NULL DEFAULT (length(printf(''%1000000d'', 1)) * 0)')",
    "index": "CREATE INDEX busy ON sessions (length(hex(zeroblob(1000000 + id))))",
    "module": "CREATE VIRTUAL TABLE busy USING fts5(words)",
    "long": _CHECKED.format("CHECK (max(1, 2)) " * 2000),
    "many": "".join(f"CREATE INDEX i{at} ON sessions (id);" for at in range(200)),
}


@pytest.mark.parametrize("how", COSTLY)
def test_a_sqlite_file_whose_tables_compute_is_not_opened(tmp_path: Path, how: str):
    """Each row that is written would cost what its author likes, in the process that looks at it."""
    folder = copy_of("sqlite-schema-4", tmp_path)
    file = tmp_path / "memory.db"
    file.write_bytes(unpacked(folder, "memory.db"))
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        before = list(connection.execute("SELECT * FROM sqlite_schema"))
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(COSTLY[how])
        assert list(connection.execute("SELECT * FROM sqlite_schema")) != before
    put(folder, "memory.db.xz", lzma.compress(file.read_bytes()))
    done = verify(folder)
    assert done.exit_code == 1, done.output
    assert "code of its own, which was not run" in done.output


@pytest.mark.parametrize("target", ["openai-agents:sqlite", "chroma:client"])
def test_a_frameworks_sqlite_file_with_code_of_its_own_is_not_opened(tmp_path: Path, target: str):
    """The manifest names the framework, whose driver would run it in this process, without an end."""
    work.create(tmp_path / "kept", work.Origin(target=target))
    assert verify(tmp_path / "kept").exit_code == 0
    packed = {file: lzma.decompress(file.read_bytes()) for file in tmp_path.rglob("*.xz")}
    [(kept_as, content)] = [
        (file, content)
        for file, content in packed.items()
        if content.startswith(b"SQLite format 3")
    ]
    database = tmp_path / "database"
    database.write_bytes(content)
    connection = apsw.Connection(str(database))
    asked = (
        "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE TABLE%' AND name NOT LIKE 'sqlite%'"
    )
    for (table,) in list(connection.execute(asked)):
        connection.execute(
            f'CREATE TRIGGER "on {table}" AFTER INSERT ON "{table}" BEGIN SELECT 1; END'
        )
    connection.close()
    name = str(kept_as.relative_to(tmp_path / "kept" / "data"))
    put(tmp_path / "kept", name, lzma.compress(database.read_bytes()))
    done = verify(tmp_path / "kept")
    assert done.exit_code == 1, done.output
    assert "code of its own, which was not run" in done.output


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "/evil", "a/../../evil", "a//evil", "./evil", "..", "", ".", "a/..", "evil\0", "e\nvil",
        "memory.db-journal", "memory.db-journal.xz/..",
    ],
)  # fmt: skip
def test_the_name_of_a_file_leads_nowhere_else(tmp_path: Path, name: str):
    folder = copy_of("sqlite", tmp_path)
    change(folder, lambda value: value["files"].update({name: hashlib.sha256(b"").hexdigest()}))
    with pytest.raises(VerifyError, match="plain path"):
        kept.read(folder)
    assert verify(folder).exit_code == 4


def test_links_pipes_and_devices_are_no_files_of_a_capsule(tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    for number, make in enumerate(
        (
            lambda place: place.symlink_to(tmp_path / "secret"),
            lambda place: place.symlink_to("/dev/zero"),
            os.mkfifo,
            os.mkdir,
        )
    ):
        folder = copy_of("sqlite", tmp_path / str(number))
        put(folder, "more", b"secret")
        (folder / "data" / "more").unlink()
        make(folder / "data" / "more")
        assert verify(folder).exit_code == 4
    folder = copy_of("sqlite", tmp_path / "folder")
    (folder / "data").rename(tmp_path / "elsewhere")
    (folder / "data").symlink_to(tmp_path / "elsewhere")
    assert verify(folder).exit_code == 4


def test_what_unpacks_to_gigabytes_is_refused_within_its_bound(tmp_path: Path):
    folder = copy_of("sqlite", tmp_path)
    zeros = lzma.LZMACompressor(preset=1)
    block = bytes(1 << 24)
    put(folder, "memory.db.xz", b"".join(zeros.compress(block) for _ in range(64)) + zeros.flush())
    tracemalloc.start()
    try:
        with pytest.raises(VerifyError, match="unpacks to more than"):
            kept.read(folder)
        assert tracemalloc.get_traced_memory()[1] < 4 * kept.UNPACKED_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_a_capsule_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    )
    monkeypatch.chdir(tmp_path)
    folder = copy_of("redis-7.0-rdb", tmp_path)
    change(folder, lambda value: value.update(target="evil:target"))
    done = verify(folder)
    assert (done.exit_code, (tmp_path / "ran").exists()) == (2, False)
    assert "--target" in done.output
    done = verify(folder, "--target", "evil:target")
    assert (done.exit_code, (tmp_path / "ran").exists()) == (4, True), "the user named it"


def test_a_session_that_could_not_be_read_then_and_can_now_is_a_difference(tmp_path: Path):
    folder = copy_of("sqlite", tmp_path)

    def unreadable(value: dict[str, Any]) -> None:
        value["sessions"][0] = {"session": value["sessions"][0]["session"], "error": "Damaged: x"}

    change(folder, unreadable)
    done = verify(folder)
    assert (done.exit_code, "was not there" in done.output) == (1, True), done.output


ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 1e308, "", "\0", "x" * 10_000, "\ud800", [], {}, [[]], {"a": 1}, [None], "../x",
    "redis", "sqlite", "files", "sql", "export",
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    keys: Any = value if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for _, key in tuple(found):
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_capsule_with_anything_changed_ends_in_words(tmp_path: Path, first: int):
    for seed in range(first, first + 20):
        (tmp_path / str(seed)).mkdir()
        attack(tmp_path / str(seed), seed)


@pytest.mark.parametrize("seed", [204, 248, 507, 699])
def test_a_capsule_that_once_ended_in_a_traceback_ends_in_words(tmp_path: Path, seed: int):
    attack(tmp_path, seed)


def attack(tmp_path: Path, seed: int, names: tuple[str, ...] = FILES) -> None:
    """Whatever a manifest or a file says: an exit code of its own, no traceback, and it ends."""
    chance = random.Random(seed)
    folder = copy_of(chance.choice(names), tmp_path)

    def somewhere(value: dict[str, Any]) -> None:
        for _ in range(chance.choice((1, 1, 2, 5))):
            container, key = chance.choice(places(value))
            if isinstance(container, dict) and chance.random() < 0.2:
                container.pop(key)
            else:
                container[key] = chance.choice(ODD)

    if chance.random() < 0.6:
        change(folder, somewhere)
    else:
        files = sorted(file for file in (folder / "data").rglob("*") if file.is_file())
        file = files[seed % len(files)]
        is_packed = file.suffix == ".xz"
        data = bytearray(lzma.decompress(file.read_bytes()) if is_packed else file.read_bytes())
        for _ in range(chance.choice((1, 3, 50))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        name = str(file.relative_to(folder / "data"))
        put(folder, name, lzma.compress(bytes(data)) if is_packed else bytes(data))
    done = verify(folder)
    assert done.exit_code in (0, 1, 2, 3, 4)
    assert "Traceback" not in done.output


def test_depth_and_size_of_a_manifest_have_a_bound(tmp_path: Path):
    folder = copy_of("sqlite", tmp_path)
    for text in (
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 10_000,
        " " * (kept.CAPSULE_BYTES_MAX + 1),
    ):
        (folder / "capsule.json").write_text(text)
        assert verify(folder).exit_code == 4
