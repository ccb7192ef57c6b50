"""A result with everything that a page can show, from a small history that the judge has judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.verify.history import History, parse_history
from holdfast.verify.judge import Anomaly, judge
from holdfast.verify.scenarios.evidence import anomalies_json
from holdfast.verify.story import story

MS = 1_000_000
HEADER = {"holdfast_history": 1, "target": "t", "ttl_s": None, "clock_error_s": 0, "claims": None}
PROMISES = (
    "durable", "ordered", "atomic", "exactly-once", "fresh", "snapshot", "isolated", "faithful",
    "expiring", "forgotten", "loud", "recallable",
)  # fmt: skip


class Tape:
    """A history written by hand, in milliseconds."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._next = 1

    def op(
        self, who: str, f: str, session: str, begin: float, end: float | None, **fields: Any
    ) -> int:
        """One operation; without an end its outcome is unknown. `saw` is what a read returned."""
        number, self._next = self._next, self._next + 1
        saw = fields.pop("saw", None)
        status = fields.pop("status", "ok")
        asked = {"op": number, "process": who, "f": f, "session": session, **fields}
        self._add("invoke", begin, **asked)
        if end is not None:
            answer = {} if saw is None else {"messages": saw}
            self._add(status, end, op=number, **answer)
        return number

    def fault(self, name: str, at: float, **fields: Any) -> None:
        self._add("fault", at, name=name, **fields)

    def history(self) -> History:
        events = sorted(self._events, key=lambda event: event["time_ns"])
        return parse_history(json.dumps(line).encode() + b"\n" for line in [HEADER, *events])

    def _add(self, kind: str, at: float, **fields: Any) -> None:
        self._events.append({"type": kind, "time_ns": round(at * MS), **fields})


def told(tape: Tape, scenario: str = "kill-clients", fault: str | None = "kill") -> list[Any]:
    """What the check would say of such a history."""
    history = tape.history()
    found: tuple[Anomaly, ...] = judge(history).anomalies
    every = anomalies_json(scenario, fault, history, found, among=found)
    return [{**anomaly, "story": story(anomaly)} for anomaly in every]


def lost_by_kill() -> Tape:
    """c1 is acknowledged, c2 writes meanwhile, c1 is killed, and its message is gone."""
    tape = Tape()
    tape.op("c2", "append", "s", 0, 1, messages=["b.0", "b.1"])
    tape.op("c1", "append", "s", 0.5, 2, messages=["a.0", "a.1"])
    tape.op("c1", "append", "s", 3, None, messages=["c.0"])
    tape.fault("kill", 5, closes=[3])
    tape.op("c2", "append", "s", 900, 901, messages=["d.0"])
    tape.op("c3", "history", "s", 1000, 1001, saw=["b.0", "b.1", "d.0"])
    return tape


def everything() -> dict[str, Any]:
    """Every verdict, every mark, and an anomaly of most names."""
    tape = lost_by_kill()
    tape.op("c4", "append", "t", 1100, 1101, messages=["e.0"], key="k")
    tape.op("c4", "append", "t", 1102, 1103, messages=["f.0", "f.1"])
    tape.op("c4", "append", "t", 1104, None, messages=["g.0"])
    tape.op("c2", "forget", "u", 1104, 1105)
    tape.op("c2", "history", "t", 1110, 1111, saw=["e.0", "e.0", "f.0", "b.0", "x" * 400], limit=9)
    anomalies: dict[str, list[Any]] = {}
    for anomaly in told(tape):
        anomalies.setdefault(anomaly["promise"], []).append(anomaly)
    promises = {name: _promise(anomalies.get(name, [])) for name in PROMISES}
    promises["faithful"] = _faithful()
    promises["loud"] = _with("unknown", "kill: the fault did not land", {})
    promises["expiring"] = _with("unknown", "stopped by Ctrl-C", {})
    promises["recallable"] = _with("not claimed", "there is no index", {})
    return {
        "target": "everything",
        "seed": 5,
        "verdict": "broken",
        "promises": promises,
        "faults": dict(_faults()),
        "counts": {"acknowledged": 40, "read_back": 30, "never_read": 10, "lost": 2, "odd_ones": 3},
        "environment": {
            "holdfast": "0.1.0",
            "engine": {"kind": "redis", "version": "7.2", "config": "aof-always"},
            "settings": {"pool": "5"},
            "took_s": 3.2,
            "date": "2026-01-02 03:04 UTC",
        },
        "repeat": "holdfast check everything --seed 5",
    }


def _with(verdict: str, because: str, evidence: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": verdict, "because": because, "evidence": evidence, "anomalies": []}


def _promise(anomalies: list[Any]) -> dict[str, Any]:
    verdict = "broken" if anomalies else "kept"
    because = anomalies[0]["because"] if anomalies else "nothing was wrong"
    seen = {"kill-clients": {"verdict": verdict, "acknowledged": 4, "reads": 2}}
    evidence = {"anomalies": len(anomalies), "scenarios": seen}
    return _with(verdict, because, evidence) | {"anomalies": anomalies}


def _faithful() -> dict[str, Any]:
    example = {"what": "a list", "session": "odd-1", "sent": "[1, 2]", "seen": '"[1, 2]"'}
    seen = {"verdict": "broken", "tried": 14, "refused": ["x"], "examples": [example]}
    return _with("broken", "a list did not come back", {"scenarios": {"odd-content": seen}})


def _faults() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "kill", {"landed": 6, "in_flight": 2, "seen": [f"c{n} was ended" for n in range(6)]}
    yield "network", {"landed": 0, "in_flight": 0, "seen": [], "not_run": "there is no network"}
    yield "power", {"landed": 1, "in_flight": 0, "seen": ["4096 unsynced bytes were dropped"]}
