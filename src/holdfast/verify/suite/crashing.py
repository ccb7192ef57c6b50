"""One call of a store that is ended by SIGKILL at one of its lines, in a fork. See `peers`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final, NoReturn

from holdfast.verify.adapters.plain import Client
from holdfast.verify.lines import Point, Trail, code_of, watching
from holdfast.verify.suite.judging import cannot, new_session
from holdfast.verify.suite.peers import WAIT_S, fork
from holdfast.verify.target import Target

LINES_MAX: Final = 32
"""So many lines are tried, evenly over all that the call passes."""

Call = Callable[[Client, str], object]
"""Something that a client does in a session."""


def crashes(target: Target, prepare: Call, struck: Call) -> list[str]:
    """End a process at one line of `struck` after another; the sessions in which that happened.

    Each opens the store by itself, and `prepare`s before the line. Left out, aloud, where the
    store has no lines of its own.
    """
    session = new_session()

    def ended(at: int) -> int:
        name = f"{session}-{at}"
        return _ended(
            target, lambda client: prepare(client, name), lambda client: struck(client, name), at
        )

    lines = ended(0)
    places = sorted({1 + number * lines // LINES_MAX for number in range(LINES_MAX)})
    struck_in = [f"{session}-{at}" for at in places if ended(at) == -signal.SIGKILL]
    if not struck_in:
        cannot("no line of the store's own was executed")
    return struck_in


def _ended(
    target: Target,
    prepare: Callable[[Client], object],
    struck: Callable[[Client], object],
    at: int,
) -> int:
    """How many lines it passed, where it came to its end; otherwise by which signal it ended."""
    passed, theirs = os.pipe()
    child = fork()
    if not child:
        os.close(passed)
        _crash(target, prepare, struck, at, theirs)
    os.close(theirs)
    with os.fdopen(passed, "rb") as words:
        said = words.read()
    _, status = os.waitpid(child, 0)
    return int(said) if said else min(os.waitstatus_to_exitcode(status), 0)


def _crash(
    target: Target,
    prepare: Callable[[Client], object],
    struck: Callable[[Client], object],
    at: int,
    pipe: int,
) -> NoReturn:
    """The whole life of a child: never returns, and nothing of the parent's happens twice."""
    passed = 0

    def count(_: Point) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, WAIT_S)
        with Client(target) as first:
            prepare(first)
            roots = code_of(first.store, target.code)
        trail = Trail(count)
        with watching(roots, trail), Client(target) as client:
            trail.armed = True
            struck(client)
            trail.armed = False
        os.write(pipe, b"%d" % passed)
        code = 0
    finally:
        os._exit(code)
