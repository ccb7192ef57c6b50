"""One client: opens the target's store, performs steps and records each."""

from __future__ import annotations

import itertools
import os
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import holdfast
from holdfast.verify.adapters import plain
from holdfast.verify.children import send
from holdfast.verify.target import Target
from holdfast.verify.workload import plan

OPS_PER_PEER: Final = 50_000
"""So many operations one of those who share a store may make: the numbers of the next begin there."""
_NOT_THEIRS: Final = (
    str(Path(holdfast.__file__).parent),
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
    "<",
)
"""Where files begin that are not a user's: this package, libraries, generated code."""
T = TypeVar("T")
TRIES: Final = 8
"""So often a client that was refused asks, where one refusal must not count."""
BACKOFF_S: Final = 0.01
"""After an error: so that an outage is not a flood of refusals."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a client is told. One of `shape`, `script` and `probe` says what to do."""

    spec: dict[str, Any]
    name: str
    first_op: int
    life_s: float
    seed: int = 0
    shape: dict[str, Any] | None = None
    script: list[dict[str, Any]] = field(default_factory=list)
    at_once: int = 1
    """How many threads, or tasks of an async store, share the one store, each with a plan of its own."""
    patience_s: float | None = None
    """A call of an async store that takes longer is cancelled, as a service does."""
    attempts: int = 1
    """How often a read of the script is tried until it is answered."""
    probe: str | None = None
    lazy: bool = False
    """Open the store with the first operation, and again with each while that fails."""
    serve: bool = False
    """Open nothing: be the process of which one client after another is forked."""
    look: bool = False
    """Tell which modules it took to open the store."""
    events_fd: int = -1
    """The pipe to the parent."""


class Recorder:
    """Writes lines to the client's own pipe, each at once: SIGKILL loses none written."""

    def __init__(self, pipe: int) -> None:
        os.set_inheritable(pipe, False)
        self.pipe = pipe
        self._one_line = threading.Lock()

    def write(self, kind: str, **fields: Any) -> None:
        """One line, with the time of now unless it has its own."""
        with self._one_line:
            send(self.pipe, {"type": kind, "time_ns": time.monotonic_ns(), **fields})


class Client:
    """Performs steps and records each: an invoke before, and how it ended after."""

    def __init__(
        self, target: Target, recorder: Recorder, job: Job, surface: plain.Client | None = None
    ) -> None:
        """Open the store, or take one that somebody else has opened."""
        self._target, self._recorder, self._job = target, recorder, job
        self.name = job.name
        self._meeting = ""
        self._numbers = itertools.count(job.first_op)
        self.surface = surface if surface is not None or job.lazy else self._open()

    def _open(self) -> plain.Client:
        shared = self._job.at_once > 1
        return plain.Client(self._target, shared=shared, patience_s=self._job.patience_s)

    def peers(self) -> list[Client]:
        """Those who work at the same time as this one, with the same store."""
        jobs = [
            replace(
                self._job,
                name=f"{self.name}.t{number}",
                first_op=self._job.first_op + number * OPS_PER_PEER,
            )
            for number in range(1, self._job.at_once)
        ]
        return [Client(self._target, self._recorder, job, self.surface) for job in jobs]

    def do(self, step: plan.Step) -> bool:
        """One step; whether it was answered. Its error is recorded, never raised."""
        if step.f == "think":
            time.sleep(step.think_ms / 1000)
            return True
        if step.f == "meet":
            slot = time.monotonic_ns() // (step.think_ms * 1_000_000) + 1
            time.sleep(max(slot * step.think_ms / 1000 - time.monotonic(), 0.0))
            self._meeting = f"{step.session}-{slot}"
            return True
        if step.session == plan.MEETING:
            step = replace(step, session=self._meeting)
        if step.f == "clock":
            self._recorder.write("clock", wall_ns=time.time_ns())
            return True
        op = next(self._numbers)
        self._recorder.write("invoke", op=op, process=self.name, **_asked(step))
        try:
            answer = self._perform(step)
        except Exception as error:  # noqa: BLE001 - a user's store may raise anything
            self._failed(op, step, error)
            return False
        self._recorder.write("ok", op=op, **answer)
        return True

    def close(self) -> None:
        """Close the store; what it raises then changes nothing that was recorded."""
        surface, self.surface = self.surface, None
        if surface is not None:
            try:
                surface.close()
            except Exception as error:  # noqa: BLE001 - a user's store may raise anything
                self._recorder.write("note", because=f"close() raised {words_of(error)}")

    def _perform(self, step: plan.Step) -> dict[str, Any]:
        if self.surface is None:
            self.surface = self._open()
        return _PERFORM[step.f](self.surface, step)

    def _failed(self, op: int, step: plan.Step, error: Exception) -> None:
        # A read has no effect, and a store that could not be opened was sent nothing.
        sure = (
            step.f in ("history", "recall", "summaries")
            or self.surface is None
            or self.surface.is_definite(error)
        )
        where = {"at": line_of(error)} if self._job.look else {}
        self._recorder.write("fail" if sure else "info", op=op, error=words_of(error), **where)
        time.sleep(BACKOFF_S)


