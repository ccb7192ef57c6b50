"""What a store says while its engine is away, and whether it works again by itself afterwards."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.verify.history import NEVER_NS
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess, kind_of

ENOUGH: Final = 500
"""A client that did so much without an error notices none; PostgreSQL takes pages in advance."""
GONE: Final = "its engine could not be reached"
_NEVER_THERE: Final = (
    "an append was acknowledged, and nothing of it was ever there: the error was swallowed"
)
REFUSED_MAX: Final = 20
"""So many writes in a row are not refused by mere crowding."""


@dataclass(slots=True)
class Outages:
    """The times in which nothing could be answered, and what was seen around them."""

    scenario: str
    spans: list[tuple[int, int]] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    struck_ns: int = NEVER_NS
    """When the first began to be caused, if that is before the first span."""
    silent: str = ""
    """Why nothing can answer inside a span, in words. An engine that is paused or full still may."""

    def over(
        self, clients: ClientPool, working: Iterable[ClientProcess], began_ns: int, ended_ns: int
    ) -> None:
        """Note a span, and wait until each client was answered again, within its bound."""
        self.spans.append((began_ns, ended_ns))
        mine = list(working)
        back_s = clients.bounds.back_s
        clients.until(
            lambda: all(c.works_since(ended_ns) or not c.alive for c in mine), within_s=back_s
        )
        stuck = [client.name for client in mine if not client.works_since(ended_ns)]
        if stuck:
            words = _last_error(clients, stuck[0])
            self.stuck.append(
                f"{len(stuck)} clients could not write and read for {back_s:g} s after: {words}"
            )

    def findings(self, clients: ClientPool) -> Iterator[Finding]:
        """What this says of `loud`."""
        events = list(clients.raw_events())
        errors = self._provoked(events)
        lies = self._lies(events) if self.silent else []
        evidence = {"errors": errors, "outages": len(self.spans)}
        if lies:
            words = f"{lies[0]} ({len(lies)} such answers)"
            yield Finding("loud", Verdict.BROKEN, words, self.scenario, evidence)
        elif self.stuck:
            words = f"it does not work again by itself: {self.stuck[0]}"
            waited = {"stuck": len(self.stuck), "waited_s": clients.bounds.back_s}
            yield Finding("loud", Verdict.BROKEN, words, self.scenario, {**evidence, **waited})
        elif clients.trouble:
            yield Finding("loud", Verdict.UNKNOWN, clients.trouble[0], self.scenario, evidence)
        elif clients.missed:
            words = f"{self.scenario}: {clients.missed}"
            yield Finding("loud", Verdict.UNKNOWN, words, self.scenario, evidence, not_landed=True)
        elif not errors:
            words = f"{self.scenario}: no client met the fault"
            yield Finding("loud", Verdict.UNKNOWN, words, self.scenario, evidence, not_landed=True)
        else:
            words = (
                f"{self.scenario}: {errors} errors, no false answer, and it worked again by itself"
            )
            yield Finding("loud", Verdict.KEPT, words, self.scenario, evidence)

    def _lies(self, events: list[dict[str, Any]]) -> list[str]:
        """Answers that no engine has given: reads that lack something, acks of nothing."""
        reads = [lie for span in self.spans for lie in false_answers(events, *span)]
        dead = self.spans if self.silent == GONE else []
        acks = [op for span in dead for op in swallowed(events, *span, at_once=False)]
        return [
            *(f"while {self.silent}, {words}" for words in reads),
            *(f"while {self.silent}, {_NEVER_THERE}" for _ in acks),
        ]

    def _provoked(self, events: Iterable[dict[str, Any]]) -> int:
        """Errors since the first outage that no client had had before: those are the fault's."""
        # A request that was under way may hear of the outage a little after its end.
        first_ns = min((self.struck_ns, *(began for began, _ in self.spans)))
        failed = [event for event in events if "error" in event]
        calm = {kind_of(event["error"]) for event in failed if event["time_ns"] < first_ns}
        return sum(
            event["time_ns"] >= first_ns and kind_of(event["error"]) not in calm for event in failed
        )


def met_by(working: Sequence[ClientProcess]) -> Callable[[], bool | None]:
    """Asks whether each client has met an error since now; None while that is not decided.

    A client that does enough without one notices none; that is counted from the first question,
    for while a fault is being caused a client may do any number.
    """
    known = {error for client in working for error in client.error_kinds}
    ended: dict[str, int] = {}

    def met() -> bool | None:
        for client in working:
            ended.setdefault(client.name, client.ended + ENOUGH)
        hit = [not client.error_kinds <= known for client in working]
        over = [c.ended > ended[c.name] for c in working]
        return all(hit) if all(map(operator.or_, hit, over)) else None

    return met


