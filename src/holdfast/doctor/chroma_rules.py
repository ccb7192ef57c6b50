"""What a Chroma would lose. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.doctor import storage
from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity
from holdfast.doctor.storage import Process, Storage

THRESHOLD: Final = 1000
"""Adds after which Chroma writes its index to disk for the first time by default."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection: how many records it holds, and after how many the index is persisted."""

    name: str
    count: int | None
    threshold: int = THRESHOLD

    @property
    def persisted(self) -> bool:
        """Whether its index has been written to disk at least once."""
        return self.count is not None and self.count >= self.threshold


@dataclass(frozen=True, slots=True)
class ChromaSeen:
    """What is to be seen of a Chroma. None: not from here."""

    collections: Sequence[Collection] | None
    place: Storage | None = None
    processes: Sequence[Process] = ()
    empty_files: Sequence[str] = ()
    """Files of an index that hold nothing."""


def of_settings(settings: Mapping[str, str]) -> Opinion:
    """No setting of Chroma makes its index durable."""
    del settings
    return Opinion([_unsynced(())], absent={Hazard.EVICTION, Hazard.EXPIRY})


def judge(seen: ChromaSeen) -> Opinion:
    """Every finding about one Chroma."""
    found = of_settings({})
    found.findings = [_unsynced(seen.collections or ())]
    found.absent |= {Hazard.FAILOVER, Hazard.STALENESS}
    found.findings.append(_NO_ORDER)
    if seen.place is None:
        found.unknown |= {Hazard.CONCURRENCY, Hazard.DAMAGE}
    if len(seen.processes) > 1:
        found.findings.append(_several(seen.processes))
    if seen.empty_files:
        found.findings.append(_damaged(seen.empty_files))
    found.add(storage.judge(seen.place))
    return found


def _unsynced(collections: Sequence[Collection]) -> Finding:
    beyond = [one.name for one in collections if one.persisted]
    now = ", ".join(f"{one.name}: {one.count} of {one.threshold}" for one in collections[:5])
    return Finding(
        Severity.CRITICAL if beyond or not collections else Severity.WARNING,
        (Hazard.POWER,),
        "a whole collection at power loss, once its index has been persisted"
        if not beyond
        else f"the whole of {', '.join(beyond[:5])} at power loss",
        "Chroma writes the files of its index without syncing them, and removes from its queue what "
        "they should hold: after a power cut they are empty, and the collection cannot be opened",
        f"records, and when the index is persisted: {now or 'not seen'}",
        "Keep the conversations in a log that is synced, and rebuild the index from it; a higher "
        "hnsw:sync_threshold only moves the moment",
    )


_NO_ORDER: Final = Finding(
    Severity.NOTE,
    (Hazard.ORDER,),
    "nothing; a collection has no order of its own",
    "what was said first is known only if you store a number with each record",
    "Chroma",
    "Use it to find by meaning, and a log for what was said",
)


def _several(processes: Sequence[Process]) -> Finding:
    names = ", ".join(f"{one.name} ({one.pid})" for one in processes)
    return Finding(
        Severity.CRITICAL,
        (Hazard.CONCURRENCY,),
        "records that one process wrote and the other does not know of, and the index of both",
        "each process holds an index of its own in memory and writes it over the other's",
        f"open in {names}",
        "Let one process own the directory: run `chroma run`, and let the others be its clients",
    )


def _damaged(files: Sequence[str]) -> Finding:
    return Finding(
        Severity.CRITICAL,
        (Hazard.DAMAGE,),
        "the vectors of a collection",
        "files of its index are empty, as after a power cut",
        f"{files[0]}, {len(files)} in all",
        "Keep a copy of the directory, then rebuild the collection from its documents or your log",
    )