def patiently(ask: Callable[[], T], again: Callable[[Exception], bool] = lambda _: True) -> T:
    """Ask a few times: a store that refuses now and then has not lost what it holds."""
    for _ in range(TRIES - 1):
        try:
            return ask()
        except Exception as error:
            if not again(error):
                raise
            time.sleep(BACKOFF_S)
    return ask()


def _append(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    sent = [plan.message(name) for name in step.messages]
    seqs = surface.append(step.session, sent, key=step.key)
    return {} if seqs is None else {"seqs": seqs}


def _history(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    seen = surface.history(step.session, limit=step.limit)
    numbers = {} if seen.seqs is None else {"seqs": seen.seqs}
    names = [plan.name_of(message) for message in seen.messages]
    return {"messages": names, "damaged": len(seen.damaged), **numbers}


def _forget(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    surface.forget(step.session)
    return {}


def _rewrite(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    surface.rewrite(step.session, [plan.message(name) for name in step.messages])
    return {}


def _remember(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    for text in _texts(step):
        surface.remember(step.session, text)
    return {}


def _recall(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    [query] = _texts(step)
    found = surface.recall(step.session, query, k=step.limit or 1)
    return {"texts": found.texts, "behind": found.behind}


def _summarize(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    surface.summarize(step.session)
    return {}


def _summaries(surface: plain.Client, step: plan.Step) -> dict[str, Any]:
    return {"summaries": [asdict(each) for each in surface.summaries(step.session)]}


_PERFORM: Final[dict[str, Callable[[plain.Client, plan.Step], dict[str, Any]]]] = {
    "append": _append, "history": _history, "forget": _forget, "rewrite": _rewrite,
    "remember": _remember, "recall": _recall, "summarize": _summarize, "summaries": _summaries,
}  # fmt: skip
"""How each step is done, and what is written down of its answer."""


def _asked(step: plan.Step) -> dict[str, Any]:
    asked: dict[str, Any] = {"f": step.f, "session": step.session}
    if step.messages:
        asked["messages"] = step.messages
    return asked | {n: v for n, v in (("limit", step.limit), ("key", step.key)) if v is not None}


def _texts(step: plan.Step) -> list[str]:
    return [str(plan.message(name)["content"]) for name in step.messages]


def line_of(error: BaseException) -> str:
    """Where it was raised: the last line that is neither ours nor of a library."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
    places = traceback.extract_tb(error.__traceback__)
    own = [place for place in places if not place.filename.startswith(_NOT_THEIRS)]
    if not own:
        return ""
    return f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}: {own[-1].line}"


def words_of(error: BaseException) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {str(error)[:300]}"
