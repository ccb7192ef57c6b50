"""What is done before a crash at a line, what is struck, and what is asked after it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.verify.workload.plan import Step


@dataclass(frozen=True, slots=True)
class Course:
    """One operation of the store, in a session of its own.

    `before` ends with the operation in which the crash comes; `after` is done by another
    process, which opens the store anew. `aside` is not for the judge, who knows no rewrite.
    """

    operation: str
    session: str
    before: tuple[Step, ...]
    after: tuple[Step, ...]
    aside: bool = False


NOWHERE: Final = Course("", "", (), ())


def course(operation: str, session: str, *, keyed: bool) -> Course:
    """The course of an append, a rewrite or a forget."""
    makers = {"append": _append, "rewrite": _rewrite, "forget": _forget}
    return makers[operation](session, keyed)


def _append(session: str, keyed: bool) -> Course:
    """A turn is there; the next is torn off, asked for, sent again with its key, and followed."""
    first, struck, later = (_turn(session, part, keyed) for part in "abc")
    read = Step("history", session)
    again = (struck, read) if keyed else ()
    return Course("append", session, (first, struck), (read, *again, later, read))


def _forget(session: str, keyed: bool) -> Course:
    """Two turns are there; forgetting breaks off, is done again, and old requests come late."""
    first, second, later = (_turn(session, part, keyed) for part in "abc")
    read, forget = Step("history", session), Step("forget", session)
    late = (first, read) if keyed else ()
    after = (read, forget, read, *late, later, read)
    return Course("forget", session, (first, second, forget), after)


def _rewrite(session: str, keyed: bool) -> Course:
    """Two turns are there; putting another in their place breaks off, and is done again."""
    first, second, new = (_turn(session, part, keyed) for part in "abc")
    read, rewrite = Step("history", session), Step("rewrite", session, new.messages)
    before = (first, second, rewrite)
    return Course("rewrite", session, before, (read, rewrite, read), aside=True)


def _turn(session: str, part: str, keyed: bool) -> Step:
    name = f"{session}.{part}"
    return Step("append", session, (f"{name}.0", f"{name}.1"), key=name if keyed else None)


def rewrite_torn(course: Course, reads: Sequence[Sequence[str]]) -> str:
    """What is wrong with what was read after a rewrite broke off; empty where nothing is."""
    *turns, rewrite = course.before
    old, new = [name for turn in turns for name in turn.messages], list(rewrite.messages)
    seen = [list(read) for read in reads]
    if seen and seen[0] not in (old, new):
        return f"neither the old messages nor the new: {seen[0]}"
    if seen[1:] and seen[-1] != new:
        return f"not the new messages, after the rewrite was done again: {seen[-1]}"
    return ""
