"""The durability card in the terminal: one line a configuration, a bar for what was lost."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from holdfast.verify.result_card import Card, Row

BAR_CHARS: Final = 16
CONFIG_CHARS: Final = 14
TROUBLE_CHARS_MAX: Final = 200
_COLOURS: Final = {"kept": "green", "broken": "bold red", "unknown": "yellow", "not claimed": "dim"}
FAULTS: Final = {"kill": "SIGKILL", "power": "power cut"}
CLOSING: Final = {
    "kept": "No configuration lost an acknowledged write that it had to keep.",
    "broken": "Some configurations lose what they acknowledged.",
    "unknown": "Not everything could be known, so this is not a pass.",
}


def open_with(target: str) -> None:
    """The sentence that tells what is going to happen."""
    print(  # noqa: T201 - this is the terminal
        f"What does each configuration of {target} lose of what it acknowledged? Processes write as "
        "fast as they can,\nthe engine is killed or its power is cut, and everything is read back.\n",
        flush=True,
    )


def show(card: Card) -> None:
    """The card."""
    from rich.console import Console  # noqa: PLC0415 - only whoever looks needs it

    console = Console(highlight=False, markup=False, emoji=False, file=sys.stdout)
    console.print(_table(card))
    for why in dict.fromkeys(f"{row.fault}: {row.not_run}" for row in card.rows if row.not_run):
        console.print(f"Not measured: {why}", soft_wrap=True)
    for words in _troubles(card):
        console.print(words, soft_wrap=True)
    console.print(_reading(card))
    verdict = str(card.verdict)
    console.print(f"{verdict}: {CLOSING[verdict]}", style=_COLOURS[verdict])
    console.print(f"The same plan again: {card.repeat}", soft_wrap=True)


def _troubles(card: Card) -> Iterator[str]:
    """Why a configuration could not be read at all any more; once for each fault."""
    for row in card.rows:
        why = [loss.trouble for loss in row.losses if loss.trouble]
        if why:
            times = f"{len(why)} of {len(row.losses)} times"
            yield f"{row.config}, {FAULTS[row.fault]}, {times}: {why[0][:TROUBLE_CHARS_MAX]}"


def _table(card: Card) -> Any:
    from rich import box  # noqa: PLC0415 - only whoever looks needs it
    from rich.table import Table  # noqa: PLC0415

    engines = ", ".join(f"{kind} {version}" for kind, version in card.environment["engine"].items())
    title = f"Acknowledged appends lost: {engines}, {card.environment['took_s']} s"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("configuration", width=CONFIG_CHARS)
    table.add_column("ack", no_wrap=True)
    for fault in dict.fromkeys(row.fault for row in card.rows):
        table.add_column(f"lost by {FAULTS[fault]}", no_wrap=True)
    table.add_column("window", justify="right", no_wrap=True)
    table.add_column("halved", justify="right", no_wrap=True)
    for config in dict.fromkeys(row.config for row in card.rows):
        rows = [row for row in card.rows if row.config == config]
        last = rows[-1]
        cells = [_cell(card, row) for row in rows]
        window = f"{last.window_ms:.0f} ms" if last.lost else ""
        halved = sum(loss.halved for row in rows for loss in row.losses)
        level = next((row.level for row in reversed(rows) if row.level), "")
        table.add_row(
            "\n".join(textwrap.wrap(config, CONFIG_CHARS)), level, *cells, window, str(halved or "")
        )
    return table


def _cell(card: Card, row: Row) -> Any:
    from rich.text import Text  # noqa: PLC0415 - only whoever looks needs it

    style = _COLOURS[str(row.verdict(card.require))]
    if row.not_run:
        return Text("not measured", style=style)
    return Text(f"{bar(row.lost, row.acknowledged)}\n{amounts(row)}", style=style)


def bar(lost: int, acknowledged: int) -> str:
    """The share that was lost; whatever was lost shows."""
    share = lost / acknowledged if acknowledged else 0.0
    filled = max(round(share * BAR_CHARS), int(lost > 0))
    return "█" * filled + "·" * (BAR_CHARS - filled)


def amounts(row: Row) -> str:
    """The least and the most that one fault lost, and how many of them lost something."""
    lost = [loss.lost for loss in row.losses] or [0]
    least, most = min(lost), max(lost)
    span = f"{least}" if least == most else f"{least} to {most}"
    return f"{span}, {row.losing}/{len(row.losses)}"


def _reading(card: Card) -> str:
    mechanisms = ", ".join(dict.fromkeys(row.mechanism for row in card.rows if row.mechanism))
    acknowledged = sum(row.acknowledged for row in card.rows)
    how = f" Power was cut by: {mechanisms}." if mechanisms else ""
    return (
        f"Bars: the share of what was acknowledged ({acknowledged} appends in all). Window: from the "
        f"oldest lost ack to the last fault named. Halved: sessions of which a part is there.{how}"
    )
