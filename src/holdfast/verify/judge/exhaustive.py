"""Whether any order of a few operations explains what they returned: every order is tried.

Each operation takes effect at one instant between its invoke and its completion. The time
reached so far is the latest invoke of what took effect, since nothing does before it began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STATES_MAX: Final = 200_000

Log = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the search. One that need not take effect may be left out.

    `cut` says of a read that older messages may stand before those it shows. `again` says of
    a forget that it may take effect more than once, as the end of a session's time may.
    """

    kind: str
    inv: int
    comp: int
    must: bool
    ids: tuple[str, ...] = ()
    cut: bool = False
    again: bool = False


def explainable(steps: list[Step]) -> bool:
    """Whether a legal execution exists. A search that grows too large answers yes."""
    return _Search(steps).run()


class _Search:
    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps
        self._musts = sum(1 << at for at, step in enumerate(steps) if step.must)
        self._seen: set[tuple[int, Log, int]] = set()

    def run(self) -> bool:
        stack: list[tuple[int, Log, int]] = [(0, (), -1)]
        while stack:
            done, log, now = state = self._settle(*stack.pop())
            if done & self._musts == self._musts or len(self._seen) > STATES_MAX:
                return True
            if state not in self._seen:
                self._seen.add(state)
                stack.extend(self._next(done, log, now))
        return False

    def _settle(self, done: int, log: Log, now: int) -> tuple[int, Log, int]:
        """Let every read that fits take effect here: that costs nothing and changes nothing."""
        for at, step in enumerate(self._steps):
            open_ = not done >> at & 1 and step.inv <= now <= step.comp
            if open_ and step.kind == "read" and _fits(step, log):
                done |= 1 << at
        return done, log, now

    def _next(self, done: int, log: Log, now: int) -> list[tuple[int, Log, int]]:
        waiting = [s.comp for at, s in enumerate(self._steps) if s.must and not done >> at & 1]
        deadline = min(waiting)
        states = []
        for at, step in enumerate(self._steps):
            then = max(now, step.inv)
            if done >> at & 1 or then > step.comp or then > deadline:
                continue
            after = _apply(step, log)
            if after is not None and (step.must or self._useful(step, done, log)):
                states.append((done if step.again else done | 1 << at, after, then))
        return states

    def _useful(self, step: Step, done: int, log: Log) -> bool:
        """Whether what need not happen helps: a read still to come shows it right here."""
        if step.kind != "append":
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


def _fits(step: Step, log: Log) -> bool:
    if not step.cut:
        return log == step.ids
    return not step.ids or log[-len(step.ids) :] == step.ids


def _apply(step: Step, log: Log) -> Log | None:
    """The log after the step, or None where it cannot stand here or would be of no use."""
    if step.kind == "append":
        return log + step.ids
    if step.kind == "forget":
        return () if log or step.must else None
    return log if _fits(step, log) else None
