"""Watch memory survive: processes write a conversation, are killed in the middle, and nothing is lost.

`make run` starts it. Every writer tells the parent, over a pipe, which turns the store has
acknowledged. The parent ends writers with SIGKILL at random moments and starts new ones.
In the end it opens the store anew and holds what it finds against what was acknowledged.
"""

from __future__ import annotations

import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import holdfast
from holdfast import History, Message

FOLDER = Path(__file__).parents[1] / ".cache" / "demo"
SESSION = "user-42"
WRITERS = 4
KILLS = 12
ACKS_BETWEEN_KILLS = 60


@dataclass
class Tally:
    """What the writers said: turn -> its numbers."""

    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    killed_at: list[int] = field(default_factory=list)


class Writer:
    """A process that writes until it is killed."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        command = [sys.executable, __file__, "--write", url, name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._rest = b""

    def acks(self) -> list[tuple[str, int, int]]:
        """The turns acknowledged since the last call; empty at the end of the pipe."""
        data = self._rest + os.read(self.fileno(), 65536)
        *lines, self._rest = data.split(b"\n")
        words = [line.decode().split() for line in lines]
        return [(turn, int(first), int(last)) for turn, first, last in words]

    def fileno(self) -> int:
        """So that a selector can wait for it."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def kill(self) -> list[tuple[str, int, int]]:
        """SIGKILL; what it had said until then."""
        self.process.send_signal(signal.SIGKILL)
        if self.process.wait() != -signal.SIGKILL:
            raise SystemExit(f"writer {self.name} ended by itself: {self.process.returncode}")
        said: list[tuple[str, int, int]] = []
        while more := self.acks():
            said += more
        return said


def write(url: str, name: str) -> None:
    """The writer's own main: a question and its answer, one atomic turn after another."""
    with holdfast.connect(url) as store:
        for turn in range(10**9):
            label = f"{name}.{turn}"
            ack = store.append(
                SESSION,
                [Message("user", f"{label}?"), Message("assistant", f"{label}!")],
                key=label,
            )
            os.write(1, f"{label} {ack.first} {ack.last}\n".encode())


def run_writers(url: str, show: Progress) -> Tally:
    """Writers at work, one of them killed every so often."""
    tally = Tally()
    task = show.add_task("writing and killing", total=KILLS * ACKS_BETWEEN_KILLS)
    writers = [Writer(f"w{number}", url) for number in range(WRITERS)]
    with selectors.DefaultSelector() as ready:
        for writer in writers:
            ready.register(writer, selectors.EVENT_READ, writer)
        while len(tally.killed_at) < KILLS:
            for key, _ in ready.select(timeout=30):
                _note(tally, key.data.acks())
            show.update(task, completed=len(tally.acknowledged))
            if len(tally.acknowledged) >= (len(tally.killed_at) + 1) * ACKS_BETWEEN_KILLS:
                victim = random.randrange(WRITERS)
                ready.unregister(writers[victim])
                _note(tally, writers[victim].kill())
                tally.killed_at.append(len(tally.acknowledged))
                writers[victim] = Writer(f"w{victim}k{len(tally.killed_at)}", url)
                ready.register(writers[victim], selectors.EVENT_READ, writers[victim])
    for writer in writers:
        _note(tally, writer.kill())
    show.update(task, completed=KILLS * ACKS_BETWEEN_KILLS)
    return tally


def _note(tally: Tally, acks: list[tuple[str, int, int]]) -> None:
    for turn, first, last in acks:
        tally.acknowledged[turn] = (first, last)


def judge(tally: Tally, history: History) -> dict[str, int]:
    """How many acknowledged turns are lost or out of place, and what is doubled or torn."""
    at = {message.seq: message.content for message in history}
    texts = [str(message.content) for message in history]
    missing = {turn for turn in tally.acknowledged if f"{turn}?" not in texts}
    return {
        "lost": len(missing),
        "out of order": sum(
            (at.get(first), at.get(last)) != (f"{turn}?", f"{turn}!")
            for turn, (first, last) in tally.acknowledged.items()
            if turn not in missing
        ),
        "there twice": len(texts) - len(set(texts)),
        "torn turns": len({text[:-1] for text in texts}) * 2 - len(set(texts)),
        "damaged": len(history.damaged),
    }


def main() -> int:
    """Run it, show it, and say whether the promise was kept."""
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    url = f"sqlite:///{FOLDER}/memory.db"
    holdfast.connect(url).close()
    console.print(
        f"[bold]{WRITERS} processes write one conversation. {KILLS + WRITERS} times one of them is "
        "ended by SIGKILL, in the middle of whatever it was doing.[/]"
    )
    begin = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as show:
        tally = run_writers(url, show)
    with holdfast.connect(url) as store:
        history = store.history(SESSION)
    wrong = judge(tally, history)
    _show(console, tally, history, wrong, time.monotonic() - begin)
    return 1 if any(wrong.values()) else 0


def _show(
    console: Console, tally: Tally, history: History, wrong: dict[str, int], taken_s: float
) -> None:
    table = Table(title="after opening the store again", title_justify="left", show_header=False)
    table.add_row("writers ended by SIGKILL", str(len(tally.killed_at) + WRITERS))
    table.add_row("turns acknowledged", f"{len(tally.acknowledged):,}")
    table.add_row("messages found", f"{len(history):,}")
    unheard = len(history) // 2 - len(tally.acknowledged)
    table.add_row("turns written whose ack the killed writer could not pass on", f"{unheard:,}")
    for name, count in wrong.items():
        table.add_row(f"acknowledged turns {name}" if name == "lost" else name, _colour(count))
    console.print(table)
    verdict = "[red]broken" if any(wrong.values()) else "[green]every acknowledged message is there"
    console.print(f"[bold]{verdict}[/] ({taken_s:.1f} s, SQLite, synced to disk before each ack)")
    console.print(
        f"Look for yourself: holdfast history {SESSION} --limit 6 --store sqlite:///{FOLDER}/memory.db"
    )


def _colour(count: int) -> str:
    return f"[red]{count:,}" if count else "[green]0"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(*sys.argv[2:4])
    else:
        sys.exit(main())
