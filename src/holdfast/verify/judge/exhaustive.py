"""Whether any order of a few operations explains what they returned: every order is tried.

Each operation takes effect at one instant between its invoke and its completion. The time
reached so far is the latest invoke of what took effect, since nothing does before it began.
A promise that is given up makes more executions legal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

STATES_MAX: Final = 200_000
NEVER_NS: Final = 2**63 - 1

_SAME_PLACE: Final = frozenset({"atomic", "fresh"})
"""Even where these are given up, a read shows what stands next to each other in the log."""

Log = tuple[str, ...]
_State = tuple[int, Log, int, frozenset[str]]
"""What took effect, the log, the time reached, and what a forget took away and may come back."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the search. One that need not take effect may be left out.

    `cut` says of a read that older messages may stand before those it shows. `again` says of
    a forget that it may take effect more than once, as the end of a session's time may. `until`
    is when the last attempt of an append ended that was retried.
    """

    kind: str
    inv: int
    comp: int
    must: bool
    ids: tuple[str, ...] = ()
    cut: bool = False
    again: bool = False
    until: int = -1


def explainable(
    steps: list[Step], given_up: frozenset[str] = frozenset(), states_max: int = STATES_MAX
) -> bool:
    """Whether a legal execution exists. A search that grows too large answers yes."""
    return _Search(weakened(steps, given_up), given_up, states_max).run()


def weakened(steps: list[Step], given_up: frozenset[str]) -> list[Step]:
    """The steps where these promises are given up."""
    if "atomic" in given_up:
        steps = [part for step in steps for part in _apart(step, steps)]
    if "durable" in given_up:
        appends = [step for step in steps if step.kind == "append"]
        # An ack then proves nothing: the write may come late, or never, or vanish.
        steps = [
            replace(s, must=False, comp=NEVER_NS if s.must else s.comp) if s.kind != "read" else s
            for s in steps
        ]
        steps += [replace(a, kind="vanish", comp=NEVER_NS, must=False, again=True) for a in appends]
    if "exactly-once" in given_up:
        steps = [*steps, *(replace(s, comp=s.until, must=False) for s in steps if s.until >= 0)]
    if "fresh" in given_up:
        # A read shows an earlier state, or a write comes after its ack; but it comes.
        steps = [replace(s, inv=-1) if s.kind == "read" else _late(s) for s in steps]
    if "expiring" in given_up:
        steps = [*steps, Step("forget", -1, NEVER_NS, must=False, again=True)]
    return steps


def _late(step: Step) -> Step:
    return replace(step, comp=NEVER_NS) if step.kind == "append" and step.must else step


def _apart(step: Step, steps: list[Step]) -> list[Step]:
    """A batch message by message. One that no read shows, of which reads show others, is not."""
    if step.kind != "append" or len(step.ids) == 1:
        return [step]
    shown = {message for read in steps if read.kind == "read" for message in read.ids}
    there = [message for message in step.ids if message in shown] or step.ids[-1:]
    return [replace(step, ids=(message,)) for message in there]


class _Search:
    def __init__(self, steps: list[Step], given_up: frozenset[str], states_max: int) -> None:
        self._steps = steps
        self._given_up = given_up
        self._states_max = states_max
        self._musts = sum(1 << at for at, step in enumerate(steps) if step.must)
        self._seen: set[_State] = set()
        shows = [(message, s.comp) for s in steps if s.kind == "read" for message in s.ids]
        acked = [(message, s.comp) for s in steps if s.kind == "append" for message in s.ids]
        self._shown_until = dict(sorted(shows, key=lambda one: one[1]))
        self._acked = dict(acked)

    def run(self) -> bool:
        stack: list[_State] = [(0, (), -1, frozenset())]
        while stack:
            done, log, now, gone = state = self._settle(*stack.pop())
            if done & self._musts == self._musts or len(self._seen) > self._states_max:
                return True
            if state not in self._seen:
                self._seen.add(state)
                stack.extend(self._next(done, log, now, gone))
        return False

    def _settle(self, done: int, log: Log, now: int, gone: frozenset[str]) -> _State:
        """Let every read that fits take effect here: that costs nothing and changes nothing."""
        for at, step in enumerate(self._steps):
            open_ = not done >> at & 1 and step.inv <= now <= step.comp
            if open_ and step.kind == "read" and self._fits(step, log, gone):
                done |= 1 << at
        return done, log, now, gone

    def _next(self, done: int, log: Log, now: int, gone: frozenset[str]) -> list[_State]:
        waiting = [s.comp for at, s in enumerate(self._steps) if s.must and not done >> at & 1]
        deadline = min(waiting)
        states = []
        for at, step in enumerate(self._steps):
            then = max(now, step.inv)
            if done >> at & 1 or then > step.comp or then > deadline:
                continue
            if not (step.must or self._useful(step, done, log)):
                continue
            then_done = done if step.again else done | 1 << at
            left = gone
            if step.kind == "forget" and not self._given_up.isdisjoint(("forgotten", "expiring")):
                left = gone | frozenset(log)
            states += [(then_done, after, then, left) for after in self._apply(step, log, gone)]
        return states

    def _fits(self, step: Step, log: Log, gone: frozenset[str]) -> bool:
        ids = step.ids
        if gone:
            ids = tuple(message for message in ids if message not in gone)
        if "snapshot" in self._given_up:
            return _is_part(ids, log) and (step.cut or self._comes_again(step, ids, log))
        return _fits(ids, log, cut=step.cut)

    def _comes_again(self, read: Step, ids: Log, log: Log) -> bool:
        """Whether all that it lacks was not yet there when it began, or is shown later on."""
        lacks = set(log).difference(ids)
        return all(
            self._acked[message] >= read.inv or self._shown_until.get(message, -1) > read.inv
            for message in lacks
        )

    def _apply(self, step: Step, log: Log, gone: frozenset[str]) -> list[Log]:
        """The logs after the step; none where it cannot stand here or would be of no use."""
        if step.kind == "append":
            if step.until >= 0 and step.ids[0] in log:
                return []  # a second copy adds nothing that a read would show
            if "ordered" not in self._given_up:
                return [log + step.ids]
            return [log[:at] + step.ids + log[at:] for at in range(len(log) + 1)]
        if step.kind == "forget":
            return [()] if log or step.must else []
        if step.kind == "vanish":
            # As a whole; or from the front, where a store keeps only the last few messages.
            fronts = [n for n in range(1, len(step.ids)) if log[:n] == step.ids[:n]]
            whole = tuple(message for message in log if message not in step.ids)
            return [whole, *(log[n:] for n in fronts)]
        return [log] if self._fits(step, log, gone) else []

    def _useful(self, step: Step, done: int, log: Log) -> bool:
        """Whether what need not happen helps: a read still to come shows it right here."""
        if step.kind == "vanish":
            return not set(log).isdisjoint(step.ids)
        if step.kind != "append" or not self._given_up <= _SAME_PLACE:
            return True
        return any(
            _follows(step.ids, read, log)
            for at, read in enumerate(self._steps)
            if read.kind == "read" and not done >> at & 1
        )


def _follows(ids: Log, read: Step, log: Log) -> bool:
    """Whether the read shows these messages right after the end of the log."""
    if ids[0] not in read.ids:
        return read.cut and ids[-1] in read.ids
    at = read.ids.index(ids[0])
    if at == 0:
        return read.cut or not log
    return bool(log) and log[-1] == read.ids[at - 1]


def _is_part(ids: Log, log: Log) -> bool:
    """Whether the ids stand in the log in this order, whatever stands between."""
    rest = iter(log)
    return all(message in rest for message in ids)


def _fits(ids: Log, log: Log, *, cut: bool) -> bool:
    if not cut:
        return log == ids
    return not ids or log[-len(ids) :] == ids
