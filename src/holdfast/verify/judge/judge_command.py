"""`holdfast judge FILE`: a file in, a result out, and the result as JSON or as plain text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

from holdfast.verify.history import collector_at_rest, read_history
from holdfast.verify.judge.decide import judge
from holdfast.verify.judge.verdict import Anomaly, JudgeResult, Verdict

EXIT_CODES: Final = {Verdict.KEPT: 0, Verdict.BROKEN: 1, Verdict.UNKNOWN: 3}
"""What the command exits with. `VerifyError`, of which `NotAHistory` is one, is 4."""

_SHOWN_MAX: Final = 20


def judge_file(path: Path | str) -> JudgeResult:
    """The verdict on the history in a file; `NotAHistory` names the line that is wrong."""
    with collector_at_rest():
        return judge(read_history(Path(path)))


def to_json(result: JudgeResult) -> dict[str, Any]:
    """The result for machines. Fields are added in later releases, never renamed."""
    return {
        "verdict": str(result.verdict),
        "because": result.because,
        "anomalies": [_anomaly_json(anomaly) for anomaly in result.anomalies],
        "not_claimed": [_anomaly_json(anomaly) for anomaly in result.unclaimed],
        "promises": {promise: str(verdict) for promise, verdict in result.promises.items()},
        "counts": dict(result.counts),
        "unknown_sessions": result.unknown_sessions,
        "weakened": dict(result.weakened),
    }


def _anomaly_json(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "name": anomaly.name,
        "promise": anomaly.promise,
        "session": anomaly.session,
        "message": anomaly.message,
        "witness": list(anomaly.witness),
        "because": anomaly.because,
        "confirmed": anomaly.confirmed,
        "follows_from": None if anomaly.follows_from is None else list(anomaly.follows_from),
    }


def render(result: JudgeResult) -> str:
    """The result for people: the verdict, each promise, and the first findings in words."""
    counts = result.counts
    lines = [
        f"{result.verdict}: {result.because}",
        (
            f"{counts['operations']} operations in {counts['sessions']} sessions, "
            f"{counts['acknowledged']} appends acknowledged, {counts['never_read']} of them never "
            f"read, {counts['reads']} reads, {counts['faults']} faults"
        ),
        "",
    ]
    for promise, verdict in result.promises.items():
        how = f"  ({result.weakened[promise]})" if promise in result.weakened else ""
        lines.append(f"  {promise:<14}{verdict}{how}")
    roots = result.roots
    for anomaly in roots[:_SHOWN_MAX]:
        witness = ", ".join(map(str, anomaly.witness))
        lines += ["", f"{anomaly.name} (session {anomaly.session!r}): {anomaly.because}"]
        lines += [f"  witness: operations {witness}"]
    hidden = len(roots) - _SHOWN_MAX
    if hidden > 0:
        lines += ["", f"and {hidden} more: see --json"]
    echoes = Counter((a.name, a.follows_from) for a in result.anomalies if a.follows_from)
    for (name, roots_of), count in echoes.items():
        lines += ["", f"{count} {name} follow from {' and '.join(roots_of or ())}: not counted"]
    if result.unclaimed:
        lines += ["", f"{len(result.unclaimed)} findings against promises that are not claimed"]
    return "\n".join(lines)
