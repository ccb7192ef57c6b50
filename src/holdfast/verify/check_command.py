"""`holdfast check`: run what was asked for, show it, write it."""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast import terminal
from holdfast.errors import HoldfastError, UsageError, VerifyError
from holdfast.verify import card
from holdfast.verify import check as kit
from holdfast.verify.report import check_terminal as report
from holdfast.verify.report import ci, html
from holdfast.verify.reproduce import smallest
from holdfast.verify.result import EXIT_CODES, WORST_FIRST, CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where the result goes, beside the terminal."""

    json: Path | None = None
    """`-` is standard output, which then has nothing else on it."""
    report: Path | None = None
    summary: Path | None = None
    """Added to, as CI's summary file is: several steps write it."""
    junit: Path | None = None
    badge: Path | None = None
    """`.svg` is the picture, `.json` the answer of an endpoint that shields.io draws."""
    quiet: bool = False

    def numbered(self, number: int) -> Outputs:
        """The files of one of several checks: `report-2.html`. The summary is one for all."""
        if self.json == terminal.STDOUT:
            raise UsageError(
                "--json - prints one result, and [tool.holdfast] asks for several checks: "
                "name TARGET and --seed, or a file"
            )
        files = {name: getattr(self, name) for name in ("json", "report", "junit", "badge")}
        own = {n: f and f.with_stem(f"{f.stem}-{number}") for n, f in files.items()}
        return replace(self, **own)

    def ensure_writable(self) -> None:
        """Now, not after the whole check."""
        if self.report is not None:
            html.ensure_ready()
        if self.badge is not None and self.badge.suffix not in ci.BADGES:
            raise UsageError(f"--badge {self.badge}: a badge is FILE.svg or FILE.json")
        for file in (self.json, self.report, self.summary, self.junit, self.badge):
            if file not in (None, terminal.STDOUT):
                terminal.ensure_writable(file)

    def write(self, result: CheckResult) -> None:
        """Everything that was asked for: the files first, since a reader of ours may hang up."""
        found = result.to_json()
        for file, text in (
            (self.report, html.render),
            (self.junit, ci.junit),
            (self.badge, ci.BADGES.get(self.badge.suffix if self.badge else "")),
        ):
            if file is not None and text is not None:
                terminal.write_file(iter([text(found)]), file)
        if self.summary is not None:
            terminal.write_file(_added(self.summary, ci.markdown(found)), self.summary)
        if self.json != terminal.STDOUT:
            terminal.write_json(found, self.json)
        with terminal.to_whoever_listens():
            self._print(result, found)

    def _print(self, result: CheckResult, found: dict[str, Any]) -> None:
        if self.json == terminal.STDOUT:
            terminal.write_json(found, self.json)
            return
        report.show(result, quiet=self.quiet)
        if self.report is not None and self.talks:
            report.show_place(self.report)
        if result.verdict == "broken" and not result.rows and self.talks:
            report.show_test_hint(self.json)

    @property
    def talks(self) -> bool:
        """Whether the terminal is for people."""
        return self.json != terminal.STDOUT and not self.quiet


def run_all(outputs: Outputs, checks: list[dict[str, Any]]) -> int:
    """One check after another; the exit code of the worst."""
    if len(checks) == 1:
        return run(outputs, checks[0])
    each = [outputs.numbered(number) for number in range(1, len(checks) + 1)]
    codes = [run(own, asked) for own, asked in zip(each, checks, strict=True)]
    return next(EXIT_CODES[verdict] for verdict in WORST_FIRST if EXIT_CODES[verdict] in codes)


def run(outputs: Outputs, asked: dict[str, Any]) -> int:
    """Check a target with these options, where None leaves one out; the exit code."""
    asked = dict(asked)
    shrink_s = asked.pop("shrink_s", 0.0)
    if asked["seed"] is None:
        asked["seed"] = secrets.randbelow(1_000_000)
    given = {name: value for name, value in asked.items() if value is not None}
    options = kit.CheckOptions(**given)
    outputs.ensure_writable()

    def begin() -> None:
        with terminal.to_whoever_listens():
            report.open_with(
                options.shown, all_configs=options.all_configs, topology=options.topology
            )

    live = report.Live(quiet=outputs.quiet, begin=begin if outputs.talks else None)
    result = _result(options, live)
    if result.verdict == "broken" and shrink_s:
        with live.running():
            live.say(f"looking for the smallest example, for {shrink_s:g} s (Ctrl-C: do without)")
            result = replace(result, smallest=smallest(options, result, shrink_s))
    outputs.write(result)
    return result.exit_code


def _result(options: kit.CheckOptions, live: report.Live) -> CheckResult:
    work = card.make_card if options.all_configs else kit.check
    try:
        with live.running():
            return work(options, live)
    except HoldfastError:
        raise
    except Exception as error:  # left to Python or click it is exit code 1: the store is accused
        traceback.print_exc()
        raise VerifyError(
            f"an error in holdfast itself, so nothing is known of the store: {error!r}"
        ) from error


def _added(file: Path, lines: Iterator[str]) -> Iterator[str]:
    if file.exists():
        yield from file.read_text("utf-8").splitlines()
    yield from lines
