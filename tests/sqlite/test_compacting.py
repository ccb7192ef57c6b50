"""`holdfast compact` gives room back to the disk, and changes nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import EngineUnreachable, Message, Retention
from holdfast.backends.sqlite.compacting import compact
from holdfast.cli import main
from tests.sqlite.namespaces import run_in_namespace

BIG = "x" * 4000


def filled(path: Path) -> str:
    url = f"sqlite:///{path}"
    with holdfast.connect(url) as store:
        store.append("kept", [Message("user", "stays"), Message("assistant", "as it is")], key="k")
        store.append("gone", [Message("user", f"{n} {BIG}") for n in range(500)])
        store.forget("gone")
    return url


def test_the_file_shrinks_and_what_is_in_it_stays(disk_path: Path) -> None:
    path = disk_path / "memory.db"
    url = filled(path)
    before, after = compact(path)
    assert (after, path.stat().st_size) == (path.stat().st_size, after)
    assert after < before / 10
    with holdfast.connect(url) as store:
        assert [message.content for message in store.history("kept")] == ["stays", "as it is"]
        assert store.append("kept", Message("user", "late"), key="k").repeated
        assert store.stat("gone").last == 500
        assert store.append("gone", Message("user", "again")).first == 501


def test_it_is_refused_while_a_store_is_open(disk_path: Path) -> None:
    path = disk_path / "memory.db"
    url = filled(path)
    with holdfast.connect(url) as store:
        assert len(store.history("kept")) == 2
        size = path.stat().st_size
        with pytest.raises(EngineUnreachable, match="open"):
            compact(path, busy_timeout_s=0.1)
        assert path.stat().st_size == size
        store.append("kept", Message("user", "and it goes on"))
        assert len(store.history("kept")) == 3


def test_a_kill_in_the_middle_leaves_it_whole(disk_path: Path) -> None:
    path = disk_path / "memory.db"
    url = filled(path)
    code = (
        "import os, signal, sys, pathlib, apsw\n"
        "from holdfast.backends.sqlite import compacting as c\n"
        "class Dying:\n"
        "    def __init__(self, real): self.real = real\n"
        "    def execute(self, words):\n"
        "        done = self.real.execute(words)\n"
        "        if sys.argv[2] in words: done.fetchall(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return done\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "c._rewrite(Dying(c.open_database(path, create=False, busy_timeout_s=1)), path)\n"
    )
    for moment in ("locking_mode", "journal_mode=DELETE", "VACUUM", "journal_mode=WAL"):
        ended = subprocess.run([sys.executable, "-c", code, path, moment], timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL
        with holdfast.connect(url) as store:
            assert len(store.history("kept")) == 2
            assert store.append("kept", Message("user", "late"), key="k").repeated


FULL_AND_READ_ONLY = """
import os, subprocess, sys
from pathlib import Path
import holdfast
from holdfast import Durability, EngineFull, Message, Refused
from holdfast.backends.sqlite.compacting import compact
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", folder], check=True)
path = folder / "memory.db"
def opened():
    return holdfast.connect(f"sqlite:///{path}", require=Durability.PROCESS)
with opened() as store:
    store.append("kept", [Message("user", "k" * 1000)] * 1000, key="k")
    store.append("gone", [Message("user", "x" * 4000)] * 300)
    store.forget("gone")
ballast, disk = folder / "ballast", os.statvfs(folder)
ballast.write_bytes(b"x" * (disk.f_bavail * disk.f_frsize - 65536))
def refused(kind):
    try:
        compact(path)
    except kind as error:
        return "nothing" in str(error)
with opened() as store:
    pass
print(refused(EngineFull))
ballast.unlink()
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
print(refused(Refused))
subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
with opened() as store:
    print(len(store.history("kept")), store.append("kept", Message("user", ""), key="k").repeated)
before, after = compact(path)
print(after < before)
"""


def test_a_full_disk_and_a_read_only_one_are_named_and_leave_it_whole(disk_path: Path) -> None:
    told = run_in_namespace(FULL_AND_READ_ONLY, str(disk_path)).split()
    assert told == ["True", "True", "1000", "True", "True"]


def test_the_command_says_what_it_gave_back(disk_path: Path) -> None:
    url = filled(disk_path / "memory.db")
    done = CliRunner().invoke(main, ["compact", "--store", url])
    assert (done.exit_code, "given back" in done.output) == (0, True), done.output
    there = CliRunner().invoke(main, ["compact", "--store", "redis://localhost:1"])
    assert there.exit_code == 2


def test_a_busy_session_under_retention_does_not_grow(disk_path: Path) -> None:
    path = disk_path / "memory.db"
    sizes = []
    with holdfast.connect(f"sqlite:///{path}", retention=Retention(last=20)) as store:
        for number in range(600):
            store.append("s", Message("user", f"{number} {BIG[:500]}"))
            if number in (200, 599):
                sizes.append(path.stat().st_size)
    assert sizes[1] <= sizes[0] * 1.2
