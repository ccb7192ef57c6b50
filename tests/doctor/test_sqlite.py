"""What a SQLite file shows from outside, without a byte of it being changed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Durability, Message, UsageError
from holdfast.doctor import Hazard, Severity, Soundness, assert_sound, audit, storage
from holdfast.doctor.sqlite_rules import Version, has_wal_reset_bug
from holdfast.doctor.storage import Storage
from tests.doctor.conftest import about, verdicts
from tests.sqlite.locks import change_of_journal

SOUND, UNSOUND, UNKNOWN, ABSENT = Soundness


@pytest.fixture
def file(disk_path: Path) -> Path:
    return disk_path / "memory.db"


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def fill(file: Path) -> None:
    with holdfast.connect(url(file)) as store:
        store.append("a", [Message("user", "x"), Message("assistant", "y")])


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file of a directory, with its bytes and when it was written."""
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
    }


def write_with(file: Path, then: str) -> subprocess.Popen[bytes]:
    """Another process that writes through our store, says so, and does something else then."""
    code = (
        f"import holdfast, os, sys\nstore = holdfast.connect({url(file)!r})\n"
        f"store.append('a', holdfast.Message('user', 'z'))\nprint('ready', flush=True)\n{then}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.fixture
def beside(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the file open."""
    fill(file)
    process = write_with(file, "sys.stdin.read()")
    yield process
    process.kill()
    process.communicate()


@pytest.mark.usefixtures("nothing_is_temporary")
def test_our_own_file_is_sound(file: Path):
    fill(file)
    found = assert_sound(url(file))
    assert found.exit_code == 0
    assert found.ack_durability is Durability.DISK
    assert found.facts["holdfast records read"] == "2 of 1 session(s)"
    assert found.sound[Hazard.ORDER] is SOUND


def test_it_never_writes_while_others_have_it_open(file: Path, beside: subprocess.Popen[bytes]):
    before = state(file.parent)
    assert len(before) == 3
    found = audit(url(file))
    assert state(file.parent) == before
    assert f"({beside.pid})" in found.facts["open in"]
    assert found.facts["holdfast records read"] == "3 of 1 session(s)", "the -wal file counts"


def test_it_leaves_the_locks_of_a_store_in_the_same_process(file: Path):
    """Linux drops every lock of a process on a file when the process closes it anywhere."""
    with holdfast.connect(url(file)) as store:
        store.append("a", Message("user", "x"))
        assert change_of_journal(file) == "locked"
        audit(url(file))
        assert change_of_journal(file) == "locked"


def test_it_never_writes_after_a_crash_nor_after_a_clean_end(file: Path):
    write_with(file, "os.kill(os.getpid(), 9)").communicate()
    crashed = state(file.parent)
    assert audit(url(file)).facts["holdfast records read"] == "1 of 1 session(s)"
    assert state(file.parent) == crashed
    fill(file)
    ended = state(file.parent)
    assert list(ended) == ["memory.db"]
    assert audit(url(file)).facts["holdfast records read"] == "3 of 1 session(s)"
    assert state(file.parent) == ended


def test_the_default_of_the_library_loses_the_last_commit(file: Path):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    found = audit(url(file))
    assert verdicts(found) == (SOUND, UNSOUND)
    assert found.facts["belongs to"] == "another program"
    assert found.ack_durability is None


@pytest.mark.parametrize(
    ("table", "verdicts_of", "words"),
    [
        ("id INTEGER PRIMARY KEY, session_id TEXT, content TEXT, at DATETIME", (SOUND, SOUND), ""),
        (
            "id VARCHAR(36) PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TIMESTAMP",
            (UNSOUND, SOUND),
            "nothing but a timestamp",
        ),
        ("thread_id TEXT, role TEXT, seq INT", (SOUND, UNSOUND), "no primary key"),
        ("thread_id TEXT, role TEXT, seq INT, UNIQUE (thread_id, seq)", (SOUND, SOUND), ""),
        ("name TEXT, at DATETIME", (ABSENT, ABSENT), ""),
    ],
)
def test_tables_of_another_program(
    file: Path, table: str, verdicts_of: tuple[Soundness, Soundness], words: str
):
    connection = apsw.Connection(str(file))
    connection.execute(f"PRAGMA journal_mode=WAL; CREATE TABLE messages ({table})").fetchall()
    connection.close()
    found = audit(url(file))
    assert (found.sound[Hazard.ORDER], found.sound[Hazard.CONCURRENCY]) == verdicts_of
    assert words in about(found, Hazard.ORDER) + about(found, Hazard.CONCURRENCY)


def test_a_writer_with_the_wal_reset_bug_is_named(file: Path):
    connection = apsw.Connection(str(file))
    connection.execute("PRAGMA journal_mode=WAL; CREATE TABLE t (x)").fetchall()
    connection.close()
    assert audit(url(file)).sound[Hazard.CONCURRENCY] is ABSENT
    with file.open("r+b") as written:  # as an older SQLite signs it
        written.seek(96)
        written.write(struct.pack(">I", 3_040_001))
    found = audit(url(file))
    assert verdicts(found) == (SOUND, SOUND)
    assert "last written by SQLite 3.40.1" in about(found, Hazard.CONCURRENCY)
    assert any("synchronous=NORMAL" in one.loses for one in found.findings)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 54, 1), False),
    ],
)
def test_versions_with_the_wal_reset_bug(version: Version, affected: bool):
    assert has_wal_reset_bug(version) is affected


@pytest.mark.parametrize(
    ("kind", "temporary", "hazards"),
    [
        ("ext4", False, set()),
        ("tmpfs", False, {Hazard.POWER, Hazard.REPLACEMENT}),
        ("overlay", False, {Hazard.REPLACEMENT}),
        ("ext4", True, {Hazard.REPLACEMENT}),
        ("nfs4", False, {Hazard.CONCURRENCY}),
    ],
)
def test_where_the_file_is(kind: str, temporary: bool, hazards: set[Hazard]):
    found = storage.judge(Storage("/data", kind, temporary))
    assert {hazard for one in found.findings for hazard in one.hazards} == hazards


def test_a_file_in_memory_is_not_on_a_disk():
    file = Path("/dev/shm") / f"holdfast-doctor-{os.getpid()}.db"
    try:
        holdfast.connect(url(file), require=Durability.PROCESS).close()
        found = audit(url(file))
    finally:
        file.unlink()
    assert verdicts(found) == (SOUND, UNSOUND)
    assert found.ack_durability is Durability.PROCESS


def test_a_damaged_record_is_named_by_session_and_number(file: Path):
    fill(file)
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE messages SET record = x'00' WHERE place & 0xffffffff = 2")
    connection.close()
    found = audit(url(file))
    assert "'a', number 2" in about(found, Hazard.DAMAGE)
    assert found.findings[0].severity is Severity.CRITICAL


def test_expired_leftovers_are_counted(file: Path):
    with holdfast.connect(url(file)) as store:
        store.append("a", Message("user", "x"), ttl_s=1)
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE sessions SET expires_ms = expires_ms - 7200000")
    connection.close()
    assert audit(url(file)).facts["holdfast expired leftovers"] == "1"


def test_a_file_that_is_not_there_is_not_made(file: Path):
    found = audit(url(file))
    assert found.exit_code == 3
    assert list(file.parent.iterdir()) == []


def test_a_file_that_is_no_database_is_a_wrong_argument(file: Path):
    file.write_text("hello")
    with pytest.raises(UsageError, match="no SQLite database"):
        audit(url(file))
