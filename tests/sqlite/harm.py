"""One round of a campaign: a client writes, an outsider harms a file of its database, SIGKILL.

Which acks count: all. One that is missing afterwards is silent loss, and a failure, unless

- the client was told by an error that came after that ack, and the harm was one that destroys
  (a file cut short, or the database itself deleted or replaced), or
- the reader is told: the database is Damaged or not there, which is not an empty history.

After the last error that the client was told, every ack must be there. Where only the -wal or
the -shm file was deleted or replaced by a copy, nothing excuses a missing ack: this process is
the only one, and holds everything.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import holdfast
from holdfast import HoldfastError, Message
from tests.forks import CONTEXT

FILES = ("", "-wal", "-shm")
HARMS = ("delete", "replace", "cut")
BULKS = (300, 20_000)  # with the second the -wal file is folded in now and then
LINES_AFTER = 15
ROUND_TIMEOUT_S = 30.0


@dataclass
class Round:
    """What the client was told, in order, and how it ended."""

    file: str
    harm: str
    lines: list[tuple[str, str]] = field(default_factory=list)  # ("ack", name), ("error", words)
    at_harm: int = 0
    reader: str = ""
    kept: set[str] = field(default_factory=set)

    @property
    def destroys(self) -> bool:
        """Whether the outsider took away what only the harmed file held."""
        return self.harm == "cut" or not self.file

    def lost_in_silence(self) -> list[str]:
        """Names of acks that are missing although nobody was told."""
        if self.reader:
            return [] if self.destroys else [self.reader]
        last_error = max(
            (at for at, (kind, _) in enumerate(self.lines) if kind == "error"), default=-1
        )
        return [
            name
            for at, (kind, name) in enumerate(self.lines)
            if kind == "ack" and name not in self.kept and not (self.destroys and at < last_error)
        ]


def append_for_ever(url: str, pipe: Connection, bulk: int) -> None:
    """The client; each line it sends is an outcome that it was told."""
    store = holdfast.connect(url)
    turn = 0
    while True:
        turn += 1
        try:
            store.append(
                "s", Message("user", f"turn {turn} " + "x" * (turn % 7) * bulk), key=f"{turn}"
            )
            pipe.send(("ack", f"{turn}"))
        except HoldfastError as error:
            pipe.send(("error", f"{type(error).__name__}: {error}"))


def one_round(folder: Path, file: str, harm: str, chance: random.Random) -> Round:
    """Start a client, harm, let it go on, kill it, and look what is left."""
    folder.mkdir()
    path = folder / "memory.db"
    done = Round(file, harm)
    ours, theirs = CONTEXT.Pipe(duplex=False)
    client = CONTEXT.Process(
        target=append_for_ever, args=(f"sqlite:///{path}", theirs, chance.choice(BULKS))
    )
    client.start()
    theirs.close()
    try:
        _read(ours, done, chance.randrange(1, 120))
        time.sleep(chance.random() * 0.003)  # the moment of the harm, not a wait for anything
        _harm(Path(f"{path}{file}"), harm, chance)
        _read(ours, done, 0)
        done.at_harm = len(done.lines)
        _read(ours, done, LINES_AFTER)
    finally:
        client.kill()  # it may have died by SIGBUS meanwhile
        client.join(ROUND_TIMEOUT_S)
    _read(ours, done, None)
    _look(path, done)
    shutil.rmtree(folder)
    return done


def _read(pipe: Connection, done: Round, count: int | None) -> None:
    """So many more lines; 0: those that are there; None: to the end."""
    end_s, begin = time.monotonic() + ROUND_TIMEOUT_S, len(done.lines)
    while count is None or (len(done.lines) - begin < count if count else pipe.poll(0)):
        assert pipe.poll(max(0.0, end_s - time.monotonic())), "the client says nothing"
        try:
            done.lines.append(pipe.recv())
        except EOFError:  # killed; or by SIGBUS, where the -shm file was cut
            return


def _harm(file: Path, harm: str, chance: random.Random) -> None:
    if harm == "delete":
        file.unlink()
    elif harm == "cut":
        size = file.stat().st_size
        os.truncate(file, chance.choice((0, size // 2, chance.randrange(size or 1))))
    else:
        copy = file.with_name("copy")
        shutil.copy(file, copy)
        copy.replace(file)


def _look(path: Path, done: Round) -> None:
    try:
        with holdfast.connect(f"sqlite:///{path}?mode=rw") as store:
            history = store.history("s")
            assert [message.seq for message in history] == list(range(1, len(history) + 1))
            done.kept = {str(message.content).split()[1] for message in history}
    except HoldfastError as error:
        done.reader = f"{type(error).__name__}: {error}"
