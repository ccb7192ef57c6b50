"""A client is held at a line of the store for longer than a lease, while another writes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import VerifyError
from holdfast.model import Durability
from holdfast.verify.lines import Point
from holdfast.verify.scenarios.base import Outcome, ScenarioContext
from holdfast.verify.scenarios.crash_at_line import CrashAtLine, Visits
from holdfast.verify.scenarios.crash_plans import Visit, crash_plan
from holdfast.verify.workload.plan import Step
from holdfast.verify.workload.task_server import Task

HOLDERS: Final = 10
"""So many are held at once, each in a session of its own: a lease is waited for once."""
HELD_S: Final = 6.0
"""So long at most another waits for a lock to end by itself; where it was asked for by name, longer."""
HELD_S_NAMED: Final = 15.0
HITS_MAX: Final = 12
"""At so many passes of its line a client is held: who tries ten times is too late ten times."""
REACHED_S: Final = 3.0
"""So long a client has to come to its line; one that another keeps out does not."""
TASKS_MAX: Final = 1_000
"""No task server of this scenario gets more."""


@dataclass(slots=True)
class _Holder:
    """A client that is to be held, in a session of its own, by a task server of its own."""

    visits: Visits
    point: Point
    session: str
    number: int
    passed: int = 0

    @property
    def has_ended(self) -> bool:
        return self.number in self.visits.codes_now()

    @property
    def is_held(self) -> bool:
        return not self.has_ended and self.visits.strikes[self.number] > self.passed

    def let_go(self) -> None:
        self.passed += 1
        self.visits.task_server.tell(b"g")


class HeldAtLine(CrashAtLine):
    """Garbage collection, a suspended laptop, a busy host: what has the lock sleeps past its end."""

    name = "held-at-line"
    about = "a client is held at one line of the store after another, while another client writes"
    fault = "pause"
    tests = ("durable", "ordered", "atomic")
    survived = Durability.MEMORY
    strike = "hold"

    def reason_not(self, context: ScenarioContext) -> str | None:
        """An embedded store's own locks end with the process: pause-client holds those."""
        if context.spec.embedded:
            return "there is no server: a process that is paused keeps its locks"
        return context.alone or None

    def run(self, context: ScenarioContext) -> Outcome:
        """Find the lines of an append, hold clients at them, let another write, judge all of it."""
        with context.clients(self) as clients:
            servers = clients.start(1 + HOLDERS, serve=True)
            if clients.trouble:
                return Outcome(context.unknown(self, clients.trouble[0]), hung=clients.hung)
            other, *holders = (
                Visits(self, context, clients, server, number * TASKS_MAX)
                for number, server in enumerate(servers)
            )
            try:
                points = [point for _, point in other.find()]
            except VerifyError as error:
                if self.fault in context.named:
                    raise
                return Outcome(left_out=str(error))
            held = self._all(context, other, holders, points)
            if not held:
                clients.missed = "no client was held at a line"
            kept = f"a client was held at {held} of {len(points)} lines while another wrote"
            return context.conclude(self, clients, kept)

    def operations(self, context: ScenarioContext, found: dict[str, Any]) -> list[str]:
        """Nothing else."""
        del context, found
        return ["append"]

    def _all(
        self,
        context: ScenarioContext,
        other: Visits,
        holders: Sequence[Visits],
        points: Sequence[Point],
    ) -> int:
        """Hold at as many lines as the time allows; at how many that was."""
        named = self.fault in context.named
        places = list(points)
        random.Random(f"{context.seed}/{self.name}").shuffle(places)  # noqa: S311 - no secret
        places.sort(key=lambda point: point.hit)  # each line once before any a second time
        deadline = time.monotonic() + self.among_all_s * context.scale
        held = 0
        for first in range(0, len(places), len(holders)):
            if first and not named and time.monotonic() > deadline:
                break
            some = places[first : first + len(holders)]
            held += self._hold(context, other, holders, some, HELD_S_NAMED if named else HELD_S)
            context.say(f"{self.about}: {held} of {len(places)}")
        return held

    def _hold(
        self,
        context: ScenarioContext,
        other: Visits,
        holders: Sequence[Visits],
        points: Sequence[Point],
        held_s: float,
    ) -> int:
        """One client at each of these lines, until another has written, or waited long enough."""
        life_s = held_s + context.bounds.operation_s
        begun = []
        for holder, point in zip(holders, points, strict=False):
            plan = crash_plan("append", f"{self.name}-{point.line}-{holder.tasks}", keyed=False)
            task = Task(
                [step.to_json() for step in plan.before],
                roots=list(other.code.roots),
                imports=other.modules,
                point=[point.file, point.line, point.hit],
                strike=self.strike,
                hits=HITS_MAX,
                life_s=life_s,
            )
            begun.append(_Holder(holder, point, plan.session, holder.send(task)))
        held = self._let_others_write(other, begun, held_s, life_s)
        for each in held:
            where = other.places([Visit(each.point)])[0]
            context.landed(self.fault, f"a client was held at {where}", in_flight=1)
        return len(held)

    def _let_others_write(
        self, other: Visits, begun: Sequence[_Holder], held_s: float, life_s: float
    ) -> list[_Holder]:
        """Hold each at its line as often as it passes it; those who came to it at first."""
        rounds: list[list[_Holder]] = [list(begun)]
        for number in range(HITS_MAX):
            waiting = rounds[-1]
            other.clients.until(
                lambda: all(each.is_held or each.has_ended for each in waiting),  # noqa: B023
                within_s=REACHED_S,
            )
            # Who tries again passes the line again, and finds that it came too late again.
            held = [each for each in waiting if each.is_held]
            if not held:
                break
            rounds.append(held)
            asked = self._write(other, held, number, held_s, life_s)
            for each in held:
                each.let_go()
            other.until(asked)
        # Those who were kept out, and come to their line only now, are let go at once.
        other.clients.until(lambda: _all_ended(begun), within_s=life_s)
        return rounds[1] if len(rounds) > 1 else []

    @staticmethod
    def _write(
        other: Visits, held: Sequence[_Holder], number: int, held_s: float, life_s: float
    ) -> int:
        """Another client writes to the session of each; the number of its task."""
        writes = [
            Step("append", each.session, tuple(f"{each.session}.o{number}.{n}" for n in range(2)))
            for each in held
        ]
        asked = other.send(Task([step.to_json() for step in writes], life_s=life_s))
        other.clients.until(lambda: asked in other.codes_now(), within_s=held_s)
        return asked


def _all_ended(begun: Sequence[_Holder]) -> bool:
    for each in begun:
        if each.is_held:
            each.let_go()
    return all(each.has_ended for each in begun)
