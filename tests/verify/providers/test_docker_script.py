"""scripts/docker leaves nothing behind, and says why where no daemon may run."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import DAEMON_TIMEOUT_S, SCRIPT

pytestmark = pytest.mark.docker


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of its own for a second daemon; short, because a socket's path is limited."""
    path = Path(tempfile.mkdtemp(prefix="hfd-")) / "d"
    monkeypatch.setenv("HOLDFAST_DOCKER_DIR", str(path))
    yield path
    assert not path.exists()
    path.parent.rmdir()


def script(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *words], capture_output=True, text=True, timeout=DAEMON_TIMEOUT_S, check=False
    )


@pytest.mark.usefixtures("docker_environment")
def test_a_daemon_ends_with_the_process_that_it_serves(home: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as served:
        done = script("up", "--for", str(served.pid))
        assert done.returncode == 0, done.stderr
        assert f"export DOCKER_HOST=unix://{home}/docker.sock" in done.stdout
        daemon = int((home / "pid").read_text())
        bridges = set(Path("/sys/class/net").glob("hfd*"))
        served.kill()
    deadline = time.monotonic() + 60
    while home.exists() or Path(f"/proc/{daemon}").exists() or Path(f"{home}.lock").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert str(home) not in Path("/proc/mounts").read_text()
    assert bridges - set(Path("/sys/class/net").glob("hfd*")), "its bridge is gone"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give up a capability of root")
def test_where_no_daemon_may_run_one_sentence_says_why(home: Path) -> None:
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin,-sys_admin", "--inh-caps=-all", SCRIPT, "up"],
        capture_output=True,
        text=True,
        timeout=DAEMON_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("docker: no network bridge can be made here: ")
    assert not home.exists()


def test_a_wrong_word_shows_how_it_is_used(home: Path) -> None:
    done = script("sideways")
    assert done.returncode == 2
    assert "scripts/docker up" in done.stderr
    assert not home.exists()
