"""A hang tells its story: threads and tasks of every process, and the engine's log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.plugins import WITHOUT_OTHERS

ROOT = Path(__file__).parents[1]
CHILD = """
import asyncio, sys, threading

there = threading.Event()

def a_thread_that_waits():
    there.set()
    threading.Event().wait()

async def a_task_that_waits():
    print("ready", flush=True)
    await asyncio.Event().wait()

threading.Thread(target=a_thread_that_waits, daemon=True).start()
there.wait()
asyncio.run(a_task_that_waits())
"""
CONFTEST = """
from tests.hangs import *

def pytest_configure(config):
    can_be_asked(config)
"""
HANGS = """
import asyncio, signal, subprocess, sys


async def a_task_of_the_test():
    signal.setitimer(signal.ITIMER_REAL, 0.01)  # everything is there: its time is over now
    await asyncio.Event().wait()

def test_it_hangs(redis_engine):
    child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\\n"
    try:
        asyncio.run(a_task_of_the_test())
    finally:
        child.kill()
        child.communicate()
"""


def test_a_test_beyond_its_bound_says_where_every_process_stands(tmp_path: Path):
    file = tmp_path / "test_hang.py"
    file.write_text(HANGS.format(child=CHILD), "utf-8")
    file.with_name("conftest.py").write_text(CONFTEST, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *WITHOUT_OTHERS, "-p", "no:cacheprovider",
         "--rootdir", str(tmp_path), "-o", "timeout=90", str(file)],
        capture_output=True, text=True, timeout=100, cwd=ROOT,
    )  # fmt: skip
    told = done.stdout
    assert "1 failed" in told, told + done.stderr
    for name in ("a_task_of_the_test", "a_task_that_waits", "a_thread_that_waits"):
        assert f"in {name}" in told, f"{name} is not in the story:\n{told}"
    assert "redis-server" in told, "nor the engine's process"
    assert "log of redis" in told, "nor the engine's log"
