"""`holdfast check`: run what was asked for, show it, write it."""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import terminal
from holdfast.errors import HoldfastError, VerifyError
from holdfast.verify import card
from holdfast.verify import check as kit
from holdfast.verify.report import check_terminal as report
from holdfast.verify.report import ci, html
from holdfast.verify.result import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where the result goes, beside the terminal."""

    json: Path | None = None
    """`-` is standard output, which then has nothing else on it."""
    report: Path | None = None
    summary: Path | None = None
    """Added to, as CI's summary file is: several steps write it."""
    junit: Path | None = None
    quiet: bool = False

    def ensure_writable(self) -> None:
        """Now, not after the whole check."""
        if self.report is not None:
            html.ensure_ready()
        for file in (self.json, self.report, self.summary, self.junit):
            if file not in (None, terminal.STDOUT):
                terminal.ensure_writable(file)

    def write(self, result: CheckResult) -> None:
        """Everything that was asked for."""
        found = result.to_json()
        if self.json != terminal.STDOUT:
            report.show(result, quiet=self.quiet)
        terminal.write_json(found, self.json)
        if self.report is not None:
            terminal.write_file(iter([html.render(found)]), self.report)
            self._say(self.report)
        if self.junit is not None:
            terminal.write_file(iter([ci.junit(found)]), self.junit)
        if self.summary is not None:
            terminal.write_file(_added(self.summary, ci.markdown(found)), self.summary)

    def _say(self, file: Path) -> None:
        if self.json != terminal.STDOUT and not self.quiet:
            report.show_place(file)


def run(outputs: Outputs, asked: dict[str, Any]) -> int:
    """Check a target with these options, where None leaves one out; the exit code."""
    if asked["seed"] is None:
        asked["seed"] = secrets.randbelow(1_000_000)
    given = {name: value for name, value in asked.items() if value is not None}
    options = kit.CheckOptions(**given)
    outputs.ensure_writable()
    if outputs.json != terminal.STDOUT and not outputs.quiet:
        report.open_with(options.shown, all_configs=options.all_configs)
    result = _result(options, report.Live(quiet=outputs.quiet))
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