def false_answers(events: Iterable[dict[str, Any]], began_ns: int, ended_ns: int) -> Iterator[str]:
    """Reads answered entirely inside the outage, without what had been acknowledged before it."""
    asked: dict[int, dict[str, Any]] = {}
    known: dict[str, set[str]] = {}
    reads = []
    forgotten = set()
    for event in events:
        if event["type"] == "invoke":
            asked[event["op"]] = event
            if event["f"] == "forget":
                forgotten.add(event["session"])
        elif event["type"] == "ok":
            invoke = asked[event["op"]]
            if invoke["f"] == "append" and event["time_ns"] < began_ns:
                known.setdefault(invoke["session"], set()).update(invoke["messages"])
            elif invoke["f"] == "history":
                inside = invoke["time_ns"] > began_ns and event["time_ns"] < ended_ns
                limit = invoke.get("limit")
                whole = limit is None or len(event["messages"]) < limit
                reads += [(invoke["session"], event["messages"])] if inside and whole else []
    for session, messages in reads:
        missing = known.get(session, set()) - set(messages)
        if missing and session not in forgotten:
            yield (
                f"a read answered with {len(messages)} messages "
                f"instead of an error; {len(missing)} acknowledged ones were missing from it"
            )


def swallowed(
    events: Iterable[dict[str, Any]], began_ns: int, ended_ns: int, *, at_once: bool
) -> list[int]:
    """Appends begun and acknowledged inside the outage, which no read ever showed.

    One must have been able to: a whole read after the ack, with no forget in between; with
    `at_once` still inside the outage, so that what an engine had and lost later is not meant.
    """
    done = list(_operations(events))
    reads = [(o, end) for o, end in done if o["f"] == "history" and _is(end, "ok")]
    shown = {message for _, end in reads for message in end["messages"]}
    looks = [
        (o, end)
        for o, end in reads
        if o.get("limit") is None and (end["time_ns"] < ended_ns or not at_once)
    ]
    forgets = [(o, end) for o, end in done if o["f"] == "forget" and not _is(end, "fail")]
    tried = [o for o, end in done if o["f"] == "append" and not _is(end, "fail")]

    def could_show(append: dict[str, Any], acked_ns: int) -> bool:
        """Whether a whole read began after the ack and ended before any forget began.

        A retry is acknowledged too where an earlier attempt had written it, and a forget took that.
        """
        first_ns = min(o["time_ns"] for o in tried if o["messages"] == append["messages"])
        began = [
            forget["time_ns"]
            for forget, end in forgets
            if forget["session"] == append["session"]
            and (not _is(end, "ok") or end["time_ns"] > first_ns)
        ]
        before_ns = min(began, default=NEVER_NS)
        return any(
            read["session"] == append["session"]
            and acked_ns < read["time_ns"]
            and end["time_ns"] < before_ns
            for read, end in looks
        )

    return [
        o["op"]
        for o, end in done
        if o["f"] == "append"
        and _is(end, "ok")
        and began_ns < o["time_ns"]
        and end["time_ns"] < ended_ns
        and shown.isdisjoint(o["messages"])
        and could_show(o, end["time_ns"])
    ]


def _operations(
    events: Iterable[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each operation as it was asked for, with its end; empty where it has none."""
    asked: dict[int, dict[str, Any]] = {}
    ends: dict[int, dict[str, Any]] = {}
    for event in events:
        (asked if event["type"] == "invoke" else ends)[event.get("op", 0)] = event
    return ((invoke, ends.get(op, {})) for op, invoke in asked.items())


def _is(end: dict[str, Any], kind: str) -> bool:
    return end.get("type") == kind


def shut_out(clients: ClientPool, scenario: str) -> Iterator[Finding]:
    """A client that could write, and then never again although nothing was wrong: that is broken."""
    for client in clients.processes:
        refused = _refused_at_the_end(client)
        if refused >= REFUSED_MAX and client.acknowledged:
            words = (
                f"nothing was wrong, and yet the last {refused} writes of one client were "
                f"refused: {_last_error(clients, client.name)}"
            )
            yield Finding("loud", Verdict.BROKEN, words, scenario, {"refused": refused})


def _refused_at_the_end(client: ClientProcess) -> int:
    """How many writes failed since the last one that did not."""
    writes = {e["op"] for e in client.events if e["type"] == "invoke" and e["f"] != "history"}
    ended = [e["type"] for e in client.events if e["type"] != "invoke" and e.get("op") in writes]
    return next((n for n, kind in enumerate(reversed(ended)) if kind == "ok"), len(ended))


def _last_error(clients: ClientPool, name: str) -> str:
    client = next(client for client in clients.processes if client.name == name)
    errors = [event["error"] for event in client.events if "error" in event]
    return errors[-1] if errors else "no error either"
