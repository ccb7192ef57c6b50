"""Children of the kit: heard in bounded time, whole lines only, and gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from holdfast.errors import VerifyError
from holdfast.linux import is_gone, open_files
from holdfast.verify.children import Child, Inbox, send


@pytest.fixture
def pipe():
    inbox, theirs = os.pipe()
    box = Inbox(inbox)
    yield box, theirs
    box.close()


def test_half_a_line_waits_for_its_end(pipe: tuple[Inbox, int]):
    inbox, theirs = pipe
    os.write(theirs, b'{"a": 1}\n{"b"')
    assert inbox.take() == [{"a": 1}]
    assert inbox.take() == []
    os.write(theirs, b": 2}\n")
    assert inbox.next(5.0) == [{"b": 2}]
    assert not inbox.ended
    os.close(theirs)
    assert inbox.rest(5.0) == []
    assert inbox.ended


def test_a_wait_for_what_never_comes_is_bounded(pipe: tuple[Inbox, int]):
    inbox, theirs = pipe
    began = time.monotonic()
    assert inbox.next(0.05) == inbox.rest(0.05) == []
    assert 0.1 <= time.monotonic() - began < 5.0
    assert not inbox.ended
    os.close(theirs)


def test_a_long_line_and_one_of_a_lone_surrogate_come_whole():
    value = {"text": "x" * 3_000_000, "odd": "\udc80"}
    before = set(open_files(os.getpid()))
    assert Child(lambda say: say(value)).outcome(60.0) == ([value], 0)
    assert {name for _, name in set(open_files(os.getpid())) - before if "pipe" in name} == set()


def test_an_error_is_said_and_nothing_passes_into_the_parent():
    def work(_: object) -> None:
        raise SystemExit("no")

    child = Child(work)
    assert child.inbox.rest(30.0) == [{"error": "SystemExit: no"}]
    assert child.end() == 1
    child.inbox.close()


def test_one_that_hangs_is_killed_and_to_end_it_twice_harms_nobody():
    def work(say: Callable[[object], None]) -> None:
        say("here")
        signal.pause()

    child = Child(work)
    assert child.inbox.next(30.0) == ["here"]
    assert child.end() == child.end() == -signal.SIGKILL
    assert is_gone(child.pid)
    child.inbox.close()


def test_one_that_outlives_its_life_ends_by_its_alarm():
    child = Child(lambda _: signal.pause(), life_s=0.05)
    assert child.inbox.rest(30.0) == []
    assert child.end() == -signal.SIGALRM
    child.inbox.close()


def test_closed_it_hears_nothing_and_says_so(pipe: tuple[Inbox, int]):
    inbox, theirs = pipe
    send(theirs, 1)
    inbox.close()
    assert inbox.ended
    assert inbox.take() == []
    os.close(theirs)


def test_one_that_closes_its_pipe_and_hangs_is_killed_in_time():
    def work(_: object) -> None:
        os.closerange(3, 4096)  # as a daemon does
        signal.pause()

    # Its alarm ends the child where the parent does not, and the test fails without hanging.
    assert Child(work, life_s=20.0).outcome(0.5) == ([], -signal.SIGKILL)


def test_one_that_never_stops_talking_is_killed_in_time():
    def work(say: Callable[[object], None]) -> None:
        while True:
            say("x")

    began = time.monotonic()
    child = Child(work, life_s=20.0)
    said, code = child.outcome(0.5)
    assert code == -signal.SIGKILL
    assert time.monotonic() - began < 10.0
    assert set(said) == {"x"}


def test_a_taking_ends_while_somebody_writes_on(pipe: tuple[Inbox, int], monkeypatch):
    """However fast a child is: here whatever is read is there again at once."""
    inbox, theirs = pipe
    read = os.read

    def refilled(descriptor: int, count: int) -> bytes:
        os.write(theirs, b"1\n" * 100)
        return read(descriptor, count)

    monkeypatch.setattr(os, "read", refilled)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 5.0)
    try:
        assert set(inbox.take()) == {1}
        assert set(inbox.rest(0.1)) == {1}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.close(theirs)


def test_the_work_of_a_long_line_grows_with_its_length(pipe: tuple[Inbox, int]):
    """Not with its square: a line of 60 MB took more than a minute."""
    inbox, theirs = pipe

    def processor_s(pieces: int) -> float:
        began = time.process_time()
        for _ in range(pieces):
            os.write(theirs, b"1" * 60_000)
            inbox.take()
        return time.process_time() - began

    first_s = min(processor_s(100) for _ in range(3))
    processor_s(400)
    assert min(processor_s(100) for _ in range(3)) < 5 * first_s + 0.02
    os.close(theirs)


def test_what_is_no_line_of_ours_is_told_once_and_the_rest_is_not_heard(pipe: tuple[Inbox, int]):
    """A store that writes into descriptors that are not its own."""
    inbox, theirs = pipe
    os.write(theirs, b'{"a": 1}\ngarbage\n{"b": 2}\n')
    with pytest.raises(VerifyError, match="garbage"):
        inbox.take()
    assert inbox.ended
    assert inbox.take() == inbox.rest(0.0) == []
    os.close(theirs)


LEAVES = """
import atexit, sys, threading, time
from holdfast.verify.children import fork, leave
if not fork():
    print("printed,", end=" ")
    atexit.register(print, "exit function")
    threading.Thread(target=lambda: (time.sleep(0.05), print("thread,", end=" "))).start()
    leave(7)
import os
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_fork_leaves_as_a_process_does():
    """What it printed, its threads and its exit functions: a store may end its work in them."""
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("printed, thread, exit function\n7\n", "")
