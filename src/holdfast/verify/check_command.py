"""`holdfast check`: run what was asked for, show it, write it."""

from __future__ import annotations

import json
import secrets
import traceback
from pathlib import Path
from typing import Any

from holdfast import terminal
from holdfast.errors import HoldfastError, VerifyError
from holdfast.verify import card
from holdfast.verify import check as kit
from holdfast.verify.report import html
from holdfast.verify.report import terminal as report
from holdfast.verify.result import CheckResult


def run(json_file: Path | None, report_file: Path | None, asked: dict[str, Any]) -> int:
    """Check a target with these options, where None leaves one out; the exit code."""
    if asked["seed"] is None:
        asked["seed"] = secrets.randbelow(1_000_000)
    given = {name: value for name, value in asked.items() if value is not None}
    options = kit.CheckOptions(**given)
    if report_file is not None:
        html.ensure_ready()
    for file in (json_file, report_file):
        if file is not None:  # now, not after the whole check
            terminal.ensure_writable(file)
    report.open_with(options.shown, all_configs=options.all_configs)
    result = _result(options)
    report.show(result)
    if json_file is not None:
        terminal.write_file(iter([json.dumps(result.to_json(), indent=2)]), json_file)
    if report_file is not None:
        terminal.write_file(iter([html.render(result.to_json())]), report_file)
        report.show_place(report_file)
    return result.exit_code


def _result(options: kit.CheckOptions) -> CheckResult:
    work = card.make_card if options.all_configs else kit.check
    try:
        with report.Live().running() as live:
            return work(options, live)
    except HoldfastError:
        raise
    except Exception as error:  # left to Python or click it is exit code 1: the store is accused
        traceback.print_exc()
        raise VerifyError(
            f"an error in holdfast itself, so nothing is known of the store: {error!r}"
        ) from error
