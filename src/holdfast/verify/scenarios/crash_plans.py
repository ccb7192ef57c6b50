"""What is done before a crash at a line, what is struck, and what is asked after it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.verify.lines import Point
from holdfast.verify.workload import summary_check
from holdfast.verify.workload.plan import Step, message

Answers = Sequence[Mapping[str, Any]]
"""What was answered to each step after the crash."""


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """One operation of the store, in a session of its own.

    `before` ends with the operation in which the crash comes; `after` is done by another
    process, which reopens the store. What the judge does not know has its own judge here:
    `torn` says what is wrong with the answers to `after`, or nothing.
    """

    operation: str
    session: str
    before: tuple[Step, ...]
    after: tuple[Step, ...]
    torn: Callable[[CrashPlan, Answers], str] | None = None

    @property
    def aside(self) -> bool:
        """Whether it is kept from the judge."""
        return self.torn is not None


NOWHERE: Final = CrashPlan("", "", (), ())


@dataclass(slots=True)
class Visit:
    """One crash point, and what was seen after it."""

    point: Point
    crash_plan: CrashPlan = NOWHERE
    proven: bool = False
    stuck: str = ""
    torn: str = ""
    showed: bool = False
    """Whether the first read after it showed a message."""


def crash_plan(operation: str, session: str, *, keyed: bool) -> CrashPlan:
    """The plan of a crash in an append, a first append, a rewrite, a forget or a summary."""
    makers = {
        "append": _append, "begin": _begin, "rewrite": _rewrite, "forget": _forget,
        "summarize": _summarize,
    }  # fmt: skip
    return makers[operation](session, keyed)


def _append(session: str, keyed: bool) -> CrashPlan:
    """A turn is there; the next is torn off, asked for, sent again with its key, and followed."""
    first, struck, later = (_turn(session, part, keyed) for part in "abc")
    read = Step("history", session)
    again = (struck, read) if keyed else ()
    return CrashPlan("append", session, (first, struck), (read, *again, later, read))


def _begin(session: str, keyed: bool) -> CrashPlan:
    """The first turn of a session is torn off, and what there is of it is asked for."""
    first, read = _turn(session, "a", keyed), Step("history", session)
    return CrashPlan("begin", session, (first,), (read,), first_torn)


def _forget(session: str, keyed: bool) -> CrashPlan:
    """Two turns are there; forgetting breaks off, is done again, and old requests come late."""
    first, second, later = (_turn(session, part, keyed) for part in "abc")
    read, forget = Step("history", session), Step("forget", session)
    late = (first, read) if keyed else ()
    after = (read, forget, read, *late, later, read)
    return CrashPlan("forget", session, (first, second, forget), after)


def _rewrite(session: str, keyed: bool) -> CrashPlan:
    """Two turns are there; putting another in their place breaks off, and is done again."""
    first, second, new = (_turn(session, part, keyed) for part in "abc")
    read, rewrite = Step("history", session), Step("rewrite", session, new.messages)
    before = (first, second, rewrite)
    return CrashPlan("rewrite", session, before, (read, rewrite, read), rewrite_torn)


def _summarize(session: str, keyed: bool) -> CrashPlan:
    """One turn is summarized and the next is there; its summary breaks off, and is done again."""
    first, second = (_turn(session, part, keyed) for part in "ab")
    summarize, look = Step("summarize", session), Step("summaries", session)
    before = (first, summarize, second, summarize)
    return CrashPlan("summarize", session, before, (look, summarize, look), summary_torn)


def _turn(session: str, part: str, keyed: bool) -> Step:
    name = f"{session}.{part}"
    return Step("append", session, (f"{name}.0", f"{name}.1"), key=name if keyed else None)


def first_torn(plan: CrashPlan, answers: Answers) -> str:
    """Half a turn is for others to find: here only the time counts that it lives."""
    del plan, answers
    return ""


def rewrite_torn(plan: CrashPlan, answers: Answers) -> str:
    """What is wrong with what was read after a rewrite broke off; empty where nothing is."""
    *turns, rewrite = plan.before
    old, new = [name for turn in turns for name in turn.messages], list(rewrite.messages)
    seen = [list(each["messages"]) for each in answers if "messages" in each]
    if seen and seen[0] not in (old, new):
        return f"neither the old messages nor the new: {seen[0]}"
    if seen[1:] and seen[-1] != new:
        return f"not the new messages, after the rewrite was done again: {seen[-1]}"
    return ""


def summary_torn(plan: CrashPlan, answers: Answers) -> str:
    """What is wrong with the summaries after one broke off; empty where nothing is."""
    at_once, later = (
        summary_check.parse(each["summaries"]) for each in answers if "summaries" in each
    )
    names = [name for step in plan.before for name in step.messages]
    texts = [str(message(name)["content"]) for name in names]
    if words := summary_check.overlap(at_once) or summary_check.repeated(at_once, texts):
        return words
    words = summary_check.wrong(later, texts)
    return words and f"{words}, after summarize() was done again"


def steps_again(
    whole: CrashPlan, answers: Sequence[Mapping[str, Any] | None], number: int
) -> tuple[Step, ...]:
    """What was not answered, once more; an append of unknown outcome is not repeated.

    Another turn takes its place: what is asked is whether the store works again.
    """
    fresh = _turn(whole.session, f"again{number}", keyed=False)
    missed = [
        (step, answer)
        for step, answer in zip(whole.after, answers, strict=True)
        if answer is None or answer["type"] != "ok"
    ]
    return tuple(
        step
        if step.f != "append" or step.key or (answer is not None and answer["type"] == "fail")
        else fresh
        for step, answer in missed
    )


def why_stuck(
    steps: Sequence[Step],
    answers: Sequence[Mapping[str, Any] | None],
    broke: Mapping[str, Any] | None,
) -> str:
    """Why the store did not serve the next process; empty where it did."""
    if broke is not None:
        return str(broke["because"])
    for step, answer in zip(steps, answers, strict=True):
        if answer is None:
            return f"{step.f}() did not return"
        if answer["type"] != "ok":
            return f"{step.f}() failed: {answer['error']}"
    return ""


_SAYS: Final = {
    "torn": "tear a turn",
    "lost": "lose what was {known}",
    "duplicate": "write it twice",
    "resurrected": "bring back what was forgotten",
}
_KNOWN: Final = {True: "acknowledged", False: "shown"}


def what_they_did(promise: str, roots: Sequence[Mapping[str, Any]]) -> str:
    """What crashes did, in words that hold for every one of these findings."""
    names = sorted({root["name"].replace("rollback", "lost") for root in roots})
    acked = {"acknowledged (append" in root["because"] for root in roots}
    known = " or ".join(word for yes, word in _KNOWN.items() if yes in acked)
    says = _SAYS.get(names[0]) if len(names) == 1 else None
    return (says or f"break {promise} ({', '.join(names)})").format(known=known)
