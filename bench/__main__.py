"""`python -m bench [NAME …]`: run the benches of those names, or all, and print the figures."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from rich.console import Console
from rich.table import Table

import bench
from bench.figure import Figure

NOT_BENCHES = {"__main__", "figure", "log"}


def main(names: list[str]) -> int:
    """Print one table a bench; 1 if a bound was missed."""
    known = [found.name for found in pkgutil.iter_modules(bench.__path__)]
    known = [name for name in known if name not in NOT_BENCHES]
    strange = [name for name in names if name not in known]
    if strange:
        print(f"no bench of the name {strange[0]}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or known:
        figures: list[Figure] = list(importlib.import_module(f"bench.{name}").run())
        Console().print(_table(name, figures))
        missed += sum(not figure.reached for figure in figures)
    return 1 if missed else 0


def _table(name: str, figures: list[Figure]) -> Table:
    table = Table(title=f"python -m bench {name}", title_justify="left")
    for column in ("figure", "measured", "bound", "", "detail"):
        table.add_column(column, overflow="fold")
    for figure in figures:
        bound = "" if figure.at_least is None else f">= {figure.at_least:g}"
        bound += "" if figure.at_most is None else f"<= {figure.at_most:g}"
        verdict = "[green]reached" if figure.reached else "[red]missed"
        table.add_row(
            figure.name,
            f"{figure.value:.2f} {figure.unit}",
            bound,
            verdict if bound else "",
            figure.detail,
        )
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
