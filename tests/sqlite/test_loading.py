"""What loads do to a file: constraints of its tables, old files that hold nonsense, long sessions."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Message, SessionState, codec, operations
from holdfast.backends.sqlite import driver as opening
from holdfast.backends.sqlite.ledger import Ledger

MANY = 400_000


def filled(path: Path) -> apsw.Connection:
    with holdfast.connect(f"sqlite:///{path}") as store:
        for name in ("a", "b"):
            store.append(name, [Message("user", "1"), Message("user", "2")], key="k")
    return apsw.Connection(str(path))


def fill_by_hand(connection: apsw.Connection) -> None:
    """The same with the columns of the first release."""
    records = [codec.encode(Message("user", text)) for text in ("1", "2")]
    for session, name in enumerate((b"a", b"b"), 1):
        connection.execute(
            "INSERT INTO sessions (id, namespace, name) VALUES (?, ?, ?)",
            (session, b"default", name),
        )
        total = 0
        for seq, record in enumerate(records, 1):
            total += len(record)
            connection.execute(
                "INSERT INTO messages (place, total, record) VALUES (?, ?, ?)",
                (session << 32 | seq, total, record),
            )
        key = (session, operations.key_digest("k"), 1, 2)
        connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", key)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET floor = 4294967296 WHERE id = 1",
        "UPDATE sessions SET floor = -1 WHERE id = 1",
        "UPDATE sessions SET ttl_ms = 0 WHERE id = 1",
        "UPDATE sessions SET ttl_ms = 9007199254740993 WHERE id = 1",
        "UPDATE sessions SET expires_ms = -1 WHERE id = 1",
        "UPDATE sessions SET expires_ms = 9007199254740993 WHERE id = 1",
        "INSERT INTO sessions (namespace, name, floor) VALUES (x'00', x'00', 1099511627776)",
        "INSERT INTO keys VALUES (1, x'00', 1, 1, 0)",
        "INSERT INTO keys VALUES (1, randomblob(16), 0, 1, 0)",
        "INSERT INTO keys VALUES (1, randomblob(16), 2, 1, 0)",
        "INSERT INTO keys VALUES (1, randomblob(16), 1, 4294967296, 0)",
        # Places: after a gap, number 0, in a session that is not there, in the next one by number.
        "INSERT INTO messages (place, total, record) VALUES (1 << 32 | 4, 1, x'00')",
        "INSERT INTO messages (place, total, record) VALUES (1 << 32, 1, x'00')",
        "INSERT INTO messages (place, total, record) VALUES (2 << 32, 1, x'00')",
        "INSERT INTO messages (place, total, record) VALUES (3 << 32 | 1, 1, x'00')",
        "INSERT INTO messages (place, total, record) VALUES ((1 << 32) + 4294967297 + 4, 1, x'00')",
    ],
)
def test_the_tables_refuse_numbers_out_of_their_session(disk_path: Path, statement: str):
    connection = filled(disk_path / "memory.db")
    before = list(connection.execute("SELECT * FROM sessions, messages, keys"))
    with pytest.raises(apsw.ConstraintError):
        connection.execute(statement)
    assert list(connection.execute("SELECT * FROM sessions, messages, keys")) == before
    connection.close()


def test_a_file_that_an_older_release_let_be_poisoned_is_made_harmless(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As 0.1.0 before this migration wrote it: see what each row would have done."""
    path = disk_path / "memory.db"
    with monkeypatch.context() as patch:
        patch.setattr(opening, "SCHEMA_VERSION", 2)
        patch.setattr(opening, "MIGRATIONS", opening.MIGRATIONS[:2])
        connection = opening.open_database(path, create=True, busy_timeout_s=1)
    fill_by_hand(connection)
    connection.execute(
        """
        -- Empties sessions that begin later, when it is swept.
        INSERT INTO sessions (id, namespace, name, floor, ttl_ms, expires_ms)
        VALUES (3, CAST('default' AS BLOB), CAST('wide' AS BLOB), 1099511627776, -5, 99999999999999999);
        -- Shows what had expired before the next append.
        INSERT INTO sessions (id, namespace, name, state)
        VALUES (4, CAST('default' AS BLOB), CAST('over' AS BLOB), 'expired');
        INSERT INTO messages VALUES (4 << 32 | 1, 6, CAST('SECRET' AS BLOB));
        -- Is in the way of a session that is yet to begin.
        INSERT INTO messages VALUES (5 << 32 | 1, 6, CAST('SECRET' AS BLOB));
        INSERT INTO keys VALUES (1, x'00', 0, 1099511627776);
        """
    )
    connection.close()
    with holdfast.connect(f"sqlite:///{path}") as store:
        assert [m.content for m in store.history("a")] == ["1", "2"]
        assert store.append("a", Message("user", "1"), key="k").repeated
        assert store.append("over", Message("user", "new")).first == 2
        assert [m.content for m in store.history("over")] == ["new"]
        for name in ("new 1", "new 2", "new 3"):
            assert store.append(name, Message("user", name)).first == 1
        store.forget("wide")
        assert store.stat("wide").state is SessionState.FORGOTTEN
        for name in ("new 1", "new 2", "new 3"):
            assert [m.content for m in store.history(name)] == [name]
        assert not store.history("over").damaged
    assert b"SECRET" not in path.read_bytes()


def test_writing_a_long_session_takes_time_in_proportion(disk_path: Path):
    """Four times the messages, at most six times the time: the best of three, side by side."""
    filled(disk_path / "memory.db").close()
    connection = opening.open_connection(disk_path / "memory.db", busy_timeout_s=1)

    def timed(count: int) -> float:
        connection.execute("BEGIN IMMEDIATE")
        ledger = Ledger(connection, b"x")
        ledger.add_messages(ledger.add_session(b"s"), [b"{}"] * count, 0)
        begin = time.thread_time()  # of the processor: others may be busy
        ledger.flush()
        taken_s = time.thread_time() - begin
        connection.execute("ROLLBACK")
        return taken_s

    pairs = [(timed(MANY // 4), timed(MANY)) for _ in range(3)]
    few_s, many_s = (min(times) for times in zip(*pairs, strict=True))
    connection.close()
    assert many_s < 6 * few_s, f"{MANY // 4:,}: {few_s:.3f} s, {MANY:,}: {many_s:.3f} s"
