"""`holdfast reproduce`: a result that has a broken promise becomes a test that fails.

The test holds the smallest plan that still breaks the promise: this promise alone, the one fault
that it takes, as little time as will do. It is tried here before it is written.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import UsageError
from holdfast.verify.check import check
from holdfast.verify.check_options import TIME_S, CheckOptions
from holdfast.verify.result import CheckResult
from holdfast.verify.story import story

TIMES_S: Final = (2.0, 5.0, 12.0, TIME_S)
TRIES: Final = 3
"""A plan is kept if it breaks the promise so many times in a row: a test must not fail by luck."""
SPARE: Final = 2.0
"""So much longer is the plan that is written: what needs a certain moment then finds more of them."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The smallest plan that was found, and what it broke."""

    promise: str
    plan: CheckOptions
    result: CheckResult


class Quiet:
    """Hears what happens, and says nothing."""

    def say(self, words: str) -> None:
        """Nothing."""

    def done(self, scenario: str, verdict: str) -> None:
        """Nothing."""


def reproduce(
    file: Path,
    promise: str | None,
    within_s: float,
    options_of: Callable[[list[str]], dict[str, Any]],
) -> Reproduced:
    """Run ever larger plans of a result until one breaks its promise again.

    `options_of` turns the words of a command into options. `UsageError` where the file is no
    result, has nothing broken, or nothing broke again in that time.
    """
    found = _result_of(file)
    broken = [name for name, one in found["promises"].items() if one["verdict"] == "broken"]
    name = promise or next(iter(broken), None)
    if name is None or name not in broken:
        raise UsageError(f"{file}: {name or 'no promise'} is broken in it: nothing to reproduce")
    asked = CheckOptions(**options_of(shlex.split(found["repeat"])[2:]))
    deadline = time.monotonic() + within_s
    again = _least(asked, name, found["promises"][name], deadline, TRIES)
    if again is None:
        raise UsageError(
            f"{name} did not break again {TRIES} times in a row within {within_s:g} s; nothing was "
            f"written. Give more time (--shrink), or run: {found['repeat']}"
        )
    longer = replace(again.plan, time_s=min(SPARE * again.plan.time_s, asked.time_s))
    return replace(again, plan=longer)


def smallest(asked: CheckOptions, result: CheckResult, within_s: float) -> dict[str, Any] | None:
    """A smaller plan that breaks the first broken promise of a result once more, with its story.

    None where nothing smaller was found in that time. Whatever happens here, the verdict stands.
    """
    found = result.to_json()["promises"]
    broken = [name for name, one in found.items() if one["verdict"] == "broken"]
    if not broken or result.rows or within_s <= 0:
        return None
    name, deadline = broken[0], time.monotonic() + within_s
    try:
        again = _least(asked, name, found[name], deadline, 1, fits=True)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - the store was judged before
        return None
    if again is None:
        return None
    less = again.result.to_json()["promises"][name]
    stories = [root for root in _roots(less) if root["story"]]
    root = min(stories, key=lambda each: len(each["story"]), default=None)
    return {
        "promise": name,
        "because": less["because"],
        "story": "" if root is None else root["story"],
        "anomaly": root,
        "repeat": again.plan.command,
    }


def _least(
    asked: CheckOptions,
    promise: str,
    one: Mapping[str, Any],
    deadline: float,
    tries: int,
    *,
    fits: bool = False,
) -> Reproduced | None:
    """The first of ever larger plans that breaks the promise in the same way each time.

    `fits`: none is begun that would probably not end in time.
    """
    for plan in _plans(asked, promise, one):
        if fits and time.monotonic() + SPARE * plan.time_s > deadline:
            return None
        results: list[CheckResult] = []
        while len(results) < tries and time.monotonic() < deadline:
            results.append(check(plan, Quiet()))
            if not _breaks(results[-1], promise, one):
                break
        else:
            if len(results) == tries:
                return Reproduced(promise, plan, results[0])
    return None


def _breaks(result: CheckResult, promise: str, one: Mapping[str, Any]) -> bool:
    """Whether this promise is broken again, by a finding of the same name where it had one."""
    names = {root["name"] for root in _roots(one)}
    again = result.promises[promise]
    same = names & {root["name"] for root in _roots({"anomalies": again.anomalies})}
    return again.verdict == "broken" and (bool(same) or not names)


def _result_of(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        found["repeat"], found["promises"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"{file} is not a result of `holdfast check --json`: {error!r}") from error
    return found


def _plans(asked: CheckOptions, promise: str, one: Mapping[str, Any]) -> Iterator[CheckOptions]:
    """From the least to all that was asked."""
    narrow = replace(asked, promises=(promise,))
    faults = _faults(one)
    # What was found by looking at single messages has no operations to name a fault.
    times = TIMES_S if faults else TIMES_S[:1]
    for fault in faults or ["none"]:
        for time_s in (each for each in times if each <= asked.time_s):
            yield replace(narrow, faults=(fault,), time_s=time_s)
    yield narrow
    yield asked


def _faults(one: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(str(a.get("fault") or "none") for a in _roots(one)))


def _roots(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [a for a in one["anomalies"] if a.get("follows_from") is None]


def as_test(found: Reproduced) -> str:
    """A pytest file: it fails as long as the promise is broken."""
    one = found.result.promises[found.promise]
    example = next((words for anomaly in one.anomalies if (words := story(anomaly))), "")
    default = CheckOptions()
    given = [
        f"    {field.name}={getattr(found.plan, field.name)!r},"
        for field in fields(CheckOptions)
        if getattr(found.plan, field.name) != getattr(default, field.name)
    ]
    lines = ["Made by `holdfast reproduce`.", "", f"{found.promise}: {one.because}"]
    lines += ["", f"    {example}"] if example else []
    comment = "\n".join(f"# {_plain(line)}".rstrip() for line in lines)
    name = found.promise.replace("-", "_")
    return (
        f"{comment}\n\n"
        "from holdfast.verify.check import CheckOptions, check\n"
        "from holdfast.verify.reproduce import Quiet\n\n"
        f"PLAN = CheckOptions(\n{chr(10).join(given)}\n)\n\n\n"
        f"def test_{name}_is_kept():\n"
        f"    found = check(PLAN, Quiet()).promises[{found.promise!r}]\n"
        '    assert found.verdict == "kept", found.because\n'
    )


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
