"""Our own store, as its tables or keys show it: schema, damaged records, expired leftovers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast import codec
from holdfast.doctor.finding import Finding, Hazard, Measure, Opinion, Severity
from holdfast.errors import StoredDataError


@dataclass(slots=True)
class Books:
    """What was read of a store of ours; of its sessions and records a sample."""

    schema: int
    known: int
    """The schema that this release writes."""
    sessions: int = 0
    """Of which records were read."""
    records: int = 0
    damaged: list[str] = field(default_factory=list)
    """`session, number: why`"""
    torn: list[str] = field(default_factory=list)
    """Sessions whose records are not those that their head counts."""
    leftovers: int = 0
    """Sessions that have expired and still take room."""
    unread: bool = False
    """Its tables are of another release, so that no record could be looked at."""
    index_lag: int | None = None
    """Records of the sample that the recall index has not seen; None where there is no index."""

    def read(self, session: bytes, records: Iterable[tuple[int, Any]]) -> None:
        """Take the records of one session into the sample."""
        name = session.decode("utf-8", "backslashreplace")
        self.sessions += 1
        for seq, record in records:
            self.records += 1
            try:
                codec.decode(bytes(record), seq)
            except StoredDataError as error:
                self.damaged.append(f"{name!r}, number {seq}: {error}")

    def count_lag(self, last: int, floor: int, upto: int, of_floor: int | None = None) -> None:
        """Take a log that has an index: how far that is behind the numbers above the floor.

        `of_floor` is the floor that the index knows; one that knows another is rebuilt.
        """
        behind = last - max(upto, floor) if of_floor in (None, floor) else last - floor
        self.index_lag = (self.index_lag or 0) + max(0, behind)

    def measures(self, where: str) -> list[Measure]:
        """What changes from look to look."""
        lag = self.index_lag
        return [] if lag is None else [Measure("index_lag_records", lag, where)]

    def facts(self) -> dict[str, str]:
        """In words."""
        facts = {
            "holdfast schema": f"{self.schema} (this release writes {self.known})",
            "holdfast records read": f"{self.records} of {self.sessions} session(s)",
            "holdfast expired leftovers": str(self.leftovers),
        }
        if self.index_lag is not None:
            facts["holdfast index lag"] = f"{self.index_lag} record(s)"
        return facts


def judge(books: Books | None) -> Opinion:
    """Findings about our own store; None: there is none, and others' records are not for us to read."""
    if books is None:
        return Opinion(unknown={Hazard.DAMAGE})
    found = Opinion(unknown={Hazard.DAMAGE} if books.unread else set())
    if books.schema > books.known:
        found.findings.append(_newer(books))
    for names, what in ((books.damaged, "cannot be read"), (books.torn, "are not all there")):
        if names:
            found.findings.append(_damage(names, what))
    if books.leftovers:
        found.findings.append(
            Finding(
                Severity.NOTE,
                (),
                "room",
                "expired sessions are removed by the next writes, and there were none for a while",
                f"{books.leftovers} expired session(s) still take room",
                "Nothing has to be done; any append removes some of them",
            )
        )
    if books.index_lag:
        found.findings.append(behind(books.index_lag))
    return found


def behind(records: int) -> Finding:
    """About an index that lacks this many records."""
    return Finding(
        Severity.NOTE,
        (),
        "nothing; the next recall catches up first, and says how far behind it is",
        "the next recall brings the index up to date",
        f"{records} record(s) behind",
        "Nothing has to be done; `holdfast reindex` does it now",
    )


def _newer(books: Books) -> Finding:
    return Finding(
        Severity.CRITICAL,
        (Hazard.DAMAGE,),
        "nothing, but this release cannot read it",
        "a later release has written here",
        f"schema {books.schema}; this release knows up to {books.known}",
        "Upgrade holdfast here",
        ("pip install --upgrade holdfast",),
    )


def _damage(names: list[str], what: str) -> Finding:
    more = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return Finding(
        Severity.CRITICAL,
        (Hazard.DAMAGE,),
        f"{len(names)} of the sampled records or sessions",
        f"they {what}: the bytes are not those that were written",
        f"{names[0]}{more}",
        "Keep a copy of the data as they are, then look for what wrote there; "
        "`holdfast history SESSION` shows what can still be read",
    )
