"""A target whose module starts a thread when it is imported, and whose store needs that thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.verify import Target
from holdfast.verify.engines import Engine
from tests.verify.lines.stores import CLAIMS, OneCommit

WORKER = ThreadPoolExecutor(1)
WORKER.submit(int).result()


class Delegating(OneCommit):
    """In a fork of a process that has this module already, it would wait for ever."""

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        WORKER.submit(super().append, session, messages).result()


def target(engine: Engine) -> Target:
    path = engine.url.removeprefix("sqlite:///")
    return Target(open=lambda: Delegating(path), claims=CLAIMS, engine=engine, code=(__name__,))
