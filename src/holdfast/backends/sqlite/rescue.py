"""A -wal file that lost its name still holds acknowledged writes: give it its name back.

The descriptor of a deleted file leads to all that is in it. It is copied, synced, and put in
place of what the name leads to now, if nobody has written to the database since.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.backends.sqlite.errors import BACKEND
from holdfast.backends.sqlite.wal import OWN
from holdfast.backends.sqlite.watch import File, Harm, Identity, Watch, look_up
from holdfast.errors import EngineUnreachable
from holdfast.linux import sync_directory

_LOCK: Final = struct.Struct("hh4xqqi4x")
_SHARED_FIRST: Final = 0x40000000 + 2
_SHARED_BYTES: Final = 510
"""Every connection in WAL mode keeps a read lock on these bytes of the database."""

ASKING: Final[dict[Identity, int]] = {}
"""Databases that were asked who has locks on them; open until the process ends.

To close one would drop every lock that this process has on the file, also of other stores.
"""


def put_back(watch: Watch, harm: Harm, is_sole: Callable[[], bool]) -> str | None:
    """Make the name of the -wal file lead to all of its frames again; or why that cannot be.

    `is_sole` says whether nobody else has committed since our last commit, as the index knows
    it. Raises EngineUnreachable where it may become possible later.
    """
    try:
        why = _obstacle(watch, harm, is_sole)
        if why is None and watch.named_log() != watch.log_file.identity:
            _give_name(watch)
    except OSError as error:
        raise EngineUnreachable(
            f"{harm}, and it could not be put back ({error}). Nothing was written. This process "
            "holds the deleted file open and tries again at the next call",
            backend=BACKEND,
        ) from error
    return why


def _obstacle(watch: Watch, harm: Harm, is_sole: Callable[[], bool]) -> str | None:
    log_file, database_file = watch.names[File.LOG], watch.names[File.DATABASE]
    if not watch.log.holds_what_was_known():
        return f"{log_file} was cut short"
    index = look_up(os.fsencode(watch.names[File.INDEX]))
    database = look_up(os.fsencode(database_file), with_time=True)
    if database is None or database.identity != watch.database.identity:
        return f"{database_file} is another file now"
    joined = index is not None and index.identity == watch.index.identity
    if not joined and database.changed != watch.database.changed:
        return f"another program has changed {database_file} since"
    if _others_have_it_open(watch):
        raise EngineUnreachable(
            f"{harm}, and another process has the database open. Nothing was written. What this "
            "process has acknowledged lately is only in the deleted file, which it holds open: "
            "close the other process, and this one puts the file back",
            backend=BACKEND,
        )
    # A copy of ours may be one of long ago; a file that another program began has their commits.
    if not watch.log.begins_like(log_file) and not (joined and is_sole()):
        return f"another program has written to a new {log_file}"
    return None


def _give_name(watch: Watch) -> None:
    name = Path(watch.names[File.LOG])
    # A name that nobody can know: others may be able to put links into this directory.
    beside = name.with_name(f"{name.name}-{os.urandom(8).hex()}")
    like = Path(watch.names[File.DATABASE]).stat()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123
            os.fchmod(descriptor, like.st_mode & 0o777)
            if os.geteuid() == 0:  # as SQLite does, or the owner could not open it later
                os.fchown(descriptor, like.st_uid, like.st_gid)
            watch.log.copy_to(file)
        beside.replace(name)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(name.parent)


def _others_have_it_open(watch: Watch) -> bool:
    """Whether another process has a lock on the database."""
    descriptor = ASKING.get(watch.database.identity)
    if descriptor is None:
        descriptor = os.open(watch.names[File.DATABASE], os.O_RDONLY | os.O_CLOEXEC)
        OWN.add(descriptor)
        ASKING[watch.database.identity] = descriptor
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_BYTES, 0)
    kind, *_ = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)
