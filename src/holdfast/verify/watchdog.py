"""Ends what does not end: no wait of a target, an engine or a library holds a check for ever."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

REPEAT_S: Final = 15.0
"""What cleans up after it may hang as well: it is interrupted again."""
_SIGNAL: Final = signal.SIGUSR2


class Overdue(BaseException):
    """Not an `Exception`: nobody on the way takes it for an error of the store."""


@contextlib.contextmanager
def watchdog(limit_s: float) -> Iterator[Callable[[], None]]:
    """Raise `Overdue` in the block after so long; calling what is given restarts the time.

    By a signal, which interrupts any wait, and only the main thread takes one: elsewhere nothing
    is watched. A timer of the process is not used, since a caller may have one of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    main = threading.get_ident()
    said, over = threading.Event(), threading.Event()

    def bark(number: int, frame: FrameType | None) -> None:
        del number, frame
        if not over.is_set():
            raise Overdue

    def watch() -> None:
        wait_s = limit_s
        while True:
            said.clear()
            if said.wait(wait_s):
                if over.is_set():
                    return
                continue
            wait_s = REPEAT_S
            signal.pthread_kill(main, _SIGNAL)

    before = signal.signal(_SIGNAL, bark)
    thread = threading.Thread(target=watch, name="holdfast-watchdog", daemon=True)
    thread.start()
    try:
        yield said.set
    finally:
        over.set()
        said.set()
        thread.join(REPEAT_S)
        signal.signal(_SIGNAL, before)
