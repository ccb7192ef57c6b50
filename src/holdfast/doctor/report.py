"""An audit in the terminal: findings first, then what it is sound for and what was not seen."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from holdfast.doctor.finding import EXIT_SOUND, EXIT_UNSEEN, Audit, Finding, Severity, Soundness

_COLOURS: Final = {
    Severity.CRITICAL: "bold red",
    Severity.WARNING: "yellow",
    Severity.NOTE: "dim",
}
_VERDICTS: Final = {
    Soundness.SOUND: ("✓", "green"),
    Soundness.UNSOUND: ("✗", "bold red"),
    Soundness.UNKNOWN: ("?", "yellow"),
    Soundness.ABSENT: ("-", "dim"),
}
_CLOSING: Final = {
    EXIT_SOUND: "sound: nothing was found by which this setup would lose what it acknowledged.",
    EXIT_UNSEEN: "unknown: what decides could not be seen, so this is not a pass.",
}


def show(audit: Audit) -> None:
    """Everything, for people."""
    console = _console()
    version = audit.facts.get("version")
    console.print(_clean(f"{audit.engine} {version or ''} at {audit.where}".replace("  ", " ")))
    for line in audit.topology:
        console.print(_clean(f"  {line}"))
    for finding in audit.findings:
        console.print()
        console.print(
            f"{finding.severity}: {_clean(finding.loses)}", style=_COLOURS[finding.severity]
        )
        console.print(_reasons(finding))
        for command in finding.commands:
            console.print(_clean(f"      {command}"), style="bold", soft_wrap=True)
    console.print()
    console.print(_verdicts(audit))
    if audit.ack_durability is not None:
        console.print(f"Acks of holdfast's own store here: {audit.ack_durability.name}")
    seen = "; ".join(f"{name}: {value}" for name, value in audit.facts.items())
    console.print(_clean(f"Seen: {seen or 'nothing'}"), style="dim")
    for words in audit.unseen:
        console.print(_clean(f"Not seen: {words}"))
    console.print(f"\n{_closing(audit)}")


def _reasons(finding: Finding) -> Any:
    from rich.table import Table  # noqa: PLC0415 - needed only for printing

    grid = Table.grid(padding=(0, 1, 0, 0))
    for name, words in (("why", finding.why), ("now", finding.now), ("do", finding.change)):
        grid.add_row("", f"{name}:", _clean(words))
    return grid


def show_commands(audit: Audit) -> None:
    """Only what to type, with the reason above it; nothing of it is run."""
    lines = [line for finding in audit.findings for line in _commands(finding)]
    print("\n".join(lines) if lines else "# nothing to change")  # noqa: T201 - this is the terminal


def _commands(finding: Finding) -> Iterator[str]:
    if not finding.counts:
        return
    yield f"# {finding.severity}: {_clean(finding.loses)}"
    yield f"# now: {_clean(finding.now)}"
    yield from map(_clean, finding.commands or (f"# by hand: {finding.change}",))
    yield ""


def _verdicts(audit: Audit) -> Any:
    from rich.table import Table  # noqa: PLC0415 - needed only for printing
    from rich.text import Text  # noqa: PLC0415

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for hazard, verdict in audit.sound.items():
        mark, colour = _VERDICTS[verdict]
        table.add_row(hazard.value, Text(f"{mark} {verdict.value}", style=colour))
    return table


def _closing(audit: Audit) -> str:
    code = audit.exit_code
    if code in _CLOSING:
        return _CLOSING[code]
    counts = Counter(finding.severity.value for finding in audit.findings if finding.counts)
    return "findings: " + ", ".join(f"{count} {name}" for name, count in counts.items())


def _console() -> Any:
    from rich.console import Console  # noqa: PLC0415 - needed only for printing

    return Console(highlight=False, markup=False, emoji=False, file=sys.stdout)


def _clean(text: str) -> str:
    """No control codes: names of keys and tables are a stranger's."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
