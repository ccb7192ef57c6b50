"""A full disk is met by whoever writes to it, and there is room again afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.faults import FileSizeLimit, SmallDisk, disk_of, kill_tree
from tests.waiting import wait_until

# Commits rows to a SQLite file as long as it is asked to, and tells how each attempt ended.
WRITER = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("PRAGMA journal_mode=WAL; CREATE TABLE IF NOT EXISTS t (x)").fetchall()
print("ready", flush=True)
for _ in sys.stdin:
    try:
        db.execute("INSERT INTO t VALUES (zeroblob(100000))").fetchall()
        print("ok", flush=True)
    except apsw.Error as error:
        print(type(error).__name__, flush=True)
"""


class Writer:
    """A client process that writes to a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def write(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._line()

    def close(self) -> None:
        with self.process:
            kill_tree(self.process)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


CAP_SYS_RESOURCE = 24


def may_limit_others() -> bool:
    """Whether the limit can be set for PostgreSQL, which runs as another user under root."""
    if os.geteuid() != 0:
        return True
    [mask] = re.findall(r"CapEff:\s+(\w+)", Path("/proc/self/status").read_text())
    return bool(int(mask, 16) >> CAP_SYS_RESOURCE & 1)


needs_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root may mount a small disk; the limit that needs no root is tested",
)


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk; the limit that needs no root is tested")
    with SmallDisk() as disk:
        yield disk


def test_a_full_disk_gives_enospc_and_is_released(disk: SmallDisk) -> None:
    evidence = disk.fill()
    assert evidence.facts == {"mechanism": "tmpfs", "errno": errno.ENOSPC, "free_bytes": 0}
    with pytest.raises(OSError, match="No space left"):
        (disk.path / "file").write_bytes(b"x")
    disk.release()
    (disk.path / "file").write_bytes(b"x" * 100_000)


def test_some_room_may_be_left(disk: SmallDisk) -> None:
    assert disk.fill(leave_bytes=1_000_000).facts["free_bytes"] <= 1_000_000
    (disk.path / "file").write_bytes(bytes(900_000))
    with pytest.raises(OSError, match="No space left"):
        (disk.path / "more").write_bytes(bytes(900_000))


def test_a_disk_is_full_also_where_others_write_while_it_is_filled(disk: SmallDisk) -> None:
    stop = threading.Event()

    def write() -> None:
        with (disk.path / "log").open("ab", buffering=0) as log, contextlib.suppress(OSError):
            while not stop.is_set():
                log.write(bytes(4096))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        evidence = disk.fill()
    finally:
        stop.set()
        writer.join()
    assert evidence.facts["free_bytes"] < 4096 * 16
    with pytest.raises(OSError, match="No space left"):
        (disk.path / "file").write_bytes(bytes(4096 * 16))


def test_redis_under_the_limit_ends_and_comes_back_with_what_it_acknowledged() -> None:
    with start_engine("redis", storage="disk") as engine:
        assert isinstance(engine, RedisEngine)
        client = redis.Redis.from_url(engine.url, retry=Retry(NoBackoff(), 0))
        client.rpush("a", "1")
        fault = disk_of(engine.data_dir)
        fault.fill()
        with pytest.raises(redis.ConnectionError):
            client.rpush("a", "2")  # it syncs before it answers, so it cannot go on
        fault.release()
        wait_until(lambda: engine.pid is None)
        engine.start()
        assert client.lrange("a", 0, -1) == [b"1"]
        client.close()


def test_sqlite_in_another_process_meets_the_full_disk(disk: SmallDisk) -> None:
    writer = Writer(disk.path / "memory.db")
    try:
        assert writer.write() == "ok"
        disk.fill()
        assert writer.write() == "FullError"
        disk.release()
        assert writer.write() == "ok"
    finally:
        writer.close()
    with apsw.Connection(str(disk.path / "memory.db")) as db:
        assert db.execute("SELECT count(*) FROM t").get == 2
    db.close()


def test_redis_refuses_what_it_cannot_save(disk: SmallDisk) -> None:
    with (
        start_engine("redis", config="rdb-only", storage=disk.path) as engine,
        redis.Redis.from_url(engine.url) as client,
    ):
        client.set("a", os.urandom(100_000))
        disk.fill()
        with pytest.raises(redis.ResponseError):
            client.save()
        disk.release()
        assert client.save()


@needs_root
def test_postgres_says_that_the_disk_is_full_and_recovers() -> None:
    with (
        SmallDisk(size_bytes=256 * 1024 * 1024) as disk,
        start_engine("postgres", storage=disk.path) as engine,
        psycopg.connect(engine.url, autocommit=True) as client,
    ):
        client.execute("CREATE TABLE t (x text)")
        disk.fill()
        with pytest.raises(psycopg.OperationalError):
            client.execute("INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 9999)")
        disk.release()
        engine.stop()
        engine.start()
        with psycopg.connect(engine.url, autocommit=True) as again:
            again.execute("INSERT INTO t VALUES ('x')")
            assert again.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_without_root_a_running_process_is_limited(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "memory.db")
    try:
        assert writer.write() == "ok"
        fault = disk_of(tmp_path)
        assert fault.mechanism == "rlimit"
        evidence = fault.fill()
        assert evidence.facts["limits"] == {writer.process.pid: 0}
        assert writer.write() in ("FullError", "IOError")
        fault.release()
        assert writer.write() == "ok"
        fault.close()
    finally:
        writer.close()
    (tmp_path / "ours").write_text("nobody else is limited")


def test_postgres_under_the_limit_loses_nothing_that_it_acknowledged() -> None:
    with start_engine("postgres", storage="disk") as engine:
        assert engine.data_dir is not None
        with psycopg.connect(engine.url, autocommit=True) as client:
            client.execute("CREATE TABLE t AS SELECT 1 AS n")
            fault = disk_of(engine.data_dir)
            if not may_limit_others():
                with pytest.raises(FaultNotProven, match="may not limit process"):
                    fault.fill()
                return
            assert len(fault.fill().facts["limits"]) > 1, "the backends are limited too"
            with pytest.raises(psycopg.Error, match="File too large"):
                client.execute("INSERT INTO t SELECT generate_series(1, 99999)")
        fault.close()
        engine.stop()
        engine.start()
        with psycopg.connect(engine.url) as client:
            assert client.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_a_process_that_the_limit_would_kill_is_spared() -> None:
    process = subprocess.Popen(["/bin/sleep", "60"])
    try:
        with pytest.raises(FaultNotProven, match="would die of SIGXFSZ"):
            FileSizeLimit([process.pid]).fill()
        assert process.poll() is None
    finally:
        kill_tree(process)


def test_nobody_to_limit_is_not_proven(tmp_path: Path) -> None:
    with pytest.raises(FaultNotProven, match="is alive"):
        disk_of(tmp_path)


def test_the_disk_of_a_directory_on_a_small_disk_is_that_disk(disk: SmallDisk) -> None:
    (disk.path / "below").mkdir()
    fault = disk_of(disk.path / "below")
    assert fault.mechanism == "tmpfs"
    fault.fill()
    with pytest.raises(OSError, match="No space left"):
        (disk.path / "file").write_bytes(b"x")
    fault.close()
    (disk.path / "file").write_bytes(b"x")


def test_a_disk_of_no_size_is_refused() -> None:
    with pytest.raises(UsageError, match="at least"):
        SmallDisk(size_bytes=0)


@needs_root
def test_a_closed_disk_leaves_no_mount_even_with_an_open_file() -> None:
    disk = SmallDisk()
    with (disk.path / "file").open("w"):
        disk.close()
    assert str(disk.path) not in Path("/proc/mounts").read_text()
    assert not disk.path.exists()
    disk.close()


@needs_root
def test_a_killed_run_leaves_no_mount() -> None:
    program = (
        "import time\nfrom holdfast.verify.faults import SmallDisk\n"
        "print(SmallDisk().path, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        path = Path(run.stdout.readline().strip())
        assert str(path) in Path("/proc/mounts").read_text()
        os.kill(run.pid, 9)
    wait_until(lambda: not path.exists())
    assert str(path) not in Path("/proc/mounts").read_text()
