"""`python -m tests.integrations.killed URL`: an agent's process is killed before each of its writes.

Each round has a thread of its own and two processes: one that writes and is killed before its k-th
write, and one that reads what is left. This process forks and opens nothing itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

import holdfast
from holdfast import Durability, Store
from holdfast.integrations.langgraph import HoldfastSaver

TURNS = 4
KEEP = 2
TEXT = "word " * 60


def config(thread: str, checkpoint_id: str | None = None) -> Any:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


def checkpoint(turn: int) -> Any:
    values = {"messages": [f"{TEXT}{number}" for number in range(turn + 1)], "turn": turn}
    versions = dict.fromkeys(values, f"{turn + 1:032}.0")
    name = f"1f000000-0000-6000-8000-{turn:012}"
    return {
        **empty_checkpoint(),
        "id": name,
        "channel_values": values,
        "channel_versions": versions,
    }


def write(saver: HoldfastSaver, thread: str, done: Callable[[str], None]) -> None:
    """Turns of which each prunes what is old, then a copy."""
    at = config(thread)
    for turn in range(TURNS):
        made = checkpoint(turn)
        at = saver.put(at, made, {"step": turn}, made["channel_versions"])
        done(f"put {turn}")
        saver.put_writes(at, [("messages", f"{TEXT}{turn + 1}")], f"task-{turn}")
        done(f"written {turn}")
    saver.copy_thread(thread, f"{thread}-copy")
    done("copied")


def killed_before(store: Store, write_number: int) -> None:
    """From now on: the process dies right before its so-manieth write."""
    left = write_number

    def dying(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal left
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return operation(*args, **more)

        return call

    for name in ("append", "rewrite"):
        setattr(store, name, dying(getattr(store, name)))


def check(saver: HoldfastSaver, thread: str, told: list[str]) -> None:
    """What was acknowledged is there, and all that is there is whole."""
    puts = [line for line in told if line.startswith("put")]
    found = saver.get_tuple(config(thread))
    turn = -1 if found is None else found.metadata["step"]
    assert len(puts) - 1 <= turn <= len(puts), (turn, told)
    for one in saver.list(config(thread)):
        assert (
            one.checkpoint["channel_values"] == checkpoint(one.metadata["step"])["channel_values"]
        )
    if f"written {turn}" in told:
        assert found is not None
        assert found.pending_writes == [(f"task-{turn}", "messages", f"{TEXT}{turn + 1}")]
    kept = [(one.checkpoint, one.pending_writes) for one in saver.list(config(thread))]
    assert len(kept) <= 2 * KEEP
    copied = [(one.checkpoint, one.pending_writes) for one in saver.list(config(f"{thread}-copy"))]
    assert copied == kept or (not copied and "copied" not in told), (copied, told)


def in_a_child(work: Callable[[], None]) -> int:
    """The status of a process that did it."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        work()
    except BaseException:  # noqa: BLE001 - the parent is told by the status
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def round_of(url: str, number: int) -> bool:
    """Whether the process was killed; False when it had fewer writes than that."""
    thread, (read_end, write_end) = f"thread-{number}", os.pipe()

    def writing() -> None:
        store = holdfast.connect(url, require=Durability.PROCESS)
        killed_before(store, number)
        saver = HoldfastSaver(store, keep=KEEP)
        write(saver, thread, lambda line: _write_line(write_end, line))

    def checking() -> None:
        with (
            holdfast.connect(url, require=Durability.PROCESS) as store,
            os.fdopen(read_end) as told,
        ):
            check(HoldfastSaver(store), thread, told.read().splitlines())

    status = in_a_child(writing)
    os.close(write_end)
    assert status in (0, -signal.SIGKILL), status
    assert in_a_child(checking) == 0
    os.close(read_end)
    return status != 0


def _write_line(end: int, line: str) -> None:
    os.write(end, f"{line}\n".encode())


def main(url: str) -> None:
    number = 0
    while round_of(url, number):
        number += 1
    print(number)


if __name__ == "__main__":
    main(sys.argv[1])
