"""Whose file it is, its schema, and what damage looks like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Damaged, FormatTooNew, SessionState, UsageError
from holdfast.backends.sqlite import driver as opening
from holdfast.backends.sqlite import writer
from holdfast.recall import vectors
from holdfast.recall.words import term_hash
from tests.contract.harness import say, texts
from tests.recall.models import Letters
from tests.waiting import wait_until


@pytest.fixture
def path(disk_path: Path) -> Path:
    return disk_path / "memory.db"


def pragma(path: Path, name: str) -> int:
    [(value,)] = apsw.Connection(str(path)).execute(f"PRAGMA {name}").fetchall()
    return int(str(value))


def test_a_new_file_is_ours_and_in_wal_mode_with_full_sync(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        assert pragma(path, "application_id") == int.from_bytes(b"HOLD")
        assert pragma(path, "user_version") == opening.SCHEMA_VERSION
        database = store._backend._database  # type: ignore[attr-defined]
        writer = database.writer._connection
        settings = {
            name: writer.execute(f"PRAGMA {name}").fetchall()[0][0]
            for name in ("journal_mode", "synchronous", "secure_delete", "cell_size_check")
        }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "secure_delete": 1,
        "cell_size_check": 1,
    }


@pytest.mark.parametrize("content", [b"hello, I am a text file\n" * 100, b"\x7fELF" + bytes(5000)])
def test_a_file_of_another_program_is_left_alone(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(Damaged, match="no SQLite database"):
        holdfast.connect(f"sqlite:///{path}")
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_database_of_another_program_is_left_alone(path: Path):
    other = apsw.Connection(str(path))
    other.execute(
        "CREATE TABLE messages (place, record); INSERT INTO messages VALUES (1, 'theirs')"
    )
    other.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="another program"):
        holdfast.connect(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_an_empty_file_is_taken_as_new(path: Path):
    path.touch()
    with holdfast.connect(f"sqlite:///{path}") as store:
        assert store.append("s", say("x")).first == 1


def test_a_newer_schema_is_refused_and_left_alone(path: Path):
    holdfast.connect(f"sqlite:///{path}").close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(FormatTooNew, match="schema version 99"):
        holdfast.connect(f"sqlite:///{path}")
    assert pragma(path, "user_version") == 99


def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("from release one"))
    monkeypatch.setattr(opening, "MIGRATIONS", [*opening.MIGRATIONS, "CREATE TABLE later (x)"])
    monkeypatch.setattr(opening, "SCHEMA_VERSION", opening.SCHEMA_VERSION + 1)
    with holdfast.connect(f"sqlite:///{path}") as store:
        assert texts(store.history("s")) == ["from release one"]
    assert pragma(path, "user_version") == opening.SCHEMA_VERSION


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("safe"))
    wrong = "CREATE TABLE half (x); CREATE TABLE sessions (again)"
    with monkeypatch.context() as patch:
        patch.setattr(opening, "MIGRATIONS", [*opening.MIGRATIONS, wrong])
        patch.setattr(opening, "SCHEMA_VERSION", opening.SCHEMA_VERSION + 1)
        with pytest.raises(holdfast.HoldfastError, match="already exists"):
            holdfast.connect(f"sqlite:///{path}")
    assert pragma(path, "user_version") == opening.SCHEMA_VERSION
    with holdfast.connect(f"sqlite:///{path}") as store:
        assert texts(store.history("s")) == ["safe"]


def test_ten_processes_may_create_the_file_at_once(path: Path):
    code = (
        "import holdfast, sys\n"
        "with holdfast.connect(sys.argv[1]) as store:\n"
        "    store.append('s', holdfast.Message('user', 'x'))\n"
    )
    start = [sys.executable, "-c", code, f"sqlite:///{path}"]
    processes = [subprocess.Popen(start, stderr=subprocess.PIPE) for _ in range(10)]
    errors = [process.communicate(timeout=60)[1].decode() for process in processes]
    assert errors == [""] * 10
    with holdfast.connect(f"sqlite:///{path}") as store:
        assert [message.seq for message in store.history("s")] == list(range(1, 11))


def test_a_damaged_header_is_damage_not_a_new_beginning(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("x"))
    content = bytearray(path.read_bytes())
    content[:16] = bytes(16)
    path.write_bytes(content)
    with pytest.raises(Damaged):
        holdfast.connect(f"sqlite:///{path}")
    assert path.read_bytes() == content


def test_a_damaged_page_is_said_and_other_sessions_stay_readable(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        for turn in range(200):
            store.append("early" if turn < 100 else "late", say("x" * 1000))
    content = bytearray(path.read_bytes())
    page = content.rindex(b"xxxxx") // 4096 * 4096  # a leaf of the last messages
    content[page : page + 100] = b"\xff" * 100
    path.write_bytes(content)
    with holdfast.connect(f"sqlite:///{path}") as store:
        with pytest.raises(Damaged, match="Keep a copy"):
            store.history("late")
        assert len(store.history("early")) == 100


@pytest.mark.parametrize("state", ["CAST(x'6cec7665' AS TEXT)", "'lixe'"], ids=["bytes", "word"])
def test_a_damaged_row_is_said_and_other_sessions_go_on(path: Path, state: str):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("bad", say("x"), ttl_s=0.001)
        store.append("good", say("y"))
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA ignore_check_constraints=ON")
    connection.execute(f"UPDATE sessions SET state = {state} WHERE name = CAST('bad' AS BLOB)")
    connection.close()
    with holdfast.connect(f"sqlite:///{path}") as store:
        for use in (store.history, store.stat, lambda name: store.append(name, say("z"))):
            with pytest.raises(Damaged, match=r"session 'bad' is damaged; nothing was written"):
                use("bad")
        assert store.append("good", say("z")).first == 2, "a sweep comes by the damaged one"
        assert texts(store.history("good")) == ["y", "z"]


def test_a_truncated_file_is_damage(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", [say("x" * 2000)] * 100)
    path.write_bytes(path.read_bytes()[: 4096 * 5])
    with pytest.raises(Damaged):
        with holdfast.connect(f"sqlite:///{path}") as store:
            store.history("s")


def test_nothing_of_a_forgotten_scope_is_left_in_the_index(path: Path):
    model = Letters()
    secret = "the secret of Xiao Li"
    with holdfast.connect(f"sqlite:///{path}", embedder=model, background_indexing=False) as store:
        store.append("u", say(secret))
        store.remember("u", secret + "!")
        store.remember("other", "stays")
        assert len(store.recall("u", "secret")) == 2
        store.wait_for("other")
        [packed] = vectors.pack(model.embed([secret]), model="m", count=1, dimension=64)
        term = term_hash("secret").to_bytes(8, "big", signed=True)
        traces = {"vector": packed.vector, "word": term, "text": secret.encode()}
        store.recall("u", "x")
        files = [path, path.with_name(f"{path.name}-wal")]
        before = b"".join(file.read_bytes() for file in files)
        assert all(trace in before for trace in traces.values()), "the test knows what to look for"
        assert store.forget("u").scrubbed
        after = b"".join(file.read_bytes() for file in files)
        assert [name for name, trace in traces.items() if trace in after] == []
        assert store.recall("other", "stays")


def test_the_index_of_an_expired_session_is_swept_in_bounded_parts(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "SWEEP_MESSAGES_MAX", 10)
    with holdfast.connect(
        f"sqlite:///{path}", embedder=Letters(), background_indexing=False
    ) as store:
        store.append("u", [say(f"soon gone {n}") for n in range(25)], ttl_s=3600)
        store.wait_for("u")
        # Over only when all is in the index: a busy machine may take longer for that than any
        # short time to live, and what has expired is not indexed.
        with apsw.Connection(str(path)) as raw:
            raw.execute("UPDATE sessions SET expires_ms = 1 WHERE name = ?", (b"u",))
        assert store.stat("u").state is SessionState.EXPIRED

        def left() -> list[Any]:
            store.append("other", say("a write sweeps"))
            raw = apsw.Connection(str(path))
            tables = ("vectors", "sketches", "words", "followed")
            return [raw.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in tables]

        store._backend._database.writer._sweep_at_s = 0.0  # type: ignore[attr-defined]
        first = left()
        assert first[0] == 15, "ten at a time"
        wait_until(lambda: left() == [0, 0, 0, 0])
