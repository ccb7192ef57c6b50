"""The directory that holds the data: on what file system it is, and who else has it open."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.backends.sqlite.durability import (
    CONTAINER_FILE_SYSTEMS,
    MEMORY_FILE_SYSTEMS,
    NETWORK_FILE_SYSTEMS,
)
from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity
from holdfast.linux import file_system_of, name_of, open_files, opened, pids

LOCAL: Final = ("127.0.0.1", "::1", "localhost")
TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - named, not used


@dataclass(frozen=True, slots=True)
class Storage:
    """Where data lie."""

    path: str
    kind: str
    """Type of the file system; `unknown` where the system does not say."""
    temporary: bool


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has a file open."""

    pid: int
    name: str


def storage_of(path: Path, pid: int | None = None) -> Storage:
    """The storage of a path as this process sees it, or as that one does."""
    return Storage(str(path), file_system_of(path, pid), is_temporary(path))


def is_temporary(path: Path) -> bool:
    """Whether it is where systems clean up by themselves."""
    return any(path.is_relative_to(place) for place in (*TEMPORARY, tempfile.gettempdir()))


def judge(storage: Storage | None) -> Opinion:
    """Findings about the place; None: it cannot be seen from here."""
    if storage is None:
        return Opinion(unknown={Hazard.REPLACEMENT})
    found = Opinion()
    now = f"{storage.path} is on {storage.kind}"
    change = "Put the data directory on a disk or a volume that outlives this machine's processes"
    if storage.kind in MEMORY_FILE_SYSTEMS:
        found.findings.append(
            Finding(
                Severity.CRITICAL,
                (Hazard.POWER, Hazard.REPLACEMENT),
                "everything at power loss or restart of the machine",
                f"{storage.kind} is memory: what is synced to it is on no disk",
                now,
                change,
            )
        )
    elif storage.kind in CONTAINER_FILE_SYSTEMS:
        found.findings.append(
            Finding(
                Severity.CRITICAL,
                (Hazard.REPLACEMENT,),
                "everything when the container is replaced",
                f"{storage.kind} is a container's own layer, which is removed with it",
                now,
                "Mount a volume over the data directory",
            )
        )
    elif storage.temporary:
        found.findings.append(
            Finding(
                Severity.WARNING,
                (Hazard.REPLACEMENT,),
                "everything when the system cleans up its temporary files",
                "this directory is for temporary files: it is cleaned at a restart, or by age",
                now,
                change,
            )
        )
    if storage.kind in NETWORK_FILE_SYSTEMS:
        found.findings.append(_over_the_network(now))
        found.unknown.add(Hazard.POWER)
    if storage.kind == "unknown":
        found.unknown |= {Hazard.POWER, Hazard.REPLACEMENT}
    return found


def _over_the_network(now: str) -> Finding:
    return Finding(
        Severity.WARNING,
        (Hazard.CONCURRENCY,),
        "the database itself when two machines write to it",
        "locks and shared memory do not work over a network file system as databases need them",
        now,
        "Put the file on a local disk, or use PostgreSQL or Redis for several machines",
    )


def openers(paths: Iterable[Path]) -> tuple[list[Process], bool]:
    """Other processes that have one of these files open; and whether some could not be asked."""
    wanted = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found = path.stat()
            wanted[found.st_dev, found.st_ino] = path.name
    found_processes, hidden = [], False
    for pid in pids():
        has = pid != os.getpid() and _has_open(pid, wanted)
        hidden |= has is None
        if has:
            found_processes.append(Process(pid, name_of(pid)))
    return found_processes, hidden


def _has_open(pid: int, wanted: Mapping[tuple[int, int], str]) -> bool | None:
    """None where we may not look. Only files of such a name are touched: others may hang."""
    try:
        for descriptor, name in open_files(pid):
            if name.rpartition("/")[2] in wanted.values():
                with contextlib.suppress(OSError):
                    found = Path(opened(pid, descriptor)).stat()
                    if (found.st_dev, found.st_ino) in wanted:
                        return True
    except PermissionError:
        return None
    return False
