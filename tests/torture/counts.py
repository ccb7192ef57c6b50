"""What a campaign has done, over all runs: one that is cut off is continued by the next.

A file for each, in `HOLDFAST_TORTURE_COUNTS=DIR` or `.cache/torture`. Delete it to begin from the start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = Path(
    os.environ.get("HOLDFAST_TORTURE_COUNTS") or Path(__file__).parents[2] / ".cache" / "torture"
).absolute()


class Counts:
    """How many of `total` cases are done, how many failed, and what else is counted.

    A case that failed is not done: a campaign whose cases have numbers begins with that one again.
    """

    def __init__(self, campaign: str, total: int) -> None:
        self.campaign, self.total = campaign, total
        self._path = FOLDER / f"{campaign}.json"
        known = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
        self.done: int = known.pop("done", 0)
        self.failures: int = known.pop("failures", 0)
        known.pop("total", None)
        self.more: dict[str, int] = known

    @property
    def left(self) -> int:
        """How many there are still to do."""
        return max(0, self.total - self.done)

    def add(self, done: int = 0, *, failures: int = 0, **more: int) -> None:
        """Count, and keep it for the next run whatever happens to this one."""
        self.done += done
        self.failures += failures
        for name, count in more.items():
            self.more[name] = self.more.get(name, 0) + count
        known = {"total": self.total, "done": self.done, "failures": self.failures, **self.more}
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        part.write_text(json.dumps(known), "utf-8")
        part.replace(self._path)  # a kill leaves the counts from before, never half of a file

    @property
    def row(self) -> str:
        """It as a row of the page."""
        more = ", ".join(f"{count:,} {name}" for name, count in self.more.items())
        return f"| {self.campaign} | {self.done:,} | {self.total:,} | {self.failures} | {more} |"

    def __str__(self) -> str:
        more = "".join(f", {count:,} {name}" for name, count in self.more.items())
        return f"{self.campaign}: {self.done:,} of {self.total:,}, {self.failures} failed{more}"


_PAGE = """# What `make torture` has done

Campaigns count what they have done over all runs and go on where the last one stopped. `make torture` writes this page
from the counts of the machine that it runs on (`HOLDFAST_TORTURE_COUNTS`); a campaign that is not listed has not been begun there. A case
that failed is named by its test and is not counted as done.

| campaign | done | wanted | failed | besides |
|---|---|---|---|---|
{rows}
"""


def page() -> str:
    """All campaigns that were begun, as the page of the documentation."""
    known = sorted(FOLDER.glob("*.json"))
    rows = [Counts(one.stem, json.loads(one.read_text("utf-8"))["total"]).row for one in known]
    return _PAGE.format(rows="\n".join(rows))
