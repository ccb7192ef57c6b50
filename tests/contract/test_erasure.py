"""10 forgotten, on the disk: a forget says where copies are left, and the bytes agree with it."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import apsw
import psycopg
import pytest

import holdfast
from holdfast import SessionState, UsageError
from holdfast.backends.postgres.statements import Statement, Statements
from holdfast.backends.redis import cleaning
from holdfast.backends.redis.command_steps import Engine
from holdfast.verify.engines import start_engine
from tests.contract.harness import AnyStore, Opener, SqliteHarness, say
from tests.contract.harness_postgres import PostgresHarness
from tests.contract.harness_redis import RedisHarness
from tests.waiting import wait_until


def secrets(count: int = 40) -> list[str]:
    """Short and random, so that no engine compresses them."""
    return [f"secret-{os.urandom(16).hex()}" for _ in range(count)]


class Disk:
    """The files of an engine, and which of some texts stand in them."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.folder: Path = (
            harness.folder if hasattr(harness, "folder") else harness.engine.data_dir
        )

    def holding(self, texts: list[str]) -> set[str]:
        """Paths of the files that have at least one of them."""
        if isinstance(self.harness, PostgresHarness):
            self.harness.engine.query("CHECKPOINT")  # type: ignore[attr-defined] # a PostgreSQL
        wanted, found = [text.encode() for text in texts], set()
        for file in self.folder.rglob("*"):
            try:
                data = file.read_bytes() if file.is_file() else b""
            except FileNotFoundError:  # it went in the meantime
                continue
            if any(one in data for one in wanted):
                found.add(str(file.relative_to(self.folder)))
        return found


@pytest.fixture(params=[SqliteHarness, RedisHarness, PostgresHarness])
def disk(request: pytest.FixtureRequest, disk_path: Path) -> Disk:
    return Disk(request.param(disk_path))


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, disk: Disk) -> Any:
    opener = Opener(disk.harness, request.param)
    yield opener()
    opener.close()


def filled(store: AnyStore) -> list[str]:
    texts = secrets()
    store.append("keep", say("other things"))
    store.append("s", [say(text) for text in texts[:20]])
    for text in texts[20:]:
        store.append("s", say(text))
    return texts


def test_a_forget_names_every_place_that_has_a_copy(disk: Disk, store: AnyStore):
    texts = filled(store)
    assert disk.holding(texts), "the test looks in the wrong place"
    erased = store.forget("s")
    holding = disk.holding(texts)
    assert erased.scrubbed is (not erased.left)
    assert bool(holding) == bool(erased.left), (holding, erased.left)
    words = " ".join(erased.left)
    for part, word in {
        "base/": "base/",
        "pg_wal/": "pg_wal",
        ".aof": "append-only",
        "-wal": "-wal",
    }.items():
        if any(part in path for path in holding):
            assert word in words, (holding, erased.left)


def test_a_forget_with_now_leaves_as_little_as_the_engine_can(disk: Disk, store: AnyStore):
    texts = filled(store)
    erased = store.forget("s", now=True)
    assert erased.messages == 40
    if isinstance(disk.harness, PostgresHarness):  # VACUUM frees room, and overwrites none
        assert ["base/" in place or "pg_wal" in place for place in erased.left] == [True, True]
        return
    assert (erased.left, erased.scrubbed) == ((), True)
    wait_until(lambda: not disk.holding(texts))  # Redis unlinks the old file a moment later
    assert len(store.history("keep")) == 1


def test_a_full_forget_leaves_no_copy_in_any_table_or_file_but_the_log_of_postgresql(
    disk: Disk, store: AnyStore
):
    texts = filled(store)
    is_postgres = isinstance(disk.harness, PostgresHarness)
    if is_postgres:  # the server does so by itself, and keeps samples of what it sees
        disk.harness.engine.query(f"ANALYZE {disk.harness.schema}.messages")

    def is_clean() -> bool:  # again, if a transaction of the server's own was in the way
        return ["pg_wal" in place for place in store.forget("s", now="full").left] == [
            True
        ] * is_postgres

    wait_until(is_clean)
    # Each look is a checkpoint, after which a segment of the log may be written over at any time.
    may_hold = {"pg_wal"} if is_postgres else set()
    holding: set[str] = set()

    def is_gone() -> bool:
        holding.clear()
        holding.update(disk.holding(texts))
        return {path.split("/")[0] for path in holding} <= may_hold

    with contextlib.suppress(AssertionError):
        wait_until(is_gone)
    assert is_gone(), holding
    if is_postgres:
        asked = f"SELECT attname FROM pg_stats WHERE schemaname = '{disk.harness.schema}' AND attname = 'record'"
        assert not disk.harness.engine.query(asked), (
            "samples of the texts, for everybody who may read them"
        )
    assert len(store.history("keep")) == 1


