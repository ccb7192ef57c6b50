"""The one reader of /proc, against real processes of which we know what it has to find."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import linux
from tests.waiting import wait_until

HOLDS = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def running(code: str = HOLDS, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said `ready`, and lives until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "HOLDFAST_SIGN": "here"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_process_has_its_parent_its_state_and_one_start_for_life():
    with running() as process:
        wait_until(lambda: linux.thread_states(process.pid) == {"S"})
        first = linux.read_process(process.pid)
        assert first is not None
        assert (first.pid, first.parent, first.state) == (process.pid, os.getpid(), "S")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: linux.thread_states(process.pid) == {"T"})
        [later] = [one for one in linux.all_processes() if one.pid == process.pid]
        assert (later.state, later.started) == ("T", first.started)
        assert not linux.is_gone(process.pid)


def test_a_name_that_looks_like_the_rest_of_the_line_changes_nothing():
    name = "a) R 1 ("
    with running(f"open('/proc/self/comm', 'w').write({name!r})\n{HOLDS}") as process:
        assert linux.name_of(process.pid) == name
        seen = linux.read_process(process.pid)
        assert seen is not None
        assert seen.parent == os.getpid()


def test_a_process_that_is_gone_has_nothing():
    with running() as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert linux.is_gone(process.pid)  # a zombie, until it is waited for
        process.wait()
    pid = process.pid
    assert linux.is_gone(pid)
    assert linux.read_process(pid) is None
    assert pid not in linux.pids()
    assert linux.thread_states(pid) == set()
    assert linux.threads(pid) == []
    assert linux.working_dir(pid) is None
    assert list(linux.open_files(pid)) == []
    assert linux.status(pid) == {}
    assert linux.environment(pid) == b""
    assert linux.command_line(pid) == linux.memory_map(pid) == b""
    assert linux.open_flags(pid, 0) == 0
    assert linux.waited_for_cpu_s(pid) == 0
    assert linux.name_of(pid) == "ended"
    assert linux.mounts(pid) == []
    assert linux.file_system_of(Path("/"), pid) == "unknown"


def test_descendants_are_found_though_they_left_the_group():
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print(child.pid, file=sys.stderr, flush=True)\n" + HOLDS
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        child = int(process.stderr.readline())
        assert linux.descendants([process.pid]) == [process.pid, child]
        os.kill(child, signal.SIGKILL)
        process.kill()


def test_threads_are_counted():
    code = f"import threading; threading.Thread(target=threading.Event().wait).start()\n{HOLDS}"
    with running(code) as process:
        assert len(linux.threads(process.pid)) == 2
        assert linux.waited_for_cpu_s(process.pid) >= 0


def test_what_a_process_was_given_and_has_open(tmp_path: Path):
    code = f"import os; os.open('log', os.O_WRONLY | os.O_CREAT | os.O_DSYNC)\n{HOLDS}"
    with running(code, cwd=tmp_path) as process:
        pid = process.pid
        assert linux.working_dir(pid) == str(tmp_path.resolve())
        assert b"HOLDFAST_SIGN=here" in linux.environment(pid)
        assert code.encode() in linux.command_line(pid).split(b"\0")
        assert int(linux.status(pid)["PPid"]) == os.getpid()
        assert b"libc.so" in linux.memory_map(pid) or b"musl" in linux.memory_map(pid)
        log = tmp_path.resolve() / "log"
        [descriptor] = [number for number, name in linux.open_files(pid) if name == str(log)]
        assert str(log) in linux.open_names(pid)
        assert linux.open_flags(pid, descriptor) & os.O_DSYNC
        assert not linux.open_flags(pid, 0) & os.O_DSYNC
        assert log.samefile(linux.opened(pid, descriptor))
        log.unlink()
        assert (descriptor, f"{log} (deleted)") in linux.open_files(pid)


def test_users_of_a_directory_work_in_it_or_have_a_file_of_it_open(tmp_path: Path):
    inside, beside = tmp_path / "data", tmp_path / "data-2"
    inside.mkdir()
    beside.mkdir()
    opens = f"file = open({str(inside / 'x')!r}, 'w')\n{HOLDS}"
    with running(cwd=inside) as one, running(opens) as other, running(cwd=beside):
        assert sorted(linux.users_of(inside)) == sorted([one.pid, other.pid])


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_connections_and_who_listens(family: socket.AddressFamily):
    with socket.socket(family) as server:
        try:
            server.bind(("localhost" if family == socket.AF_INET else "::1", 0))
        except OSError:
            pytest.skip("no IPv6 on this machine")
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(server.getsockname()[:2], timeout=5) as client:
            own = client.getsockname()[1]
            # By both ends: the kernel gives a port again to a connection that leads elsewhere.
            ends = (own, port)
            [end] = [one for one in linux.connections() if (one.port, one.remote_port) == ends]
            assert (end.established, end.listens) == (True, False)
            assert end.name in linux.open_names(os.getpid())
        assert linux.listeners(port) == [os.getpid()]
        assert linux.listeners(port, among=[os.getppid()]) == []
    assert linux.listeners(port) == []


def test_a_process_that_we_may_not_look_at_is_told_from_one_that_has_nothing():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user here")
    code = (
        "import os, sys\nfrom holdfast import linux\nos.setuid(65534)\n"
        "try: list(linux.open_files(int(sys.argv[1])))\n"
        "except PermissionError: print('hidden', linux.open_names(int(sys.argv[1])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(os.getpid())], capture_output=True, text=True, check=True
    )
    assert done.stdout == "hidden set()\n"
