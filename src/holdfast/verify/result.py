"""What a check found, promise by promise. Pure: findings in, a result out; worst wins."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, Final

from holdfast.verify.judge import Verdict
from holdfast.verify.promises import ALWAYS_JUDGED, BY_ID
from holdfast.verify.story import example_of, story

EXIT_CODES: Final = {Verdict.KEPT: 0, Verdict.BROKEN: 1, Verdict.UNKNOWN: 3}
ANOMALIES_MAX: Final = 50
"""So many are kept for each promise; their number is told whole."""
LASTING: Final = frozenset({"disk", "network", "connections"})
"""Faults that go on while clients work: what was written meanwhile met them, though none began."""
WORST_FIRST: Final = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.KEPT)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one scenario says of one promise."""

    promise: str
    verdict: Verdict
    because: str
    scenario: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    anomalies: tuple[Mapping[str, Any], ...] = ()
    not_landed: bool = False
    """Unknown only because the fault of this scenario did not land: others may still speak."""
    crash_state: str = ""
    """A state that breaks it, byte for byte (`crash_archive`), where one was built."""


@dataclass(slots=True)
class FaultTally:
    """A fault: how often it landed and what was seen; or why it was not caused."""

    landed: int = 0
    seen: list[str] = field(default_factory=list)
    in_flight: int = 0
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class PromiseResult:
    """The verdict on one promise."""

    verdict: Verdict
    because: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    anomalies: tuple[Mapping[str, Any], ...] = ()
    crash_state: str = ""
    """A state that breaks it, byte for byte, for `holdfast reproduce`."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Everything that a report needs. `repeat` is the command that makes the same plan again."""

    target: str
    seed: int
    verdict: Verdict
    promises: Mapping[str, PromiseResult]
    faults: Mapping[str, FaultTally]
    counts: Mapping[str, int]
    environment: Mapping[str, Any]
    repeat: str = ""
    require: str = ""
    """The level that every ack is held to, where there are `rows`."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Of a durability card: a configuration under a fault each, and what that lost."""
    not_asked: tuple[str, ...] = ()
    """The promises that were left out of this check (`--promises`)."""
    smallest: Mapping[str, Any] | None = None
    """A smaller plan that breaks a promise too (`--shrink`): its story and its command."""
    tested_to: str = ""
    """The level up to which acks were seen to survive."""

    def _repr_html_(self) -> str:
        """The verdicts as a table, for a notebook. Everything in it stays text."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{one.verdict}</td><td>{escape(one.because)}</td></tr>"
            for name, one in self.promises.items()
        )
        head = f"<b>{escape(self.target)}: {self.verdict}</b>"
        broken = [n for n, one in self.promises.items() if one.verdict is Verdict.BROKEN]
        examples = [(n, example_of(n, asdict(self.promises[n]), self.smallest)) for n in broken]
        stories = "".join(f"<p>{n}: {escape(words)}</p>" for n, words in examples if words)
        return f"{head}<table>{rows}</table>{stories}<code>{escape(self.repeat)}</code>"

    @property
    def exit_code(self) -> int:
        """0 kept, 1 broken, 3 unknown."""
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """For machines. Fields are added in later releases, never renamed."""
        card = {"require": self.require, "rows": [dict(row) for row in self.rows]}
        return {
            "target": self.target,
            "seed": self.seed,
            "verdict": str(self.verdict),
            "promises": {
                name: _promise_json(one)
                | ({"tested_to": self.tested_to} if name == "durable" and self.tested_to else {})
                for name, one in self.promises.items()
            },
            "faults": {name: _fault_json(tally) for name, tally in self.faults.items()},
            "counts": dict(self.counts),
            "environment": dict(self.environment),
            "repeat": self.repeat,
            "asked": list(self.promises),
            "not_asked": list(self.not_asked),
            **({} if self.smallest is None else {"smallest": dict(self.smallest)}),
            **(card if self.rows else {}),
        }


def combine(
    promises: Iterable[str],
    not_claimed: Mapping[str, str],
    findings: Iterable[Finding],
    left_out: Mapping[str, list[str]] | None = None,
) -> dict[str, PromiseResult]:
    """The verdict on each promise; one that no scenario put to the test is unknown.

    `left_out` names what was not tried, by promise: "kept" then says so in the same breath.
    """
    every = list(findings)
    return {
        promise: PromiseResult(Verdict.NOT_CLAIMED, not_claimed[promise])
        if promise in not_claimed and promise not in ALWAYS_JUDGED
        else _judged([f for f in every if f.promise == promise], (left_out or {}).get(promise, []))
        for promise in promises
    }


def _judged(findings: list[Finding], left_out: list[str]) -> PromiseResult:
    """The worst of those whose fault landed; the others say only what they did not test."""
    missed = [finding for finding in findings if finding.not_landed]
    landed = [finding for finding in findings if not finding.not_landed]
    words = [f"{finding.scenario} ({finding.because})" for finding in missed]
    return _less(_worst(landed or missed), [*left_out, *words])


def _less(one: PromiseResult, left_out: list[str]) -> PromiseResult:
    if one.verdict is not Verdict.KEPT or not left_out:
        return one
    because = f"{one.because}. Not put to the test: {'; '.join(left_out)}"
    return replace(one, because=because, evidence={**one.evidence, "not_tested": left_out})


def overall(promises: Mapping[str, PromiseResult]) -> Verdict:
    """The worst of what was claimed; with nothing claimed at all, unknown."""
    found = [one.verdict for one in promises.values()]
    return next((verdict for verdict in WORST_FIRST if verdict in found), Verdict.UNKNOWN)


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums, name by name."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _worst(findings: list[Finding]) -> PromiseResult:
    if not findings:
        return PromiseResult(Verdict.UNKNOWN, "nothing put it to the test")
    verdict = next(v for v in WORST_FIRST if v in [f.verdict for f in findings])
    # What happens without any fault says more than what takes a crash at a certain line, and
    # that more than a crash at some line.
    speaking = sorted((f for f in findings if f.verdict is verdict), key=_needs)
    anomalies = _in_turn([finding.anomalies for finding in speaking])
    roots = [anomaly for anomaly in anomalies if anomaly.get("follows_from") is None]
    return PromiseResult(
        verdict,
        _because(speaking, roots),
        {
            "anomalies": len(roots),
            "scenarios": _by_scenario(findings),
        },
        tuple([*roots, *(a for a in anomalies if a.get("follows_from"))][:ANOMALIES_MAX]),
        next((f.crash_state for f in speaking if f.crash_state), ""),
    )


def _needs(finding: Finding) -> int:
    """What it takes to see it: 0 no fault at all, 1 a crash at a place that it names, 2 a fault."""
    if not {"lines", "states_broken"}.isdisjoint(finding.evidence):
        return 1
    first: Mapping[str, Any] = next(iter(finding.anomalies), {})
    return 0 if first.get("faults") == [] and first.get("fault") not in LASTING else 2


def _by_scenario(findings: list[Finding]) -> dict[str, Mapping[str, Any]]:
    """The worst that each scenario says."""
    worst: dict[str, Finding] = {}
    for finding in findings:
        other = worst.setdefault(finding.scenario, finding)
        if WORST_FIRST.index(finding.verdict) < WORST_FIRST.index(other.verdict):
            worst[finding.scenario] = finding
    return {name: {"verdict": str(f.verdict), **f.evidence} for name, f in worst.items()}


def _in_turn(found: list[tuple[Mapping[str, Any], ...]]) -> list[Mapping[str, Any]]:
    """The first of each scenario, then the second: what is cut off must not be a whole scenario."""
    rounds = itertools.zip_longest(*found)
    return [anomaly for turn in rounds for anomaly in turn if anomaly is not None]


def _because(speaking: list[Finding], anomalies: list[Mapping[str, Any]]) -> str:
    reasons = list(dict.fromkeys(finding.because for finding in speaking))
    if speaking[0].verdict is Verdict.KEPT:
        return f"{BY_ID[speaking[0].promise].kept}: {'; '.join(reasons)}"
    if "lines" in speaking[0].evidence:  # the sentence names them all already
        return reasons[0]
    more = max(len(reasons), len(anomalies)) - 1
    return reasons[0] + (f" (and {more} more)" if more > 0 else "")


def _promise_json(one: PromiseResult) -> dict[str, Any]:
    return {
        "verdict": str(one.verdict),
        "because": one.because,
        "evidence": dict(one.evidence),
        "anomalies": [{**anomaly, "story": story(anomaly)} for anomaly in one.anomalies],
        **({"crash_state": one.crash_state} if one.crash_state else {}),
    }


def _fault_json(tally: FaultTally) -> dict[str, Any]:
    value = asdict(tally)
    if tally.not_run is None:
        del value["not_run"]
    return value