def test_what_never_was_leaves_nothing(store: AnyStore):
    erased = store.forget("never", now=True)
    assert (erased.messages, erased.left, erased.scrubbed) == (0, (), True)
    with pytest.raises(UsageError, match="now must be"):
        store.forget("s", now="soon")  # type: ignore[call-overload]


def test_many_that_were_forgotten_before_are_cleaned_by_now_too(disk: Disk, store: AnyStore):
    """A plain forget came before, or the same call was killed before it had cleaned anything."""
    texts, names = secrets(2), [f"anna-{os.urandom(16).hex()}" for _ in range(2)]
    is_postgres = isinstance(disk.harness, PostgresHarness)
    is_sqlite = isinstance(disk.harness, SqliteHarness)
    with contextlib.closing(reader_of(disk)) if is_sqlite else contextlib.nullcontext():
        for name, text in zip(names, texts, strict=True):
            store.append(name, say(text), key="first")
        assert store.forget(prefix=names[0]).left
        assert store.forget(names[1], now=True).left or not is_postgres
    cleaned = store.forget(prefix="anna-", now=True)
    assert (cleaned.sessions, cleaned.before) == ((), 1)
    assert store.append(names[0], say(texts[0]), key="first").repeated
    assert not any(name in line for name in names for line in store.export())
    if is_postgres:
        assert len(cleaned.left) == 2
    else:
        assert cleaned.left == ()
        wait_until(lambda: not disk.holding([*texts, *names]))


# SQLite: one file, and the -wal file beside it.


@pytest.fixture
def file(disk_path: Path) -> Disk:
    return Disk(SqliteHarness(disk_path))


