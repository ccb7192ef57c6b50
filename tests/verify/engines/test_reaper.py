"""No engine and no directory outlives the run, however the run ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.waiting import wait_until

from holdfast.errors import EngineFailed
from holdfast.linux import descendants, is_gone
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import reaper
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.rundir import RunDir, _reaper

RUN = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from holdfast.verify.engines import start_engine
from holdfast.verify.rundir import _reaper
engine = start_engine(sys.argv[1], storage=sys.argv[2])
print(engine.data_dir.parent, engine.pid, _reaper._pid, flush=True)
{then}
"""


def _run(
    kind: str, then: str, storage: str = "memory"
) -> tuple[subprocess.Popen[str], Path, int, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN.format(then=then), kind, storage],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    home, pid, kept_by = process.stdout.readline().split()
    return process, Path(home), int(pid), int(kept_by)


def _watches(kept_by: int) -> bool:
    """Whether the reaper is past its own start: killed before that, a run is found dead at once."""
    for path in Path(f"/proc/{kept_by}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed after it was listed
            if "pidfd" in os.readlink(path):  # noqa: PTH115
                return True
    return False


def _finish(process: subprocess.Popen[str]) -> None:
    process.wait(20)
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize("kind", ["redis", "postgres", "chroma"])
@pytest.mark.parametrize("with_what", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_run_leaves_no_process_and_no_directory(
    kind: str, with_what: signal.Signals
) -> None:
    process, home, pid, kept_by = _run(kind, "time.sleep(60)")
    tree = descendants([pid])
    assert home.exists()
    process.send_signal(with_what)
    _finish(process)
    wait_until(lambda: all(is_gone(each) for each in [*tree, kept_by]), within_s=15)
    assert not home.exists()


@pytest.mark.parametrize("then", ["sys.exit(3)", "raise KeyError", "os._exit(1)", "pass"])
def test_a_run_that_just_ends_leaves_nothing(then: str) -> None:
    process, home, pid, _ = _run("redis", then)
    _finish(process)
    wait_until(lambda: is_gone(pid) and not home.exists(), within_s=15)


def test_a_group_that_is_killed_whole_leaves_nothing() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN.format(then="time.sleep(60)"), "redis", "memory"],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    home, pid, _ = process.stdout.readline().split()
    os.killpg(process.pid, signal.SIGKILL)
    _finish(process)
    wait_until(lambda: is_gone(int(pid)) and not Path(home).exists(), within_s=15)


@pytest.mark.parametrize("early", [True, False])
def test_a_fork_that_holds_the_pipe_open_does_not_keep_engines_alive(
    tmp_path: Path, early: bool
) -> None:
    """In a directory of its own, which no other run sweeps."""
    then = "child = os.fork()\nif child: print(child, flush=True)\ntime.sleep(60)"
    process, home, pid, kept_by = _run("redis", then, str(tmp_path))
    assert process.stdout is not None
    child = int(process.stdout.readline())
    wait_until(lambda: early or _watches(kept_by), within_s=15)
    process.kill()
    process.wait(20)
    try:
        wait_until(lambda: is_gone(pid) and not home.exists(), within_s=15)
        assert not is_gone(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_an_engine_outlives_the_thread_that_started_it() -> None:
    """The kernel's parent-death signal would end it with the thread."""
    engines = []
    thread = threading.Thread(target=lambda: engines.append(start_engine("redis")))
    thread.start()
    thread.join(30)
    (engine,) = engines
    assert isinstance(engine, RedisEngine)
    with engine:
        assert engine.call("PING") == "PONG"


@pytest.mark.parametrize("kind", ["redis", "postgres", "chroma"])
def test_ctrl_c_at_the_terminal_does_not_reach_the_engine(
    engine_factory: EngineFactory, kind: str
) -> None:
    """It goes to the whole process group of the foreground; PostgreSQL would shut down."""
    engine = engine_factory(kind)
    assert os.getpgid(engine.pid) != os.getpgid(0)


def test_the_end_of_a_fork_ends_nothing(redis_engine: RedisEngine) -> None:
    child = os.fork()
    if not child:
        redis_engine.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert redis_engine.call("PING") == "PONG"


def test_a_reaper_that_was_killed_is_replaced_by_one_that_knows_everything() -> None:
    then = (
        "os.kill(_reaper._pid, 9)\n"
        "os.waitid(os.P_PID, _reaper._pid, os.WEXITED | os.WNOWAIT)\n"
        "second = start_engine('redis')\n"
        "print(second.data_dir.parent, second.pid, flush=True)\n"
        "time.sleep(60)"
    )
    process, home, pid, _ = _run("redis", then)
    assert process.stdout is not None
    second_home, second_pid = process.stdout.readline().split()
    process.kill()
    _finish(process)
    wait_until(lambda: is_gone(pid) and is_gone(int(second_pid)), within_s=15)
    wait_until(lambda: not home.exists() and not Path(second_home).exists(), within_s=15)


def test_what_a_run_and_its_reaper_left_is_swept_by_the_next(tmp_path: Path) -> None:
    process, home, pid, kept_by = _run("redis", "time.sleep(60)")
    os.kill(kept_by, signal.SIGKILL)
    process.kill()
    _finish(process)
    assert home.exists()
    assert not is_gone(pid)
    reaper.sweep(str(home.parent))
    assert is_gone(pid)
    assert not home.exists()
    (tmp_path / "holdfast-run-elsewhere-1-1-ab").mkdir()
    (tmp_path / "holdfast-run-odd").mkdir()
    reaper.sweep(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2, "what is not ours to judge stays"


def test_the_directory_of_a_living_run_is_not_swept(redis_engine: RedisEngine) -> None:
    reaper.sweep(str(redis_engine.data_dir.parent.parent))
    assert redis_engine.data_dir.exists()
    assert redis_engine.call("PING") == "PONG"


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed):
        start_engine("redis", settings={"maxmemory": "plenty"}, storage=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    def interrupt(self: RedisEngine) -> bool:
        pids.append(self.pid or 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(RedisEngine, "_answers", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start_engine("redis", storage=tmp_path)
    assert is_gone(pids[0])
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_left_its_parent_is_found_by_its_directory(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    shell = f"cd {run_dir.path} && (sleep 60 >/dev/null & echo $!)"
    told = subprocess.run(
        ["/bin/sh", "-c", shell], stdout=subprocess.PIPE, check=True, text=True, timeout=10
    )
    assert reaper.processes_of(str(run_dir.path)) == [int(told.stdout)]
    run_dir.clear()
    assert is_gone(int(told.stdout))
    assert not run_dir.path.exists()
    assert str(run_dir.path) not in _reaper._lines


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to another user")
def test_what_somebody_else_put_there_is_not_swept(tmp_path: Path) -> None:
    """In a directory that all users share: names that are none, links, and folders of others."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    dead = reaper.owner_name(process.pid)
    process.wait()
    space, pid, _ = dead.split("-")
    odd = tmp_path / f"{reaper.DIR_PREFIX}{space}-x{pid}-0-1"
    link = tmp_path / f"{reaper.DIR_PREFIX}{dead}-2"
    foreign = tmp_path / f"{reaper.DIR_PREFIX}{dead}-3"
    ours = tmp_path / f"{reaper.DIR_PREFIX}{dead}-4"
    home = tmp_path / "home"
    for folder in (odd, foreign, ours, home):
        folder.mkdir()
    link.symlink_to(home)
    (foreign / "data").mkdir()
    (foreign / "data" / "postmaster.pid").write_text("\n" * 6 + "1 2147483647\n")
    os.chown(foreign, 65534, 65534)
    reaper.sweep(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([odd, link, foreign, home])
    assert list(foreign.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can remove what belongs to others")
@pytest.mark.parametrize("how", ["names", "leads to", "lies below what leads to"])
def test_a_pid_file_of_another_user_gives_no_power_over_shared_memory(
    tmp_path: Path, how: str
) -> None:
    """Of what a server's user may write, root believes nothing about others."""
    libc, nobody = ctypes.CDLL(None), 65534
    segment = libc.shmget(0, 4096, 0o600)
    try:
        server = tmp_path / "elsewhere" / "data"
        server.mkdir(parents=True)
        real = server / "postmaster.pid"
        real.write_text("\n" * 6 + f"0 {segment}\n")  # root's server, with root's memory
        run_dir = tmp_path / "run"
        data = run_dir / "data"
        data.mkdir(parents=True)
        if how == "names":
            (data / "postmaster.pid").write_text(real.read_text())
            os.chown(data / "postmaster.pid", nobody, nobody)
        elif how == "leads to":
            (data / "postmaster.pid").symlink_to(real)
        else:
            (data / "link").symlink_to(server.parent)
        os.chown(data, nobody, nobody)
        reaper.remove_dir(str(run_dir))
        assert not run_dir.exists()
        lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        assert str(segment) in {line.split()[1] for line in lines}
    finally:
        reaper.remove_segment(segment)
