"""The child of a fork inherits open files: it must neither harm them nor be held up by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.contract.harness import texts

TIMEOUT_S = 20


@pytest.fixture
def url(disk_path: Path) -> str:
    return f"sqlite:///{disk_path / 'memory.db'}"


def ran(code: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kept(url: str) -> list[str]:
    with holdfast.connect(url) as store:
        return texts(store.history("s"))


BEGIN = """
import os, sys, holdfast
from holdfast import Message
url = sys.argv[1]
before = holdfast.connect(url)
before.close()  # and kept
parent = holdfast.connect(url)
parent.append("s", Message("user", "parent"))
parent.history("s")  # a reader is inherited, too
go_on, let_go_on = os.pipe()
tell, told = os.pipe()
child = os.fork()
"""

CHILD_ENDS_LAST = (
    BEGIN
    + """
if not child:
    os.read(go_on, 1)
    sys.exit()  # not _exit: the interpreter lets go of every object
parent.close()
if not (other := os.fork()):
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], url])
os.waitpid(other, 0)
os.write(let_go_on, b".")
assert os.waitpid(child, 0)[1] == 0
"""
)

ACKS_AND_DIES = """
import os, sys, holdfast
store = holdfast.connect(sys.argv[1])
store.append("s", holdfast.Message("user", "acknowledged"))
os._exit(0)  # as by SIGKILL
"""


def test_a_child_that_ends_deletes_no_log_of_another_process(url: str):
    done = subprocess.run(
        [sys.executable, "-c", CHILD_ENDS_LAST, url, ACKS_AND_DIES],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert kept(url) == ["parent", "acknowledged"]


CONNECTS_LATER = (
    BEGIN
    + """
if not child:
    os.read(go_on, 1)
    with holdfast.connect(url) as own:
        own.append("s", Message("user", "child"))
    os._exit(0)
parent.close()
os.write(let_go_on, b".")
assert os.waitpid(child, 0)[1] == 0
"""
)


def test_a_child_connects_after_its_parent_has_closed(url: str):
    ran(CONNECTS_LATER, url)
    assert kept(url) == ["parent", "child"]


STAYS = (
    BEGIN
    + """
if not child:
    with holdfast.connect(url) as own:
        own.append("s", Message("user", "before"))
        os.write(told, b".")
        os.read(go_on, 1)
        own.append("s", Message("user", "after"))
        print([m.content for m in own.history("s")], flush=True)
    os._exit(0)
os.read(tell, 1)
parent.close()
os.write(let_go_on, b".")
assert os.waitpid(child, 0)[1] == 0
"""
)


def test_a_parent_that_closes_takes_nothing_from_a_child_that_has_connected(url: str):
    assert ran(STAYS, url) == "['parent', 'before', 'after']\n"
    assert kept(url) == ["parent", "before", "after"]
