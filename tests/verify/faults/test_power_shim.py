"""A power cut without root and without strace: what was synced is there, the rest is gone."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from holdfast.errors import FaultNotProven
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.engines.postgres import PostgresEngine
from holdfast.verify.faults import kill_tree
from holdfast.verify.instrument import Launch
from holdfast.verify.power.shim import ShimSupply
from tests.waiting import wait_until

WORKER = """
import mmap, os, sys
os.chdir(sys.argv[1])
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
SQLITE = """
import sqlite3, sys
path, journal, level = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute(f"PRAGMA journal_mode={journal}").fetchall()
db.execute(f"PRAGMA synchronous={level}")
db.execute("CREATE TABLE IF NOT EXISTS t (n)")
print("ready", flush=True)
sys.stdin.readline()
for n in range(10**6):
    db.execute("INSERT INTO t VALUES (?)", (n,))
    print(n, flush=True)
"""


@pytest.fixture
def supply() -> Iterator[ShimSupply]:
    with ShimSupply() as made:
        yield made


class Worker:
    """A process below the directory that does one line after another."""

    def __init__(self, supply: ShimSupply, *, under: bool = True, program: str = WORKER, args=()):
        command = (sys.executable, "-c", program, *(args or (str(supply.directory),)))
        launch = Launch(command, dict(os.environ)).under(supply.instruments if under else ())
        self.process = subprocess.Popen(
            launch.command, env=launch.environment, stdin=-1, stdout=-1, text=True, bufsize=1
        )

    def say(self, line: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        if self.process.poll() is None:
            kill_tree(self.process)
        self.process.communicate()


@pytest.fixture
def worker(supply: ShimSupply) -> Iterator[Worker]:
    made = Worker(supply)
    yield made
    made.end()


def test_content_and_names_are_those_of_the_last_sync(supply: ShimSupply, worker: Worker):
    worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT); os.write(a, b'old')")
    worker.say("os.fsync(a); os.pwrite(a, b'new', 0); os.write(a, b' and more')")
    worker.say("b = os.open('b', os.O_RDWR | os.O_CREAT); os.write(b, b'x' * 5000)")
    evidence = supply.cut(worker.end)
    assert (supply.directory / "a").read_bytes() == b"old"
    assert not (supply.directory / "b").exists()
    assert evidence.facts["unsynced_bytes"] == 12 + 5000
    assert evidence.facts["mechanism"] == "shim"


def test_any_sync_takes_every_name_along_and_no_content(supply: ShimSupply, worker: Worker):
    worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT); os.write(a, b'1'); os.fsync(a)")
    worker.say("os.mkdir('d'); b = os.open('d/b', os.O_RDWR | os.O_CREAT); os.write(b, b'2')")
    worker.say("os.rename('a', 'c'); os.fdatasync(a); os.rename('c', 'e'); os.unlink('d/b')")
    supply.cut(worker.end)
    found = {path.relative_to(supply.directory).as_posix() for path in supply.directory.rglob("*")}
    assert found == {"c", "d", "d/b"}
    assert (supply.directory / "c").read_bytes() == b"1"
    assert (supply.directory / "d" / "b").read_bytes() == b""


def test_a_used_inode_number_brings_no_old_content_back(supply: ShimSupply, worker: Worker):
    worker.say("k = os.open('k', os.O_RDWR | os.O_CREAT)")
    for _ in range(20):  # sooner or later the number is used again
        worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT); os.write(a, b'old'); os.fsync(a)")
        worker.say("os.close(a); os.unlink('a'); os.fsync(k)")
    worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT); os.write(a, b'new'); os.fsync(k)")
    supply.cut(worker.end)
    assert (supply.directory / "a").read_bytes() == b""


def test_a_sync_takes_no_lock_away(supply: ShimSupply, worker: Worker):
    worker.say("import fcntl; a = os.open('a', os.O_RDWR | os.O_CREAT)")
    worker.say("fcntl.lockf(a, fcntl.LOCK_EX); os.fsync(a)")
    with (supply.directory / "a").open("rb+") as file, pytest.raises(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_sync_of_the_whole_system_keeps_everything(supply: ShimSupply, worker: Worker):
    worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT); os.write(a, b'1'); os.sync()")
    worker.say("os.write(a, b'2')")
    supply.cut(worker.end)
    assert (supply.directory / "a").read_bytes() == b"1"


def test_a_disk_that_refuses_every_sync_refuses_that_of_a_whole_file_system(
    supply: ShimSupply, worker: Worker
):
    worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT); os.write(a, b'1'); os.fsync(a)")
    worker.say("import ctypes; syncfs = ctypes.CDLL(None).syncfs; os.write(a, b'2')")
    supply.fail_syncs()
    worker.say("open('answer', 'w').write(str(syncfs(a)))")
    answer = (supply.directory / "answer").read_text()
    supply.heal()
    supply.cut(worker.end)
    assert answer == "-1"
    assert (supply.directory / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("os.open('a', os.O_RDWR | os.O_CREAT | os.O_DSYNC)", "O_DSYNC"),
        ("f = open('a', 'wb+'); f.truncate(10); m = mmap.mmap(f.fileno(), 10); m.flush()", "msync"),
    ],
)
def test_what_is_not_followed_is_not_judged(
    supply: ShimSupply, worker: Worker, line: str, says: str
):
    worker.say(line)
    with pytest.raises(FaultNotProven, match=says):
        supply.cut(worker.end)