def reader_of(file: Disk) -> apsw.Connection:
    """One that has a snapshot until it is closed."""
    reader = apsw.Connection(str(file.harness.path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sessions").fetchall()
    return reader


def test_a_rewrite_and_an_expiry_leave_no_copy_in_the_files(file: Disk):
    texts = secrets(2)
    with holdfast.connect(file.harness.url) as store:
        store.append("s", say(texts[0]))
        store.rewrite("s", say("instead"))
        assert file.holding(texts) == set()
    with holdfast.connect(file.harness.url) as store:
        store.append("brief", say(texts[1]), ttl_s=0.02)
        assert file.holding(texts), "the test looks in the wrong place"
        wait_until(lambda: store.stat("brief").state is SessionState.EXPIRED)

        def swept() -> bool:  # one of the next writes sweeps, and empties the log with that
            store.append("busy", say("x"))
            return file.holding(texts) == set()

        wait_until(swept)


def test_what_a_reader_kept_in_the_log_is_named_and_goes_with_a_later_write(file: Disk):
    texts = secrets(1)
    with holdfast.connect(file.harness.url) as store:
        store.append("s", say(texts[0]))
        reader = reader_of(file)
        erased = store.forget("s")
        assert not erased.scrubbed
        assert "-wal" in erased.left[0]
        assert file.holding(texts) == {"memory.db-wal"}
        reader.close()

        def written() -> bool:
            store.append("busy", say("x"))
            return file.holding(texts) == set()

        wait_until(written)


def test_what_a_reader_kept_in_the_log_goes_when_the_store_is_closed_beside_another(file: Disk):
    """The other one does not know that there is something to empty."""
    texts = secrets(1)
    with holdfast.connect(file.harness.url) as other:
        with holdfast.connect(file.harness.url) as store:
            store.append("s", say(texts[0]))
            reader = reader_of(file)
            assert not store.forget("s").scrubbed
            reader.close()
        assert file.holding(texts) == set()
        assert other.stat("s").state is SessionState.FORGOTTEN


def test_a_forget_with_now_waits_for_a_reader(file: Disk):
    texts = secrets(1)
    with holdfast.connect(file.harness.url) as store:
        store.append("s", say(texts[0]))
        reader = reader_of(file)
        gone = threading.Timer(1.0, reader.close)  # later than a plain forget waits
        gone.start()
        assert store.forget("s", now=True).scrubbed
        assert file.holding(texts) == set()
        gone.join(10)


def test_the_files_are_private_to_their_owner(file: Disk):
    before = os.umask(0o022)
    try:
        with holdfast.connect(file.harness.url) as store:
            store.append("s", say("x"))
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in file.folder.iterdir()}
    finally:
        os.umask(before)
    assert modes == {f"memory.db{end}": 0o600 for end in ("", "-wal", "-shm")}


def test_a_file_that_is_there_keeps_its_mode(file: Disk):
    file.harness.path.touch(0o640)
    file.harness.path.chmod(0o640)
    with holdfast.connect(file.harness.url) as store:
        store.append("s", say("x"))
        modes = {stat.S_IMODE(each.stat().st_mode) for each in file.folder.iterdir()}
    assert modes == {0o640}


# Redis and PostgreSQL: what cannot be cleaned now is said.


def test_a_rewrite_of_the_file_that_does_not_end_in_time_is_said(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cleaning, "TIMEOUT_S", 0.0)
    with holdfast.connect(RedisHarness(disk_path).url) as store:
        filled(store)
        assert "BGREWRITEAOF" in store.forget("s", now=True).left[0]


def test_many_that_clean_at_once_all_do(disk_path: Path):
    """A rewrite that began before one's own forget may have old records in it: each has its own."""
    count = 8
    together = threading.Barrier(count)
    with holdfast.connect(RedisHarness(disk_path).url) as store:
        for number in range(count):
            store.append(f"s{number}", say("x"))

        def forget(number: int) -> tuple[str, ...]:
            together.wait(30)
            return store.forget(f"s{number}", now=True).left

        with ThreadPoolExecutor(count) as threads:
            assert list(threads.map(forget, range(count))) == [()] * count


def test_many_are_cleaned_together(disk_path: Path):
    """A rewrite for each would take as many times as long."""
    harness = RedisHarness(disk_path)
    with holdfast.connect(harness.url) as store:
        for number in range(5):
            store.append(f"p/{number}", say("x"))
        before = int(harness.engine.info("persistence")["aof_rewrites"])
        assert len(store.forget(prefix="p/", now=True).sessions) == 5
        assert int(harness.engine.info("persistence")["aof_rewrites"]) == before + 1


def test_a_server_that_ended_in_its_rewrite_has_not_done_it(monkeypatch: pytest.MonkeyPatch):
    """Once it is back it says that its last rewrite was well: there was none since it began."""
    with (
        start_engine("redis", config="aof-always") as engine,
        holdfast.connect(engine.url) as store,
    ):
        texts = filled(store)
        begin, server = cleaning._begin, cast("Any", engine)

        def ended_then(ask: Any, words: Any) -> Any:
            began = yield from begin(ask, words)
            server.kill()
            server.restart()
            return began

        server.call("CONFIG", "SET", "rdb-key-save-delay", "1000000")  # so that it is under way
        monkeypatch.setattr(cleaning, "_begin", ended_then)
        left = store.forget("s", now=True).left
        data = b"".join(file.read_bytes() for file in server.data_dir.rglob("*.aof"))
        assert any(text.encode() in data for text in texts), "the rewrite was done"
        assert ["BGREWRITEAOF" in place for place in left] == [True]


@pytest.mark.parametrize("is_there", [True, False])
def test_what_a_killed_load_left_is_erased_too(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
):
    """It had put the records beside the place of the session, and did not come to move them there."""
    disk, texts, name = Disk(RedisHarness(disk_path)), secrets(1), f"anna-{os.urandom(16).hex()}"
    stage = Engine._stage

    def killed_then(engine: Engine, *args: Any) -> Any:
        yield from stage(engine, *args)
        raise KeyboardInterrupt

    with holdfast.connect(disk.harness.url) as store:
        with holdfast.connect(disk.harness.url, namespace="other") as other:
            other.append(name, say(texts[0]), key="first")
            lines = list(other.export())
            other.forget(name, now=True)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Engine, "_stage", killed_then)
            store.load(lines)
        if is_there:
            store.append(name, say("own"))
        assert disk.holding(texts), "the test looks in the wrong place"
        assert store.forget(name, now=True).left == ()
        wait_until(lambda: not disk.holding([*texts, name]))


@pytest.mark.parametrize("save", ["3600 1000", ""])
@pytest.mark.parametrize("how", ["SAVE", "BGSAVE"])
def test_a_snapshot_is_rewritten_too(disk_path: Path, save: str, how: str):
    """Also one that was made by hand, or for a replica, where the server makes none by itself."""
    disk = Disk(RedisHarness(disk_path))
    engine = disk.harness.engine
    before = engine.call("CONFIG", "GET", "save")[1]
    engine.call("CONFIG", "SET", "save", save)
    engine.call("CONFIG", "SET", "rdbcompression", "no")  # so that texts can be found
    try:
        with holdfast.connect(disk.harness.url) as store:
            texts = filled(store)
            engine.call(how)
            wait_until(lambda: any(path.endswith("dump.rdb") for path in disk.holding(texts)))
            assert store.forget("s", now=True).left == ()
            wait_until(lambda: not disk.holding(texts))
    finally:
        engine.call("CONFIG", "SET", "save", before)
        engine.call("CONFIG", "SET", "rdbcompression", "yes")


