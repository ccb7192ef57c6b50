"""One call of a store that is ended by SIGKILL at one of its lines, in a fork. See `peers`."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Final, NoReturn

from holdfast.verify.adapters.plain import Client
from holdfast.verify.lines import Code, Point, Trail, code_of, watching
from holdfast.verify.suite.judging import cannot, new_session
from holdfast.verify.suite.peers import fork
from holdfast.verify.target import Target

LINES_MAX: Final = 16
"""So many lines are tried, evenly over all that the call passes."""
LIFE_S: Final = 120.0
"""No child lives longer, whatever happens to it."""

Call = Callable[[Client, str], object]
"""Something that a client does in a session."""


def crashes(target: Target, prepare: Call, struck: Call) -> list[str]:
    """End a process at one line of `struck` after another; the sessions in which that happened.

    Each opens the store by itself, and finds a session that another one has prepared. Have
    none open meanwhile. Left out, aloud, where the store has no lines of its own.
    """
    with Client(target) as client:
        code = code_of(client.store, target.code)

    def ended(work: Callable[[Client], object], *, at: int = 0) -> int:
        return _ended(target, code, work, at)

    name = new_session()
    first, *sessions = [f"{name}-{number}" for number in range(LINES_MAX + 1)]
    if ended(lambda client: [prepare(client, each) for each in (first, *sessions)]) <= 0:
        cannot("the process that was to prepare it passed no line of the store, or ended")
    lines = max(ended(lambda client: struck(client, first)), 0)
    places = {1 + number * lines // LINES_MAX: each for number, each in enumerate(sessions)}
    struck_in = [
        session
        for at, session in places.items()
        if ended(functools.partial(_in, session, struck), at=at) == -signal.SIGKILL
    ]
    if not struck_in:
        cannot("no line of the store's own was executed")
    return struck_in


def _in(session: str, call: Call, client: Client) -> None:
    call(client, session)


def _ended(target: Target, code: Code, work: Callable[[Client], object], at: int) -> int:
    """How many lines it passed, where it came to its end; otherwise by which signal it ended."""
    passed, theirs = os.pipe()
    child = fork()
    if not child:
        os.close(passed)
        _crash(target, code, work, at, theirs)
    os.close(theirs)
    with os.fdopen(passed, "rb") as words:
        said = words.read()
    _, status = os.waitpid(child, 0)
    return int(said) if said else min(os.waitstatus_to_exitcode(status), 0)


def _crash(
    target: Target, code: Code, work: Callable[[Client], object], at: int, pipe: int
) -> NoReturn:
    """The whole life of a child: never returns, and nothing of the parent's happens twice."""
    passed = 0

    def count(_: Point) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            os.kill(os.getpid(), signal.SIGKILL)

    trail = Trail(count)
    exit_code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, LIFE_S)
        # Before it is opened, so that the threads which that starts are watched as well.
        with watching(code, trail), Client(target) as client:
            trail.armed = True
            work(client)
            trail.armed = False
        os.write(pipe, b"%d" % passed)
        exit_code = 0
    finally:
        os._exit(exit_code)
