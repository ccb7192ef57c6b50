"""One call of a store that is ended by SIGKILL at one of its lines, in a fork."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.children import Child
from holdfast.verify.lines import Code, Point, Trail, code_of, watching
from holdfast.verify.suite.judging import cannot, new_session
from holdfast.verify.target import Target

LINES_MAX: Final = 16
"""So many lines are tried, evenly over all that the call passes."""
LIFE_S: Final = 120.0
"""No child lives longer, whatever happens to it."""
_GRACE_S: Final = 10.0

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
    child = Child(lambda say: say({"passed": _passed(target, code, work, at)}), life_s=LIFE_S)
    said, exit_code = child.outcome(LIFE_S + _GRACE_S)
    return next((each["passed"] for each in said if "passed" in each), min(exit_code, 0))


def _passed(target: Target, code: Code, work: Callable[[Client], object], at: int) -> int:
    """Do the work, and die at the line of this number; how many lines it passed otherwise."""
    passed = 0

    def count(_: Point) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            os.kill(os.getpid(), signal.SIGKILL)

    trail = Trail(count)
    # Before it is opened, so that the threads which that starts are watched as well.
    with watching(code, trail), Client(target) as client:
        trail.armed = True
        work(client)
        trail.armed = False
    return passed
