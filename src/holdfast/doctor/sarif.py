"""Findings in a manifest as SARIF 2.1.0, which code hosts show beside the lines of a change. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from holdfast._version import __version__
from holdfast.doctor.finding import Audit, Finding, Severity

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {
    Severity.CRITICAL: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}


def sarif(found: Audit, manifest: Path) -> dict[str, Any]:
    """One run with a result for each finding; an empty run where there is none."""
    rules = list(dict.fromkeys(_rule(finding) for finding in found.findings))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "holdfast doctor",
                        "semanticVersion": __version__,
                        "rules": [{"id": rule} for rule in rules],
                    }
                },
                "results": [_result(finding, manifest) for finding in found.findings],
            }
        ],
    }


def _result(finding: Finding, manifest: Path) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": quote(manifest.as_posix())},
        "region": {"startLine": finding.line},
    }
    return {
        "ruleId": _rule(finding),
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.sentence()},
        "locations": [{"physicalLocation": place}],
    }


def _rule(finding: Finding) -> str:
    return finding.hazards[0].value if finding.hazards else "setup"
