"""Every Python process that a test starts loads this, and can then be asked where it stands.

On SIGUSR2 it appends the stacks of its threads and asyncio tasks to a file that all of them share
(`tests/hangs.py` asks, and reads it). It imports nothing that takes time: thousands of processes
load it, and hardly any is ever asked.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found] # without enums, which cost an import
import faulthandler
import io
import os
import sys

FILE = "HOLDFAST_STACKS_FILE"
END = "that was process {}\n"


def register(path: str) -> None:
    """Answer SIGUSR2: threads at once, from C; tasks as soon as the main thread can run Python."""
    file = open(path, "a", encoding="utf-8")  # noqa: PTH123, SIM115 - for the life of the process
    signal.signal(signal.SIGUSR2, lambda *_: tell_tasks(file))
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=True, chain=True)


def tell_tasks(file: io.TextIOWrapper) -> None:
    """The stacks of all asyncio tasks that are not done, of every loop."""
    if "asyncio" in sys.modules:
        import asyncio  # noqa: PLC0415 - it is loaded already
        import gc  # noqa: PLC0415

        for one in gc.get_objects():
            if isinstance(one, asyncio.Task) and not one.done():
                one.print_stack(file=file)
    file.write(END.format(os.getpid()))
    file.flush()


if FILE in os.environ:
    register(os.environ[FILE])
