"""A process under test is killed, held and let go with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.faults import kill_tree, pause_tree, resume_tree, tree, users_of
from holdfast.verify.proof import await_true

# A parent, a child that leaves the process group as PostgreSQL's backends do, and its child.
FAMILY = """
import os, subprocess, sys, time
if sys.argv[1] != "0":
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(int(sys.argv[1]) - 1), sys.argv[2]],
                     start_new_session=True, stdout=sys.stdout)
else:
    print("all here", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY, "2", FAMILY], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "all here\n"
    with process:
        yield process
        if process.poll() is None:
            kill_tree(process)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def test_a_tree_is_walked_by_parent_and_not_by_process_group(family: subprocess.Popen[str]) -> None:
    pids = tree(family.pid)
    assert len(pids) == 3
    assert pids[0] == family.pid
    assert len({os.getpgid(pid) for pid in pids}) == 3


def test_kill_ends_every_descendant_and_reaps_our_child(family: subprocess.Popen[str]) -> None:
    pids = tree(family.pid)
    evidence = kill_tree(family)
    assert evidence.facts["pids"] == pids
    assert [state_of(pid) for pid in pids if state_of(pid) not in ("gone", "Z")] == []
    assert family.returncode == -9


def test_kill_by_pid_reaps_our_child() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    kill_tree(pid)
    assert state_of(pid) == "gone"


def test_pause_holds_every_descendant_until_resume(family: subprocess.Popen[str]) -> None:
    evidence = pause_tree(family)
    assert set(evidence.facts["states"].values()) == {"T"}
    assert {state_of(pid) for pid in tree(family.pid)} == {"T"}
    evidence = resume_tree(family)
    assert len(evidence.facts["states"]) == 3
    assert "T" not in {state_of(pid) for pid in tree(family.pid)}


def test_a_fault_upon_a_process_that_is_gone_is_not_proven() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    with pytest.raises(FaultNotProven, match="gone before the fault"):
        kill_tree(process)
    with pytest.raises(FaultNotProven, match="nothing to resume"):
        resume_tree(process.pid)


def test_we_never_stop_ourselves() -> None:
    with pytest.raises(UsageError, match="not one that a test may stop"):
        pause_tree(os.getpid())


def test_the_users_of_a_directory_are_found_by_open_file_and_by_cwd(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    by_file = subprocess.Popen(["/usr/bin/tail", "-f", tmp_path / "data"], stdout=subprocess.PIPE)
    by_cwd = subprocess.Popen(["/bin/sleep", "60"], cwd=tmp_path)
    assert by_file.stdout is not None
    try:
        assert by_file.stdout.read(1) == b"x"
        assert {by_file.pid, by_cwd.pid} <= set(users_of(tmp_path))
        assert os.getpid() not in users_of(tmp_path)
    finally:
        kill_tree(by_file)
        kill_tree(by_cwd)
        by_file.stdout.close()


# Its first thread ends; the other does not: as Redis is while it ends on a failed disk.
HALF_ENDED = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("both here", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_is_not_gone_and_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HALF_ENDED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "both here\n"
        try:
            assert await_true(lambda: state_of(process.pid) == "Z", 30)
            assert process.poll() is None
            assert kill_tree(process).facts["pids"] == [process.pid]
            assert process.returncode == -signal.SIGKILL
        finally:
            process.kill()