def test_a_process_that_ignores_the_preload_is_noticed(supply: ShimSupply):
    stranger = Worker(supply, under=False)
    try:
        stranger.say("a = os.open('a', os.O_RDWR | os.O_CREAT)")
        with pytest.raises(FaultNotProven, match="ignores the preload"):
            supply.cut(stranger.end)
    finally:
        stranger.end()


def test_who_was_not_ended_with_the_power_is_named_and_works_again(
    supply: ShimSupply, worker: Worker
):
    worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT)")
    with pytest.raises(FaultNotProven, match=f"process {worker.process.pid} still runs"):
        supply.cut(lambda: None)
    worker.say("os.write(a, b'later'); os.fsync(a)")


def lost_of_sqlite(supply: ShimSupply, journal: str, level: str) -> int:
    """Rows that were acknowledged before the cut and are not there after it."""
    path = str(supply.directory / f"{journal}.db")
    writer = Worker(supply, program=SQLITE, args=(path, journal, level))
    heard: list[tuple[int, int]] = []

    def listen() -> None:
        while (line := writer.hear()).isdigit():
            heard.append((time.monotonic_ns(), int(line)))

    assert writer.hear() == "ready"
    supply.settle()
    assert writer.process.stdin
    writer.process.stdin.write("go\n")
    thread = threading.Thread(target=listen)
    thread.start()
    wait_until(lambda: len(heard) >= 20)

    def end() -> None:
        writer.process.send_signal(signal.SIGKILL)
        thread.join()
        writer.process.wait()

    evidence = supply.cut(end)
    writer.process.communicate()
    known = {n for at_ns, n in heard if at_ns <= evidence.facts["at_ns"]}
    reader = "import sqlite3, sys; print([n for n, in sqlite3.connect(sys.argv[1]).execute('SELECT n FROM t')])"
    done = subprocess.run([sys.executable, "-c", reader, path], capture_output=True, check=True)
    return len(known - set(eval(done.stdout)))


def test_sqlite_keeps_with_full_sync_what_it_loses_without(supply: ShimSupply):
    assert lost_of_sqlite(supply, "WAL", "FULL") == 0
    assert lost_of_sqlite(supply, "DELETE", "EXTRA") == 0
    assert lost_of_sqlite(supply, "TRUNCATE", "OFF") >= 20


def lost_of_redis(engine: Engine, supply: ShimSupply) -> int:
    heard: list[tuple[int, int]] = []

    def write() -> None:
        client = redis.Redis.from_url(engine.url, retry=None)
        try:
            for n in range(10**6):
                client.rpush("log", n)
                heard.append((time.monotonic_ns(), n))
        except redis.ConnectionError:
            client.close()

    supply.settle()
    thread = threading.Thread(target=write)
    thread.start()
    wait_until(lambda: len(heard) >= 200)
    evidence = supply.cut(engine.kill)  # type: ignore[attr-defined]
    thread.join()
    engine.start()
    known = {n for at_ns, n in heard if at_ns <= evidence.facts["at_ns"]}
    with redis.Redis.from_url(engine.url) as client:
        return len(known - {int(n) for n in client.lrange("log", 0, -1)})


@pytest.mark.parametrize(("config", "loses"), [("aof-always", False), ("aof-everysec", True)])
def test_redis_loses_what_its_policy_says(supply: ShimSupply, config: str, loses: bool):
    with start_engine(
        "redis", config=config, storage=supply.directory, instruments=supply.instruments
    ) as engine:
        assert bool(lost_of_redis(engine, supply)) is loses


def test_postgres_comes_back_with_every_commit(supply: ShimSupply):
    with start_engine(
        "postgres", storage=supply.directory, instruments=supply.instruments
    ) as engine:
        assert isinstance(engine, PostgresEngine)
        engine.query("CREATE TABLE t (n int)")
        supply.settle()
        for n in range(30):
            engine.query(f"INSERT INTO t VALUES ({n})")
        evidence = supply.cut(engine.kill)
        engine.start()
        assert engine.query("SELECT count(*) FROM t") == [("30",)]
        assert evidence.facts["unsynced_bytes"] > 0


def test_postgres_comes_back_with_one_sync_of_its_disk_not_with_one_for_each_file(
    supply: ShimSupply,
):
    with start_engine(
        "postgres", storage=supply.directory, instruments=supply.instruments
    ) as engine:
        assert isinstance(engine, PostgresEngine)
        supply.settle()
        before = supply.cut(engine.kill).facts["syncs"]
        engine.start()
        files = sum(path.is_file() for path in engine.data_dir.rglob("*"))
        assert supply.cut(engine.kill).facts["syncs"] - before < files / 4


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOLDFAST_DISK_DIR", str(tmp_path))
    with ShimSupply() as supply:
        assert supply.directory.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_failed_fsync_lost_no_later_fsync_brings_back(supply: ShimSupply, worker: Worker):
    worker.say("a = os.open('a', os.O_RDWR | os.O_CREAT); os.write(a, b'one'); os.fsync(a)")
    supply.fail_syncs(1)
    worker.say("os.write(a, b' two')")
    worker.say("import contextlib")
    worker.say("with contextlib.suppress(OSError): os.fsync(a); os.write(a, b' acknowledged')")
    worker.say("os.fsync(a)")
    assert supply.heal().facts["refused"] == 1
    supply.cut(worker.end)
    assert (supply.directory / "a").read_bytes() == b"one"
    with pytest.raises(FaultNotProven):
        supply.heal()