def test_rows_that_an_older_transaction_may_need_are_said_to_be_left(disk_path: Path):
    harness = PostgresHarness(disk_path)
    with holdfast.connect(harness.url) as store, psycopg.connect(harness.engine.url) as other:
        filled(store)
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")  # from now on it has a snapshot
        erased = store.forget("s", now="full")
        assert any("base/" in place for place in erased.left), erased


AUTOVACUUM: Final = {  # at once and slowly, so that its second half can be met
    "autovacuum_naptime": "1",
    "autovacuum_vacuum_cost_delay": "10ms",
    "autovacuum_vacuum_cost_limit": "1",
    "vacuum_cost_page_dirty": "0",
    "vacuum_cost_page_miss": "1",
}
ANALYZES: Final = (
    "SELECT 1 FROM pg_stat_progress_analyze JOIN pg_stat_activity USING (pid)"
    " WHERE starts_with(query, 'autovacuum: VACUUM ANALYZE ')"
)


def test_an_autovacuum_that_analyzes_keeps_deleted_rows_too():
    """Its first half needs no old rows. Its second half does, and goes by the same name."""
    with start_engine("postgres", settings=AUTOVACUUM, storage="disk") as engine:
        with (
            psycopg.connect(engine.url, autocommit=True) as other,
            holdfast.connect(engine.url) as store,
        ):
            other.execute(
                "CREATE TABLE big AS SELECT repeat('x', 500) FROM generate_series(1, 6000)"
            )
            other.execute("DELETE FROM big WHERE ctid IN (SELECT ctid FROM big LIMIT 3000)")
            wait_until(lambda: bool(other.execute(ANALYZES).fetchall()), within_s=90)
            filled(store)
            left = store.forget("s", now="full").left
            assert other.execute(ANALYZES).fetchall(), "it ended too early to be in the way"
        assert ["base/" in place or "pg_wal" in place for place in left] == [True, True]


def test_a_transaction_that_only_wrote_keeps_deleted_rows_too(disk_path: Path):
    """It has a number, and no snapshot between its statements."""
    disk = Disk(PostgresHarness(disk_path))
    url = disk.harness.engine.url
    with holdfast.connect(disk.harness.url) as store, psycopg.connect(url) as other:
        texts = filled(store)
        other.execute("SELECT pg_current_xact_id()")
        erased = store.forget("s", now="full")
        assert any(path.startswith("base/") for path in disk.holding(texts))
        assert any("base/" in place for place in erased.left), erased


def test_an_older_transaction_that_ends_after_the_tables_were_rewritten_counts(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
):
    disk = Disk(PostgresHarness(disk_path))
    url, vacuum = disk.harness.engine.url, Statements.vacuum
    with holdfast.connect(disk.harness.url) as store, psycopg.connect(url) as other:
        texts = filled(store)
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")
        looked = Statements.rewritten

        def looked_after_it(statements: Statements) -> Statement:
            if began:
                other.rollback()
            return looked(statements)

        def begin(statements: Statements, tables: list[str], *, full: bool) -> Statement:
            began.append(full)
            return vacuum(statements, tables, full=full)

        began: list[bool] = []
        monkeypatch.setattr(Statements, "rewritten", looked_after_it)
        monkeypatch.setattr(Statements, "vacuum", begin)
        erased = store.forget("s", now="full")
        assert began == [True]
        assert any(path.startswith("base/") for path in disk.holding(texts))
        assert any("base/" in place for place in erased.left), erased


@pytest.mark.parametrize("table", ["sessions", "messages", "entries", "words"])
def test_a_table_that_was_locked_is_said_to_be_left(disk_path: Path, table: str):
    harness = PostgresHarness(disk_path)
    with holdfast.connect(harness.url) as store, psycopg.connect(harness.engine.url) as other:
        filled(store)
        other.execute(f"LOCK TABLE {harness.schema}.{table} IN ROW EXCLUSIVE MODE".encode())
        erased = store.forget("s", now="full")
        assert any("base/" in place for place in erased.left), erased
