"""The least that still breaks a promise: fewer clients, operations, messages and faults, less time.

A finding says which scenario showed it, with which operations. The same scenario is run again with
plans of a few operations a session, smaller and smaller ones, and what breaks the promise with the
least is kept. A finding that no small plan shows again is narrowed to its scenario.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.result import LASTING, CheckResult
from holdfast.verify.watchdog import Overdue, watchdog

TIMES_S: Final = (2.0, 5.0, 12.0)
"""How long a plan may take, as `--time` counts it."""
ROUGHLY: Final = 2.0
"""A plan takes about so many times as long, with the start of its engine."""
_APPENDS: Final = (
    (1, "append:1"), (1, "append:1,read"), (1, "append:2"), (2, "append:1"), (2, "append:2"),
    (2, "append:2,read"), (2, "append:1,append:1,read"), (4, "append:2,read"),
)  # fmt: skip
_READS: Final = (
    (1, "append:1,read,read,read"), (2, "append:1,read,read,read"),
)  # fmt: skip
"""What strikes between a write and a read finds one of several reads rather than the only one."""
_WINDOWS: Final = (
    (1, "append:2,read:1"), (1, "append:1,append:1,read:1"), (2, "append:1,append:1,read:1"),
    (2, "append:2,read:1"), (2, "append:2,append:2,read:2"),
)  # fmt: skip
_FORGETS: Final = (
    (1, "append:1,forget"), (1, "append:1,forget,retry"), (1, "append:1,forget,append:1"),
    (2, "append:1,forget"), (2, "append:1,forget,append:1,read"), (2, "append:1,forget,retry"),
)  # fmt: skip
_RETRIES: Final = (
    (1, "append:1,retry"), (2, "append:1,retry"), (1, "append:1,forget,retry"),
)  # fmt: skip
_SCENARIOS: Final = {
    "late-retry": "concurrency",
    "long-session": "concurrency",
    **{
        name: name
        for name in (
            "power-explore", "concurrency", "kill-clients", "pause-client", "disk-full", "failed-sync", "failed-read",
            "kill-engine", "power-cut", "pause-engine", "restart-engine", "network-cut",
            "no-connections", "clock-drift", "disk-full-engine",
        )
    },
}  # fmt: skip
"""Where a finding of a scenario can be shown by a few operations."""


class Quiet:
    """Hears what happens, and says nothing."""

    def say(self, words: str) -> None:
        """Nothing."""

    def done(self, scenario: str, verdict: str) -> None:
        """Nothing."""


def least(
    asked: CheckOptions,
    promise: str,
    one: Mapping[str, Any],
    within_s: float,
    *,
    tries: int = 1,
    first: CheckOptions | None = None,
) -> tuple[CheckOptions, CheckResult] | None:
    """The smallest plan that breaks the promise `tries` times in a row, and its first result.

    `one` is what a result says of the promise. What breaks it is tried with less, but for `first`,
    which is tried before all others. None where nothing broke again in that time; what goes wrong
    meanwhile, Ctrl-C too, ends the search with what was found. So does a plan that is not over then.
    """
    deadline = time.monotonic() + within_s
    plans = deque([*([first] if first else []), *plans_of(asked, promise, one)])
    best: tuple[CheckOptions, CheckResult] | None = None
    tried: set[CheckOptions] = set()
    longest_s = 0.0
    while plans:
        plan = plans.popleft()
        began = time.monotonic()
        if plan in tried or began + max(ROUGHLY * plan.time_s, longest_s) > deadline:
            continue
        tried.add(plan)
        try:
            with watchdog(deadline - began):
                found = _again(plan, promise, tries)
        except (Exception, KeyboardInterrupt, Overdue):  # noqa: BLE001 - the store was judged before
            break
        longest_s = max(longest_s, time.monotonic() - began)
        if found is not None:
            best = plan, found
            plans = deque([] if first else _less(plan))
    return best


def _again(plan: CheckOptions, promise: str, tries: int) -> CheckResult | None:
    """The first result, if all break the promise."""
    results: list[CheckResult] = []
    for _ in range(tries):
        results.append(check(plan, Quiet(), whole=False))
        if results[-1].promises[promise].verdict != "broken":
            return None
    return results[0]


def _less(plan: CheckOptions) -> Iterator[CheckOptions]:
    """The same with one client, operation or message less."""
    words = plan.operations
    if words and (plan.clients or 1) > 1:
        yield replace(plan, clients=(plan.clients or 1) - 1)
    for at, word in reversed(list(enumerate(words))):  # what comes last is missed least
        name, _, many = word.partition(":")
        before, after = words[:at], words[at + 1 :]
        if any(other.startswith("append") for other in (*before, *after)):
            yield replace(plan, operations=(*before, *after))
        if name == "append" and int(many) > 1:
            yield replace(plan, operations=(*before, f"append:{int(many) - 1}", *after))


def plans_of(asked: CheckOptions, promise: str, one: Mapping[str, Any]) -> Iterator[CheckOptions]:
    """Small ones that are likely to show it, then those in which it was found, the least first."""
    narrow = replace(asked, promises=(promise,))
    one_only = replace(narrow, faults=("all",))  # the scenario says which
    quick = replace(one_only, time_s=min(TIMES_S[0], asked.time_s))
    for root in roots_of(one)[:1]:
        scenario = _SCENARIOS.get(root["scenario"])
        if scenario and not _meets_a_fault(root):
            scenario = "concurrency"
        for clients, words in _small(promise, root) if scenario else ():
            operations = tuple(words.split(","))
            yield replace(quick, scenario=scenario, clients=clients, operations=operations)
    for scenario in _told_by(one):
        for time_s in (each for each in TIMES_S if each <= asked.time_s):
            yield replace(one_only, scenario=scenario, time_s=time_s)
    yield narrow
    yield asked


def _small(promise: str, root: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Those that have what the finding has; of one between several clients these come first."""
    operations = root.get("operations") or ()
    limited = any(each.get("limit") is not None for each in operations)
    forgets = any(each["f"] == "forget" for each in operations)
    plans: tuple[tuple[int, str], ...] = (
        *(_RETRIES if promise == "exactly-once" else ()),
        *(_FORGETS if promise == "forgotten" else ()),
        *(_READS if promise in ("fresh", "loud") else ()),
        *(_WINDOWS if limited and promise == "snapshot" else ()),
        *_APPENDS,
        *(_FORGETS if forgets else ()),
        *(_WINDOWS if limited else ()),
    )
    if promise == "atomic":
        plans = tuple(plan for plan in plans if "append:2" in plan[1])
    writers = {each["process"] for each in operations if each["f"] == "append"}
    several = len(writers) > 1 or bool(root.get("nearby"))
    return sorted(plans, key=lambda plan: (plan[0] > 1) is not several)


def _meets_a_fault(root: Mapping[str, Any]) -> bool:
    return bool(root.get("faults", True)) or root.get("fault") in LASTING


def _told_by(one: Mapping[str, Any]) -> list[str]:
    """The scenarios that broke it, that of the first finding before the others."""
    scenarios = one["evidence"].get("scenarios", {})
    broken = [name for name, said in scenarios.items() if said.get("verdict") == "broken"]
    return list(dict.fromkeys([*(root["scenario"] for root in roots_of(one)[:1]), *broken]))


def roots_of(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What breaks a promise by itself."""
    return [a for a in one["anomalies"] if a.get("follows_from") is None]
