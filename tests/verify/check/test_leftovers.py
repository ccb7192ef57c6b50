"""A check leaves nothing behind, and says the truth about itself, however it or its target ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.linux import all_processes, command_line, environment, read_process
from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import Engine
from tests.verify.check.checking import Notes
from tests.verify.check.stores import Sound
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
HOLDFAST = Path(sys.executable).with_name("holdfast")
MARK = "HOLDFAST_TEST_LEFTOVERS"


class StartsAProcess(Sound):
    """A store with a helper of its own, which it never ends."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])


def starts_a_process(engine: Engine) -> Target:
    path = engine.url.removeprefix("sqlite:///")
    return Target(open=lambda: StartsAProcess(path), engine=engine, claims=_KEEPS)


def hangs_at_open(engine: Engine) -> Target:
    def hang() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.pause()

    return Target(open=hang, engine=engine, claims=_KEEPS)


_KEEPS = Claims(expiring=NotClaimed("it keeps all"), recallable=NotClaimed("it has no index"))


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """All that a check starts has this in its environment; its files go into an empty folder."""
    monkeypatch.setenv(MARK, str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield f"{MARK}={tmp_path}"
    for pid in _marked(f"{MARK}={tmp_path}"):
        os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    found = [process.pid for process in all_processes() if process.state != "Z"]
    return [pid for pid in found if mark.encode() in environment(pid) and pid != os.getpid()]


def _start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(HOLDFAST), "check", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that starts this in the background hands Ctrl-C down as ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def _running(mark: str, module: str) -> list[int]:
    return [pid for pid in _marked(mark) if module.encode() in command_line(pid)]


def test_what_a_store_started_ends_with_the_check(mark: str, tmp_path: Path):
    words = (f"{__name__}:starts_a_process", "--engine", "sqlite", "--faults", "none")
    with _start(*words, "--promises", "ordered", "--time", "2") as process:
        out, _ = process.communicate(timeout=120)
    assert "ordered" in out
    wait_until(lambda: not _marked(mark), within_s=15)
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_is_killed_leaves_no_process_and_no_directory(mark: str, tmp_path: Path):
    """Not even a client that hangs, of a store that shuts signals out."""
    with _start(f"{__name__}:hangs_at_open", "--engine", "sqlite") as process:
        # The fork server, and the client that it has forked.
        wait_until(lambda: len(_running(mark, "workload.fork_server")) > 1, within_s=60)
        process.kill()
    wait_until(lambda: not _marked(mark) and not list(tmp_path.iterdir()), within_s=20)


def test_a_fork_server_that_dies_is_the_kits_failure_and_breaks_no_promise(mark: str):
    """A broken pipe ended the command with 1, which says that the store broke a promise."""
    with _start("sqlite", "--faults", "none", "--seed", "1") as process:
        module = "workload.fork_server"
        # Then it has the clients of a scenario (the first calls make no more than two): the
        # question about the end of one has nobody to answer it.
        wait_until(lambda: len(_running(mark, module)) > 3, within_s=60)
        # Their parent; numbers of processes begin again at some time, so it need not be the lowest.
        parents = [one.parent for pid in _running(mark, module) if (one := read_process(pid))]
        os.kill(max(parents, key=parents.count), signal.SIGKILL)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 3, out


def test_ctrl_c_while_the_kit_is_loaded_says_unknown():
    """It ended with 1: in a pipeline that is a broken promise."""
    code = (
        "import sys, holdfast.cli\n"
        "class Stops:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'holdfast.verify.card': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stops())\n"
        "sys.argv = ['holdfast', 'check', 'sqlite']\n"
        "holdfast.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 3, done.stderr
    assert "stopped by Ctrl-C" in done.stderr


def test_an_error_that_nobody_expected_is_the_kits_failure():
    code = (
        "import sys, holdfast.cli, holdfast.verify.check as kit\n"
        "def fails(*_): raise OSError(32, 'Broken pipe')\n"
        "kit.check = fails\n"
        "sys.argv = ['holdfast', 'check', 'sqlite']\n"
        "holdfast.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert "Broken pipe" in done.stderr


def test_only_we_can_look_into_the_directory_of_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The job of a client may name a password."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[int] = []

    class Looks(Notes):
        def say(self, words: str) -> None:
            super().say(words)
            jobs = tmp_path.glob("*/*.job")
            seen.extend(job.parent.stat().st_mode & 0o077 for job in jobs)

    check(CheckOptions(target="sqlite", faults=("none",), promises=("ordered",), time_s=1), Looks())
    assert seen
    assert set(seen) == {0}
