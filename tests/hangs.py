"""A test that takes longer than its bound says where it, and every process that it started, stands.

pytest-timeout raises the error; here the story is taken before that unwinds anything. The logs of
engines are added by the plugin, as to every test that failed. A test that no signal reaches,
because it is not in Python at all, is ended a little later with its worker, and tells its threads.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout  # type: ignore[import-untyped]
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.stacks.sitecustomize import END, FILE, register

ANSWER_S = 10.0
NO_SIGNAL_S = 60.0
_story_key = pytest.StashKey[str]()


def can_be_asked(config: pytest.Config) -> None:
    """This process can be asked, and so can every Python that it starts."""
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        handle, path = tempfile.mkstemp(prefix="stacks-")
        os.close(handle)
        config.add_cleanup(lambda: Path(path).unlink(missing_ok=True))
        folder = str(Path(__file__).parent / "stacks")
        others = [
            one for one in os.environ.get("PYTHONPATH", "").split(":") if one not in {"", folder}
        ]
        os.environ["PYTHONPATH"] = ":".join([folder, *others])
        sys.path.append(folder)  # from which the kit makes the path of its client processes
        os.environ[FILE] = path
        register(path)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """As pytest-timeout does it by a signal, with the story first."""

    def over(*_: object) -> None:
        item.stash[_story_key] = story()
        pytest_timeout.timeout_sigalrm(item, settings)

    def cancel() -> None:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined] # pytest-timeout calls it
    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(settings.timeout + NO_SIGNAL_S, file=stderr, exit=True)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the story with the failure."""
    report = yield
    if call.excinfo is not None and _story_key in item.stash:
        title = "where every process stood when its time was over"
        report.sections.append((title, item.stash[_story_key]))
        del item.stash[_story_key]
    return report


def story() -> str:
    """Threads and tasks of this process and of all that it started; of others what /proc says."""
    return "\n".join(_about(pid) for pid in [os.getpid(), *_descendants(os.getpid())])


def _about(pid: int) -> str:
    place = Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        status = place.joinpath("status").read_text("utf-8")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        command = (
            place.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
        waits = place.joinpath("wchan").read_text("utf-8")
        head = f"process {pid}, {fields['State']}, waits in {waits}: {command[:300]}"
        asked = int(fields["SigCgt"], 16) >> (signal.SIGUSR2 - 1) & 1
        # To an engine the same signal means something of its own: PostgreSQL ends at it.
        answers = asked and place.joinpath("exe").readlink().name.startswith("python")
        return f"{head}\n{_asked(pid) if answers else '(no Python that can be asked)'}"
    return f"process {pid} ended meanwhile"


def _asked(pid: int) -> str:
    """What a process appends to the file that all share; it answers alone, so all of it is its own."""
    file = Path(os.environ[FILE])
    begin = file.stat().st_size
    os.kill(pid, signal.SIGUSR2)
    end, deadline = END.format(pid).encode(), time.monotonic() + ANSWER_S
    while True:
        answer = file.read_bytes()[begin:]
        if answer.endswith(end):
            return answer.removesuffix(end).decode(errors="replace")
        if time.monotonic() > deadline:
            return answer.decode(errors="replace") + "(its main thread runs no Python: no tasks)"
        time.sleep(0.01)


def _descendants(pid: int) -> Iterator[int]:
    for task in sorted(Path("/proc", str(pid), "task").iterdir()):
        with contextlib.suppress(OSError):
            for child in task.joinpath("children").read_text("ascii").split():
                yield int(child)
                yield from _descendants(int(child))
