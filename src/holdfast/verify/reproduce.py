"""`holdfast reproduce`: a result that has a broken promise becomes a test that fails.

The test holds the smallest plan that still breaks the promise (`shrink`), which is tried here before
it is written. The same plan is the example that a check shows.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import UsageError, VerifyError
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.crash_archive import from_text
from holdfast.verify.replay import replay
from holdfast.verify.result import CheckResult
from holdfast.verify.shrink import Quiet, least, plans_of, roots_of
from holdfast.verify.story import story_of

TRIES: Final = 3
"""A plan is kept if it breaks the promise so many times in a row: a test must not fail by luck."""
_COMMAND_CHARS_MAX: Final = 10_000
SPARE: Final = 2.0
"""So much longer is the plan that is written: what needs a certain moment then finds more of them."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The smallest plan that was found, and what it broke."""

    promise: str
    plan: CheckOptions
    result: CheckResult
    state: bytes = b""
    """A crash state that breaks it, as it was found (`crash_archive`)."""


def reproduce(
    file: Path,
    promise: str | None,
    within_s: float,
    options_of: Callable[[list[str]], dict[str, Any]],
) -> Reproduced:
    """Run ever smaller plans of a result as long as they break its promise again.

    `options_of` turns the words of a command into options. `UsageError` where the file is no
    result, has nothing broken, or nothing broke again in that time.
    """
    found = _result_of(file)
    broken = [name for name, one in found["promises"].items() if one["verdict"] == "broken"]
    name = promise or next(iter(broken), None)
    if name is None or name not in broken:
        raise UsageError(f"{file}: {name or 'no promise'} is broken in it: nothing to reproduce")
    with _taken_from(file):
        one, less = found["promises"][name], found.get("smallest") or {}
        asked = _options(found["repeat"], options_of)
        first = _options(less["repeat"], options_of) if less.get("promise") == name else None
        deque(
            plans_of(asked, name, one), maxlen=0
        )  # what is odd in it is found before anything runs
        stored = from_text(one.get("crash_state", ""))
    again = least(asked, name, one, within_s, tries=TRIES, first=first)
    if again is None:
        raise UsageError(
            f"{name} did not break again {TRIES} times in a row within {within_s:g} s; nothing was "
            f"written. Give more time (--shrink), or run: {found['repeat']}"
        )
    plan, result = again
    time_s = max(plan.time_s, min(SPARE * plan.time_s, asked.time_s))
    state = from_text(result.promises[name].crash_state)
    if plan.scenario == "power-cut":  # that leaves none, and the result may have one
        state = state or stored
    return Reproduced(name, replace(plan, time_s=time_s), result, state)


def smallest(asked: CheckOptions, result: CheckResult, within_s: float) -> dict[str, Any] | None:
    """The least that breaks a promise of a result once more, with its story.

    Of several broken promises it is the one that takes the least to see.

    None where nothing smaller was found in that time. Whatever happens here, the verdict stands.
    """
    found = result.to_json()["promises"]
    broken = [name for name, one in found.items() if one["verdict"] == "broken"]
    if not broken or result.rows or within_s <= 0:
        return None
    name = min(broken, key=lambda each: _takes(found[each]))
    again = least(asked, name, found[name], within_s)
    if again is None:
        return None
    plan, less = again[0], again[1].to_json()["promises"][name]
    words = story_of(less)
    root = next((root for root in roots_of(less) if root["story"] == words), None)
    return {
        "promise": name,
        "because": less["because"],
        "story": words,
        "anomaly": root,
        "repeat": plan.command,
    }


def _takes(one: Mapping[str, Any]) -> tuple[int, int]:
    """How many faults and operations its simplest finding has; none is told of what has none."""
    sizes = [
        (len(a.get("faults") or ()), len(a["operations"]))
        for a in roots_of(one)
        if a.get("operations")
    ]
    return min(sizes, default=(9, 9))


def hold(plan: CheckOptions, promise: str, state: Path | None = None) -> None:
    """Run a plan: `AssertionError` where it breaks the promise, `VerifyError` where it is not known.

    That it does not break is no proof of the promise: for that there is `holdfast check`.

    `state` is a crash state that the store once left. It is read first, byte for byte. What is not
    in it no mended store can show, so it is not the verdict: that is whether the store of today
    leaves such a state, given the same operations. As long as it cannot read the stored one, it is
    asked up to three times, so that no state is missed by luck.
    """
    lost = replay(plan, promise, state) if state else ""
    for _ in range(TRIES if lost else 1):
        one = check(plan, Quiet(), whole=False).promises[promise]
        words = _plain(f"{one.because}\n{story_of(asdict(one))}\n{plan.command}")
        if one.verdict == "broken":
            stored = _plain(f"\nThe stored crash state {state}: {lost}") if lost else ""
            raise AssertionError(f"{promise} is broken: {words}{stored}")
        if one.verdict != "kept":
            raise VerifyError(f"{promise} is {one.verdict}: {words}")


def _result_of(file: Path) -> dict[str, Any]:
    with _taken_from(file):
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        found["repeat"], [one["verdict"] for one in found["promises"].values()]
    return found


@contextlib.contextmanager
def _taken_from(file: Path) -> Iterator[None]:
    """`UsageError` where it is no result: it is data, and may have been changed by anybody."""
    try:
        yield
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        VerifyError,
    ) as error:
        raise UsageError(f"{file} is not a result of `holdfast check --json`: {error!r}") from error


def _options(command: str, options_of: Callable[[list[str]], dict[str, Any]]) -> CheckOptions:
    """Those of a command line. It is taken apart, and never run."""
    if len(command) > _COMMAND_CHARS_MAX:
        raise ValueError("its command is too long")
    return CheckOptions(**options_of(shlex.split(command)[2:]))


def as_test(found: Reproduced, state: str = "") -> str:
    """A pytest file: it fails as long as the promise is broken.

    `state` names the file beside it that has the crash state.
    """
    one = found.result.promises[found.promise]
    example = story_of(asdict(one))
    default = CheckOptions()
    given = [
        f"    {field.name}={getattr(found.plan, field.name)!r},"
        for field in fields(CheckOptions)
        if getattr(found.plan, field.name) != getattr(default, field.name)
    ]
    lines = ["Made by `holdfast reproduce`.", "", f"{found.promise}: {one.because}"]
    lines += ["", f"    {example}"] if example else []
    if state:
        lines += ["", f"{state} is a crash state of that store: its files, byte for byte, and what"]
        lines += [
            "it had acknowledged. The test reads them, then runs the plan. It fails as long as"
        ]
        lines += ["the store leaves such a state; one that no longer does passes."]
    said = _plain("\n".join(lines)).split("\n")  # a store's error may have lines of its own
    comment = "\n".join(f"# {line}".rstrip() for line in said)
    name = found.promise.replace("-", "_")
    beside = f", state=Path(__file__).with_name({state!r})" if state else ""
    return (
        f"{comment}\n\n"
        f"{'from pathlib import Path' + chr(10) * 2 if state else ''}"
        "from holdfast.verify.check_options import CheckOptions\n"
        "from holdfast.verify.reproduce import hold\n\n"
        f"PLAN = CheckOptions(\n{chr(10).join(given)}\n)\n\n\n"
        f"def test_{name}_is_kept():\n"
        f"    hold(PLAN, {found.promise!r}{beside})\n"
    )


def _plain(text: str) -> str:
    return "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )
