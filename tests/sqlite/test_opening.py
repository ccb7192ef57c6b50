"""A database is not opened, and not used on, with files that are not whole or not the open ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Damaged, EngineUnreachable
from holdfast.backends.sqlite.wal import Log
from tests.contract.harness import say, texts
from tests.sqlite.test_files import OPENS, left, part, replace


@pytest.fixture
def path(disk_path: Path) -> Path:
    return disk_path / "memory.db"


def test_a_log_cut_while_another_process_has_it_open_is_not_opened(path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", OPENS, f"sqlite:///{path}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "acknowledged\n"
        # Only in its last page, which nobody reads to open it: SQLite itself would not notice.
        os.truncate(part(path, "wal"), part(path, "wal").stat().st_size - 100)
        with pytest.raises(Damaged, match=r"shorter than its index says.*Nothing was written"):
            holdfast.connect(f"sqlite:///{path}")
        other.send_signal(signal.SIGKILL)


def test_a_log_replaced_while_it_is_being_opened_is_not_taken_for_the_open_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    def replaced(name: str, connection: apsw.Connection) -> Log:
        replace(Path(name))
        return Log(name, connection)

    holdfast.connect(f"sqlite:///{path}").close()
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.backends.sqlite.watch.Log", replaced)
        with pytest.raises(EngineUnreachable, match=r"replaced while it was being opened"):
            holdfast.connect(f"sqlite:///{path}")
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("after"))
        assert left(path) == ["after"]


def test_a_second_store_does_not_open_a_log_beside_a_deleted_one_of_the_same_process(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        replace(part(path, "wal"))
        with pytest.raises(EngineUnreachable, match="another store of this process"):
            holdfast.connect(f"sqlite:///{path}")
        store.append("s", say("after"))
        with holdfast.connect(f"sqlite:///{path}") as second:
            assert texts(second.history("s")) == ["before", "after"] == left(path)


CUT_INDEX = """
import os, sys, time, holdfast
from holdfast.backends.sqlite.watch import RECENT_S
store = holdfast.connect(sys.argv[1])
store.append("s", holdfast.Message("user", "before"))
os.truncate(sys.argv[2], 0)
time.sleep(2 * RECENT_S)
if sys.argv[3] == "append":
    store.append("s", holdfast.Message("user", "after"))
print(len(store.history("s")))
"""


@pytest.mark.parametrize(("then", "count"), [("append", "2"), ("history", "1")])
def test_an_index_that_was_cut_does_not_end_the_process_once_a_look_was_due(
    path: Path, then: str, count: str
):
    """SQLite would touch memory that is not there any more: SIGBUS."""
    words = [CUT_INDEX, f"sqlite:///{path}", str(part(path, "shm")), then]
    done = subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, count), done.stderr
