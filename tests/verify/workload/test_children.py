"""Children of the kit: heard in bounded time, whole lines only, and gone at the end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

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
