"""A client process does its job.

    python -m holdfast.verify.workload.jobs JOB.json

Standard input is the leash: a line means go, its end means stop. So a client whose parent died
stops by itself, and one that hangs is ended by the alarm that it set at its start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from holdfast.errors import StorageWarning, VerifyError
from holdfast.verify.adapters import plain
from holdfast.verify.data_link import why_not_ours
from holdfast.verify.spec import TargetSpec, load_target
from holdfast.verify.target import Target
from holdfast.verify.workload import memories, plan, probes, task_server, tool_turns
from holdfast.verify.workload.client import Client, Job, Recorder, line_of, words_of

PROBES: Final = {**probes.PROBES, **memories.PROBES, **tool_turns.PROBES}


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


def _run(client: Client, job: Job, leash: Leash, recorder: Recorder) -> None:
    """Each of those who share the store in a thread of its own, until all have ended."""
    steps = iter(_steps(job, client.name))
    while job.at_once > 1 and client.surface is None and not leash.stop.is_set():
        client.do(next(steps))  # which opens the store, once for all of them
    others = [
        threading.Thread(target=_work, args=(peer, _steps(job, peer.name), job, leash, recorder))
        for peer in client.peers()
    ]
    for other in others:
        other.start()
    _work(client, steps, job, leash, recorder)
    for other in others:
        other.join()


def _work(
    client: Client, steps: Iterable[plan.Step], job: Job, leash: Leash, recorder: Recorder
) -> None:
    for step in steps:
        if step.f == "wait":
            recorder.write("waiting")
            leash.wait(job.life_s)
            continue
        for _ in range(job.attempts):
            if client.do(step) or leash.stop.is_set():
                break
        if leash.stop.is_set():
            return


def _steps(job: Job, name: str) -> Iterable[plan.Step]:
    if job.shape is not None:
        return plan.steps(job.seed, name, plan.Shape(**job.shape))
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
        return task_server.main(job, recorder)
    signal.setitimer(signal.ITIMER_REAL, job.life_s)
    leash = Leash()
    try:
        target = load_target(TargetSpec.from_json(job.spec))
    except VerifyError as error:
        raised = error.__cause__
        at = "" if raised is None else line_of(raised)
        recorder.write("failed", stage="import", because=str(error), at=at)
        return 4
    if job.look and (reason := _why_no_data(target)) is not None:
        recorder.write("failed", stage="data", because=reason)
        return 4
    try:
        client = Client(target, recorder, job)
    except Exception as error:  # noqa: BLE001 - a user's open() may raise anything
        because = f"open() raised {words_of(error)}"
        recorder.write("failed", stage="open", because=because, at=line_of(error))
        return 3
    modules = {"modules": sorted(sys.modules)} if job.look else {}
    recorder.write("ready", **_able(client.surface), **_about(target), **modules)
    leash.wait(job.life_s)
    _run(client, job, leash, recorder)
    _probe(client, job, target, recorder)
    client.close()
    recorder.write("done")
    return 0


def _why_no_data(target: Target) -> str | None:
    return None if target.data is None else why_not_ours(Path(target.data))


def _able(surface: plain.Client | None) -> dict[str, Any]:
    """What the store can be asked for; nothing is known of one that is opened later."""
    return {
        "keyed": surface and surface.takes_key,
        "many": surface and surface.takes_many,
        "level": surface and surface.level,
        "recalls": surface and surface.recalls,
        "summarizes": surface and surface.summarizes,
    }


def _about(target: Target) -> dict[str, Any]:
    """What the parent may not find out by itself: importing a user's module could hang it."""
    return {
        "name": target.name,
        "ttl_s": target.ttl_s,
        "whole_turns": target.whole_turns is not None,
        "kept": {
            "kept_last": target.retention and target.retention.last,
            "kept_age_s": target.retention and target.retention.age_s,
        },
        "data": None if target.data is None else str(Path(target.data).absolute()),
        "not_claimed": dict(target.claims.not_claimed()),
        "settings": {str(name): str(value) for name, value in target.settings.items()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
