"""A check in the terminal: what happens now while it runs, and the scorecard at its end."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.verify.report import card_terminal
from holdfast.verify.report.card_terminal import COLOURS
from holdfast.verify.report.causes import of_promise
from holdfast.verify.result import CheckResult, PromiseResult
from holdfast.verify.story import example_of

_MARKS: Final = {"kept": "✓", "broken": "✗", "unknown": "?", "not claimed": "-"}
CLOSING: Final = {
    "kept": "Every promise that it makes was kept.",
    "broken": "It broke a promise.",
    "unknown": "Not everything could be known, so this is not a pass.",
}
_SENTENCE_CHARS_MAX: Final = 400


class Live:
    """Shows on the error stream what happens now; a line a scenario where that is no terminal."""

    def __init__(self, *, quiet: bool = False, begin: Callable[[], None] | None = None) -> None:
        """`begin` is called when the target is open: a mistyped name needs no introduction."""
        from rich.console import Console  # noqa: PLC0415 - needed only for printing

        self._console = Console(
            stderr=True, highlight=False, markup=False, emoji=False, quiet=quiet, soft_wrap=True
        )
        self._status: Any = None
        self._begin = begin

    @contextlib.contextmanager
    def running(self) -> Iterator[Live]:
        """Show it inside the block."""
        if not self._console.is_terminal:
            yield self
            return
        with self._console.status("beginning") as self._status:
            yield self

    def say(self, words: str) -> None:
        """What happens now."""
        if self._begin and not words.startswith(("starting ", "opening ")):
            self._begin()
            self._begin = None
        if self._status is not None:
            self._status.update(words)

    def done(self, scenario: str, verdict: str) -> None:
        """A scenario has ended."""
        self._console.print(f"  {_MARKS[verdict]} {scenario}", style=COLOURS[verdict])


_OPENING: Final = (
    "Does this memory keep what it said it had kept? Processes write conversations into {target}, "
    "are\nkilled in the middle of it, and everything that was acknowledged is then looked for again.\n"
)


def open_with(target: str, *, all_configs: bool = False, topology: str | None = None) -> None:
    """The sentence that tells a newcomer what is going to happen."""
    card = card_terminal.OPENING_OF_SEVERAL if topology else card_terminal.OPENING
    words = card if all_configs else _OPENING
    print(words.replace("{target}", target), flush=True)  # noqa: T201 - this is the terminal


def show_place(file: Path) -> None:
    """Where the page is."""
    print(f"The report: {_printable(str(file))}")  # noqa: T201 - this is the terminal


def show_test_hint(file: Path | None) -> None:
    """How a finding becomes a test."""
    more = "" if file else " (after a check with --json result.json)"
    name = _printable(shlex.quote(str(file or "result.json")))
    print(f"Keep a test of it: holdfast reproduce {name} --out test_it.py{more}")  # noqa: T201 - this is the terminal


def show(result: CheckResult, *, quiet: bool = False) -> None:
    """The scorecard, or the durability card where every configuration was checked.

    Quiet: the verdict, and the promises that were not kept.
    """
    from rich.console import Console  # noqa: PLC0415 - needed only for printing

    console = Console(highlight=False, markup=False, emoji=False, file=sys.stdout)
    if quiet:
        below = _not_kept(result)
    else:
        console.print(card_terminal.table(result) if result.rows else _scorecard(result))
        below = card_terminal.lines(result.rows) if result.rows else _causes(result)
    for line in below:
        console.print(line, soft_wrap=True)
    if not result.rows and not quiet:
        console.print(f"{_faults(result)}\n{_counts(result)}\n")
    verdict = str(result.verdict)
    closing = card_terminal.CLOSING[verdict] if result.rows else closing_of(result.to_json())
    console.print(f"{verdict}: {closing}", style=COLOURS[verdict])
    console.print(f"The same plan again: {result.repeat}", soft_wrap=True)


def closing_of(result: Mapping[str, Any]) -> str:
    """The sentence at the end; of some of the promises, how many were asked about."""
    verdict, left = result["verdict"], len(result.get("not_asked", ()))
    asked = len(result["promises"])
    noun = "promise" if asked == 1 else "promises"
    counted = Counter(one["verdict"] for one in result["promises"].values())
    each = ", ".join(f"{many} {how}" for how, many in counted.most_common())
    found = f", {verdict}" if set(counted) == {verdict} else f": {each}"
    part = f"{asked} {noun} asked{found}; {left} not asked."
    return part if left else CLOSING.get(verdict, verdict)


def _scorecard(result: CheckResult) -> Any:
    from rich.table import Table  # noqa: PLC0415 - needed only for printing

    table = Table(title=_title(result), title_justify="left")
    table.add_column("promise", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("because", overflow="fold")
    for promise, one in result.promises.items():
        verdict = str(one.verdict)
        table.add_row(promise, _coloured(verdict), _sentence(one))
    return table


def _title(result: CheckResult) -> str:
    engine = result.environment.get("engine")
    where = (
        "" if engine is None else f" on {engine['kind']} {engine['version']} ({engine['config']})"
    )
    return f"{_printable(result.target)}{where}, {result.environment['took_s']} s"


def _coloured(verdict: str) -> Any:
    from rich.text import Text  # noqa: PLC0415 - needed only for printing

    return Text(f"{_MARKS[verdict]} {verdict}", style=COLOURS[verdict])


def _sentence(one: PromiseResult) -> str:
    words = _printable(one.because)
    return words if len(words) <= _SENTENCE_CHARS_MAX else words[:_SENTENCE_CHARS_MAX] + "…"


def _not_kept(result: CheckResult) -> Iterator[str]:
    for promise, one in result.promises.items():
        if str(one.verdict) in ("broken", "unknown"):
            yield f"{promise}: {one.verdict}: {_sentence(one)}"


def _causes(result: CheckResult) -> Iterator[str]:
    """For each broken promise why that is likely, what to change, and what follows from it."""
    for promise, one in result.to_json()["promises"].items():
        if one["verdict"] == "broken":
            says = of_promise(promise, one, result.environment)
            less: Mapping[str, Any] = result.smallest or {}
            if example := example_of(promise, one, less):
                yield f"{promise}: example: {_printable(example)}"
            if less.get("promise") == promise:
                yield f"{promise}: the smallest plan that shows it: {_printable(less['repeat'])}"
            yield f"{promise}: likely cause: {says.cause} Change: {says.change}"
            echoes = sum(bool(anomaly.get("follows_from")) for anomaly in one["anomalies"])
            if echoes:
                yield f"{promise}: {echoes} other findings follow from it and are not counted"


def _faults(result: CheckResult) -> Any:
    landed = [
        f"{name} {tally.landed}x ({tally.in_flight} in flight)" if tally.in_flight
        else f"{name} {tally.landed}x"
        for name, tally in result.faults.items()
        if tally.landed
    ]  # fmt: skip
    lines = [f"Faults that landed: {', '.join(landed) or 'none'}"]
    lines += [
        f"Not caused: {name} ({_printable(tally.not_run)})"
        for name, tally in result.faults.items()
        if tally.not_run
    ]
    return "\n".join(lines)


def _counts(result: CheckResult) -> str:
    counts = result.counts
    return (
        f"{counts['acknowledged']} appends acknowledged, {counts['read_back']} read back, "
        f"{counts['lost']} messages lost; {counts.get('reads', 0)} reads, "
        f"{counts.get('forgets', 0)} forgets, {counts.get('unknown', 0)} of unknown outcome"
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
