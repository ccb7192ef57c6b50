"""One client, in a process of its own: opens the target's store and does what its job says.

    python -m holdfast.verify.workload.client JOB.json

Standard input is the leash: a line means go, its end means stop. So a client whose parent died
stops by itself, and one that hangs is ended by the alarm that it set at its start.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.errors import StorageWarning, VerifyError
from holdfast.verify.adapters import plain
from holdfast.verify.spec import TargetSpec, load_target
from holdfast.verify.target import Target
from holdfast.verify.workload import memories, plan, probes

PROBES: Final = {**probes.PROBES, **memories.PROBES}
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

    def write(self, kind: str, **fields: Any) -> None:
        """One line, with the time of now unless it has its own."""
        line = {"type": kind, "time_ns": time.monotonic_ns(), **fields}
        # ASCII: a lone surrogate in an error's words has no other way into a file.
        rest = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        while rest:
            rest = rest[os.write(self.pipe, rest) :]


class Leash:
    """Standard input, watched by a thread: a line is a `go`, the end is `stop`."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._said = threading.Semaphore(0)
        threading.Thread(target=self._watch, daemon=True).start()

    def wait(self, timeout_s: float) -> None:
        """Until the parent says go once more, or stop."""
        if not self.stop.is_set():
            self._said.acquire(timeout=timeout_s)

    def _watch(self) -> None:
        # The descriptor itself: a buffered reader's lock would be held at exit.
        while said := os.read(0, 4096):
            self._said.release(max(1, said.count(b"\n")))
        self.stop.set()
        self._said.release()


class Client:
    """Performs steps and records each: an invoke before, and how it ended after."""

    def __init__(self, target: Target, recorder: Recorder, job: Job) -> None:
        self._target = target
        self._recorder = recorder
        self._name = job.name
        self._numbers = itertools.count(job.first_op)
        self.surface = None if job.lazy else plain.Client(target)

    def do(self, step: plan.Step) -> bool:
        """One step; whether it was answered. Its error is recorded, never raised."""
        if step.f == "think":
            time.sleep(step.think_ms / 1000)
            return True
        if step.f == "clock":
            self._recorder.write("clock", wall_ns=time.time_ns())
            return True
        op = next(self._numbers)
        self._recorder.write("invoke", op=op, process=self._name, **_asked(step))
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
                self._recorder.write("note", because=f"close() raised {_words(error)}")

    def _perform(self, step: plan.Step) -> dict[str, Any]:
        if self.surface is None:
            self.surface = plain.Client(self._target)
        return _PERFORM[step.f](self.surface, step)

    def _failed(self, op: int, step: plan.Step, error: Exception) -> None:
        # A read has no effect, and a store that could not be opened was sent nothing.
        sure = (
            step.f in ("history", "recall", "summaries")
            or self.surface is None
            or self.surface.is_definite(error)
        )
        self._recorder.write("fail" if sure else "info", op=op, error=_words(error))
        time.sleep(BACKOFF_S)


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


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _run(client: Client, job: Job, leash: Leash, recorder: Recorder) -> None:
    for step in _steps(job):
        if step.f == "wait":
            recorder.write("waiting")
            leash.wait(job.life_s)
            continue
        for _ in range(job.attempts):
            if client.do(step) or leash.stop.is_set():
                break
        if leash.stop.is_set():
            return


def _steps(job: Job) -> Iterable[plan.Step]:
    if job.shape is not None:
        return plan.steps(job.seed, job.name, plan.Shape(**job.shape))
    return [plan.Step.from_json(step) for step in job.script]


def _probe(client: Client, job: Job, target: Target, recorder: Recorder) -> None:
    if client.surface is not None and job.probe is not None:
        for found in PROBES[job.probe](client.surface, target, job.seed):
            recorder.write("found", **found)


def main(path: str, pipe: int | None = None) -> int:
    """Do the job in this file; 0 done, 3 the store could not be opened, 4 no such target.

    `pipe` is given to a fork, where the descriptor has another number than the job says.
    """
    job = Job(**json.loads(Path(path).read_text("utf-8")))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to deal with
    warnings.simplefilter("ignore", StorageWarning)
    recorder = Recorder(job.events_fd if pipe is None else pipe)
    if job.serve:
        from holdfast.verify.workload import task_server  # noqa: PLC0415 - it needs this module

        return task_server.main(job, recorder)
    signal.setitimer(signal.ITIMER_REAL, job.life_s)
    leash = Leash()
    try:
        target = load_target(TargetSpec.from_json(job.spec))
    except VerifyError as error:
        recorder.write("failed", stage="import", because=str(error))
        return 4
    try:
        client = Client(target, recorder, job)
    except Exception as error:  # noqa: BLE001 - a user's open() may raise anything
        recorder.write("failed", stage="open", because=f"open() raised {_words(error)}")
        return 3
    modules = {"modules": sorted(sys.modules)} if job.look else {}
    recorder.write("ready", **_able(client.surface), **_about(target), **modules)
    leash.wait(job.life_s)
    _run(client, job, leash, recorder)
    _probe(client, job, target, recorder)
    client.close()
    recorder.write("done")
    return 0


def _able(surface: plain.Client | None) -> dict[str, Any]:
    """What the store can be asked for; nothing is known of one that is opened later."""
    return {
        "keyed": surface and surface.takes_key,
        "level": surface and surface.level,
        "recalls": surface and surface.recalls,
        "summarizes": surface and surface.summarizes,
    }


def _about(target: Target) -> dict[str, Any]:
    """What the parent may not find out by itself: importing a user's module could hang it."""
    return {
        "name": target.name,
        "ttl_s": target.ttl_s,
        "not_claimed": dict(target.claims.not_claimed()),
        "settings": {str(name): str(value) for name, value in target.settings.items()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
