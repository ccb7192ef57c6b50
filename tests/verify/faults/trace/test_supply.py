"""Real programs under the recorder: what a power cut leaves of them is known by reasoning."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import FaultNotProven, VerifyError
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.instrument import Launch
from holdfast.verify.power.trace import Loss, Recorder, Recording, TraceSupply, build
from holdfast.verify.power.trace.recorder import clock_offset_ns

PYTHON = (sys.executable, "-I", "-S", "-c")


class Desk:
    """A directory that is recorded."""

    def __init__(self, folder: Path) -> None:
        self.run, self.folder = folder / "run", folder
        self.run.mkdir()
        (folder / "trace").mkdir()
        self.recorder = Recorder(self.run, folder / "trace")

    def do(self, program: str) -> None:
        launch = self.recorder.wrap(Launch((*PYTHON, textwrap.dedent(program)), {}))
        subprocess.run(launch.command, cwd=self.run, check=True)

    def recording(self) -> Recording:
        found = self.recorder.finish()
        found.prove(self.run)
        return found

    def left(self, loss: Loss, seed: int = 0) -> dict[str, str]:
        """What the power leaves after all that was done."""
        recording = self.recording()
        disk = recording.disk()
        disk.take(recording.operations)
        place = self.folder / f"{loss}-{seed}"
        place.mkdir()
        build(disk.crash(0, loss, seed), recording.base, recording.kinds, place)
        return {p.name: p.read_text() for p in place.rglob("*") if p.is_file()}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


WRITE = """
    import os
    def write(name, text, sync):
        file = os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.write(file, text)
        if sync:
            os.fsync(file)
        os.close(file)
"""


def test_only_what_was_synced_survives(desk: Desk):
    desk.do(WRITE + "    write('a', b'A', True); write('b', b'B', False)")
    assert desk.left(Loss.DROPPED) == {"a": "A"}
    assert desk.left(Loss.NAMES) == {"a": "A", "b": ""}


def test_a_rename_without_a_sync_may_leave_an_empty_file(desk: Desk):
    desk.do(WRITE + "    write('file', b'old', True)")
    desk.do(WRITE + "    write('tmp', b'new', False); os.rename('tmp', 'file')")
    assert desk.left(Loss.NAMES) == {"file": ""}
    assert desk.left(Loss.DROPPED) == {"file": "old"}


def test_a_rename_after_a_sync_leaves_the_old_file_or_the_new_one(desk: Desk):
    desk.do(WRITE + "    write('file', b'old', True)")
    desk.do(WRITE + "    write('tmp', b'new', True); os.rename('tmp', 'file')")
    left = {desk.left(loss, seed)["file"] for loss in Loss for seed in range(5)}
    assert left == {"old", "new"}
    desk.do("import os; os.fsync(os.open('.', os.O_RDONLY))")
    assert desk.left(Loss.DROPPED, 5) == {"file": "new"}


NASTY = """
    import fcntl, os, shutil, subprocess, threading
    os.makedirs("sub/deep")
    one, turn = os.open("one", os.O_CREAT | os.O_RDWR), threading.Lock()
    def work(letter):
        for _ in range(40):
            other = os.open(f"t-{letter}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.write(other, letter * 3)
            os.close(other)
            with turn:
                os.write(one, letter * 700)
    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c")]
    [t.start() for t in threads]; [t.join() for t in threads]
    os.lseek(one, 100, os.SEEK_SET); os.read(one, 50)
    os.writev(one, [b"[vec]", b'"tor\\\\"'])
    twin = os.dup(one); os.close(one)
    if os.fork() == 0:
        os.write(twin, b"child"); os._exit(0)
    os.wait()
    os.write(twin, b"parent"); os.pwrite(twin, b"far", 20000); os.ftruncate(twin, 30000)
    os.posix_fallocate(twin, 0, 40000)
    shutil.copyfile("one", "sub/copy"); shutil.copyfile("one", "sub/twice")
    os.link("sub/copy", "linked"); os.symlink("one", "sign"); os.unlink("sub/copy")
    os.rename("sub", "moved"); os.mkdir("moved/new"); os.rmdir("moved/deep")
    subprocess.run("echo redirected >> log; echo more >> log; cat one > moved/cat", shell=True)
    with open("text", "w") as text: text.write("x" * 10000 + "\\n\\0é")
    with open("text", "r+") as text: text.read(10); text.seek(5); text.write("YY")
    fcntl.fcntl(twin, fcntl.F_SETFL, os.O_APPEND); os.write(twin, b"at the end")
    os.unlink("text")
"""


def test_a_nasty_program_is_replayed_byte_for_byte(desk: Desk):
    (desk.run / "before").write_text("here before anybody was traced")
    desk.do(NASTY)
    desk.recorder.settle()
    recording = desk.recording()
    assert len(recording.operations) > 240
    disk = recording.disk()
    disk.take(recording.operations)
    assert disk.at_rest


def test_a_change_that_nobody_traced_leaves_the_verdict_unknown(desk: Desk):
    desk.do(WRITE + "    write('a', b'A', True)")
    (desk.run / "a").write_text("B")
    with pytest.raises(FaultNotProven, match="a differs at byte 0"):
        desk.recording()


def test_a_file_that_is_written_through_memory_leaves_the_verdict_unknown(desk: Desk):
    desk.do("""
        import mmap, os
        file = os.open("m", os.O_CREAT | os.O_RDWR); os.ftruncate(file, 4096)
        mmap.mmap(file, 4096)[0:1] = b"x"
    """)
    with pytest.raises(FaultNotProven, match="mmap"):
        desk.recording()


def test_the_clock_of_the_tracer_is_the_clock_of_the_acks(desk: Desk):
    """A process notes our clock around a sync; the recorded end must lie between the notes."""
    desk.do("""
        import os, time
        file = os.open("times", os.O_CREAT | os.O_WRONLY)
        for _ in range(50):
            before = time.monotonic_ns(); os.fsync(file); after = time.monotonic_ns()
            os.write(file, f"{before} {after}\\n".encode())
    """)
    notes = [
        tuple(map(int, line.split())) for line in (desk.run / "times").read_text().splitlines()
    ]
    syncs = [o for o in desk.recording().operations if type(o).__name__ == "Sync"]
    assert len(syncs) == len(notes) == 50
    for sync, (before, after) in zip(syncs, notes, strict=True):
        assert before <= sync.began_ns <= sync.at_ns <= after
    off = [abs(clock_offset_ns() - (time.time_ns() - time.monotonic_ns())) for _ in range(100)]
    assert min(off) < 1_000_000


def test_without_strace_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VerifyError, match="apt-get install strace"):
        TraceSupply()


def test_where_nothing_can_be_traced_the_control_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    strace = tmp_path / "strace"
    strace.write_text("#!/bin/sh\necho 'ptrace: Operation not permitted' >&2\nexit 1\n")
    strace.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FaultNotProven, match="Operation not permitted"):
        TraceSupply()


# The supply


@pytest.fixture
def supply() -> Iterator[TraceSupply]:
    with TraceSupply() as opened:
        yield opened
        home = opened.directory.parent
    assert not home.exists()


@pytest.mark.parametrize("config", ["aof-always", "aof-everysec"])
def test_a_power_cut_takes_from_redis_what_was_not_synced(supply: TraceSupply, config: str):
    engine: Engine
    with start_engine(
        "redis", config=config, storage=supply.directory, instruments=supply.instruments
    ) as engine:
        assert isinstance(engine, RedisEngine)
        engine.call("SET", "n", "first")
        supply.settle()
        left, dropped = [], 0
        for _ in range(2):
            for number in range(60):
                engine.call("SET", "n", str(number))
            evidence = supply.cut(engine.kill)
            engine.start()
            assert evidence.facts["mechanism"] == "trace"
            left.append(engine.call("GET", "n"))
            dropped += evidence.facts["unsynced_bytes"]
    if config == "aof-always":
        assert left == ["59", "59"]
    else:  # the sync of that second may come right before one of the cuts
        assert left != ["59", "59"]
        assert dropped > 0


COMMITS = """
    import os, signal, sqlite3
    db = sqlite3.connect("memory.db", isolation_level=None)
    db.execute("PRAGMA journal_mode={journal}").fetchall()
    db.execute("PRAGMA synchronous={synchronous}")
    db.execute("CREATE TABLE IF NOT EXISTS t (n)")
    for n in range(20):
        db.execute("INSERT INTO t VALUES (?)", (n,))
    print("acknowledged", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize(
    ("journal", "synchronous", "left"),
    [
        ("WAL", "FULL", lambda n: n == 20),
        ("WAL", "OFF", lambda n: n is None),
        ("DELETE", "FULL", lambda n: n == 19),  # the name of the journal is removed, not synced
        ("DELETE", "EXTRA", lambda n: n == 20),
    ],
)
def test_sqlite_loses_by_its_settings_what_the_table_says(
    supply: TraceSupply, journal: str, synchronous: str, left: Callable[[int | None], bool]
):
    program = textwrap.dedent(COMMITS.format(journal=journal, synchronous=synchronous))
    launch = Launch((sys.executable, "-I", "-c", program), os.environ).under(supply.instruments)
    process = subprocess.Popen(launch.command, cwd=supply.directory, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"acknowledged\n"

        def end() -> None:
            process.kill()
            process.wait()

        supply.cut(end)
    assert left(count(supply.directory / "memory.db"))


def count(path: Path) -> int | None:
    """How many rows are there; None where the table or the file is not."""
    look = (
        "import sqlite3, sys\n"
        "try: print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM t').fetchone()[0])\n"
        "except sqlite3.OperationalError: print('')"
    )
    told = subprocess.run(
        [sys.executable, "-I", "-c", look, path], capture_output=True, text=True, check=True
    )
    return int(told.stdout) if told.stdout.strip() else None


def test_whoever_waits_through_a_cut_is_recorded_after_it(supply: TraceSupply):
    """As clients do that are started before and open their store after it."""
    launch = Launch(
        (
            *PYTHON,
            textwrap.dedent("input()\n" + textwrap.dedent(WRITE) + "write('late', b'L', True)"),
        ),
        {},
    ).under(supply.instruments)
    waiting = subprocess.Popen(launch.command, cwd=supply.directory, stdin=subprocess.PIPE)
    early = Launch((*PYTHON, textwrap.dedent(WRITE) + "write('early', b'E', False)"), {})
    subprocess.run(early.under(supply.instruments).command, cwd=supply.directory, check=True)
    supply.cut(lambda: None)
    assert list(supply.directory.iterdir()) == []
    waiting.communicate(b"go\n", timeout=30)
    supply.cut(lambda: None)
    assert [p.read_text() for p in supply.directory.iterdir()] == ["L"]
