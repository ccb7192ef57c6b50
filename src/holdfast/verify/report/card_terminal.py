"""The durability card in the terminal: one line a configuration, a bar for what was lost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.verify.result import CheckResult
from holdfast.verify.result_card import HELD_S

BAR_CHARS: Final = 16
CONFIG_CHARS: Final = 14
TROUBLE_CHARS_MAX: Final = 200
COLOURS: Final = {"kept": "green", "broken": "bold red", "unknown": "yellow", "not claimed": "dim"}
OPENING: Final = (
    "What does each configuration of {target} lose of what it acknowledged? Processes write as fast "
    "as they can,\nthe engine is killed or its power is cut, and everything is read back.\n"
)
OPENING_OF_SEVERAL: Final = (
    "What does each setup of {target} lose of what it acknowledged? Processes write as fast as they can,\n"
    "the primary is killed, another member takes its place, and everything is read back.\n"
)
FAULTS: Final = {"kill": "SIGKILL", "power": "power cut", "failover": "failover"}
CLOSING: Final = {
    "kept": "No configuration lost an acknowledged write that it had to keep.",
    "broken": "Some configurations lose what they acknowledged.",
    "unknown": "Not everything could be known, so this is not a pass.",
}


def table(result: CheckResult) -> Any:
    """One line a configuration."""
    from rich import box  # noqa: PLC0415 - needed only for printing
    from rich.table import Table  # noqa: PLC0415

    about = result.environment
    engines = ", ".join(f"{kind} {version}" for kind, version in about["engine"].items())
    title = f"Acknowledged appends lost: {engines}, {about['took_s']} s"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("configuration", width=CONFIG_CHARS)
    table.add_column("ack", no_wrap=True)
    for fault in dict.fromkeys(row["fault"] for row in result.rows):
        table.add_column(f"lost by {FAULTS[fault]}", no_wrap=True)
    table.add_column("window", justify="right", no_wrap=True)
    table.add_column("halved", justify="right", no_wrap=True)
    for config in dict.fromkeys(row["config"] for row in result.rows):
        rows = [row for row in result.rows if row["config"] == config]
        last = rows[-1]
        cells = [_cell(row) for row in rows]
        window = f"{last['window_ms']:.0f} ms" if last["lost"] else ""
        halved = sum(loss["halved"] for row in rows for loss in row["losses"])
        level = next((row["level"] for row in reversed(rows) if row["level"]), "")
        table.add_row(
            "\n".join(textwrap.wrap(config, CONFIG_CHARS)), level, *cells, window, str(halved or "")
        )
    return table


def _cell(row: Mapping[str, Any]) -> Any:
    from rich.text import Text  # noqa: PLC0415 - needed only for printing

    style = COLOURS[row["verdict"]]
    if row["not_run"]:
        return Text("not measured", style=style)
    return Text(f"{bar(row['lost'], row['acknowledged'])}\n{amounts(row)}", style=style)


def bar(lost: int, acknowledged: int) -> str:
    """The share that was lost; whatever was lost shows."""
    share = lost / acknowledged if acknowledged else 0.0
    filled = max(round(share * BAR_CHARS), int(lost > 0))
    return "█" * filled + "·" * (BAR_CHARS - filled)


def amounts(row: Mapping[str, Any]) -> str:
    """The least and the most that one fault lost, and how many of them lost something."""
    return f"{span(row)}, {row['losing']}/{len(row['losses'])}"


def span(row: Mapping[str, Any]) -> str:
    """The least and the most that one fault lost."""
    lost = [loss["lost"] for loss in row["losses"]] or [0]
    least, most = min(lost), max(lost)
    return f"{least}" if least == most else f"{least} to {most}"


def lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What stands below the table: what was not measured, what could not be read, how to read it."""
    unmeasured = (f"{row['fault']}: {row['not_run']}" for row in rows if row["not_run"])
    yield from (f"Not measured: {why}" for why in dict.fromkeys(unmeasured))
    for row in rows:
        if why := [loss["trouble"] for loss in row["losses"] if loss["trouble"]]:
            times = f"{len(why)} of {len(row['losses'])} times"
            words = f"{row['config']}, {FAULTS[row['fault']]}, {times}"
            yield f"{words}: {why[0][:TROUBLE_CHARS_MAX]}"
    mechanisms = ", ".join(dict.fromkeys(row["mechanism"] for row in rows if row["mechanism"]))
    acknowledged = sum(row["acknowledged"] for row in rows)
    how = f" Power was cut by: {mechanisms}." if mechanisms else ""
    if any(row["fault"] == "failover" for row in rows):
        how = f" Before a failover the log does not reach the others for {HELD_S:g} s."
    yield (
        f"Bars: the share of what was acknowledged ({acknowledged} appends in all). Window: from the "
        f"oldest lost ack to the last fault named. Halved: sessions of which a part is there.{how}"
    )
