"""A client that forks: for each task a child that opens the store, and dies or waits at a line.

    python -m holdfast.verify.workload.task_server JOB TASK      where it cannot fork

Like the fork server it has all imports already; besides, it says how each child ended. That is what
makes a crash at every line possible. Each line of standard input is a `Task`; the end of
standard input ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NoReturn

from holdfast.errors import StorageWarning, VerifyError
from holdfast.verify.children import can_fork, fork, import_all
from holdfast.verify.lines import Code, Point, Trail, code_of, watching
from holdfast.verify.spec import TargetSpec, load_target
from holdfast.verify.target import Target
from holdfast.verify.workload import plan
from holdfast.verify.workload.client import Client, Job, Recorder, words_of

ASIDE: Final = "aside-"
"""Before the type of an event that is not for the judge."""
GRACE_S: Final = 0.03
_ENDED: Final = 5
_REQUEST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Task:
    """What one fork is to do. The last step is the one whose lines count."""

    steps: list[dict[str, Any]]
    number: int = 0
    first_op: int = 0
    life_s: float = 0.0
    roots: list[str] = field(default_factory=list)
    """Whose lines; empty where nobody watches."""
    look: bool = False
    """Tell whose they are, and which modules it took to do the steps."""
    imports: list[str] = field(default_factory=list)
    """Modules that this process shall have from now on: a fork imports what is missing again."""
    point: list[Any] | None = None
    """File, line, hit: where to strike. None lets it pass."""
    strike: str = "kill-app"
    """Or `hold`: say so, and go on when one byte comes in."""
    hits: int = 1
    """At so many passes of that line, one after another."""
    trace: bool = False
    """Tell every line that the last step passed."""
    aside: bool = False


class _Aside(Recorder):
    """Records what the judge does not know of, such as a rewrite."""

    def write(self, kind: str, **fields: Any) -> None:
        super().write(ASIDE + kind, **fields)


def serve(job: Job, target: Target, recorder: Recorder) -> None:
    """Have a child for each request and tell how it ended, until the requests end."""
    for line in _requests():
        task = Task(**json.loads(line))
        import_all(task.imports)
        can = can_fork()
        code = _fork(task, job, target, recorder) if can else _start(line, job, recorder)
        recorder.write("ended", task=task.number, code=code)


def _fork(task: Task, job: Job, target: Target, recorder: Recorder) -> int:
    child = fork()
    if not child:
        _in_the_child(task, job, target, recorder)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _start(task: bytes, job: Job, recorder: Recorder) -> int:
    """A new process instead: slower, and safe where this one has threads."""
    job_json = json.dumps(asdict(replace(job, events_fd=recorder.pipe)))
    words = [sys.executable, "-m", __spec__.name, job_json, task.decode()]
    return subprocess.run(words, pass_fds=(recorder.pipe,), check=False).returncode  # noqa: S603


def _requests() -> Iterator[bytes]:
    """Lines of the descriptor itself: whatever comes after a request is the fork's to read."""
    rest = b""
    while new := os.read(0, _REQUEST_BYTES):
        *lines, rest = (rest + new).split(b"\n")
        yield from lines


def _in_the_child(task: Task, job: Job, target: Target, recorder: Recorder) -> NoReturn:
    """Do the task. It ends without any clean-up: what the server had is not this one's."""
    signal.setitimer(signal.ITIMER_REAL, task.life_s)
    try:
        _do(task, job, target, recorder)
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        recorder.write("broke-off", task=task.number, because=words_of(error))
        os._exit(_ENDED)
    os._exit(0)


def _do(task: Task, job: Job, target: Target, recorder: Recorder) -> None:
    recording = _Aside(recorder.pipe) if task.aside else recorder
    mine = Job(
        spec=job.spec, name=f"{job.name}.f{task.number}", first_op=task.first_op, life_s=task.life_s
    )
    trail = Trail(_striker(task, recorder))
    # Watched from before the store is opened, so that the threads which that starts are too.
    with watching(Code(tuple(task.roots)), trail) if task.roots else contextlib.nullcontext():
        client = Client(target, recording, mine)
        surface = client.surface
        steps = [plan.Step.from_json(step) for step in task.steps]
        for number, step in enumerate(steps, 1):
            trail.armed = number == len(steps)
            client.do(step)
        if trail.passed:
            # What a thread of the store does after the answer belongs to the operation too.
            time.sleep(GRACE_S)
        trail.armed = False
        if task.trace:
            points = [(p.file, p.line, p.hit) for p in trail.points()]
            recorder.write("trail", task=task.number, points=points)
        if task.look and surface is not None:
            roots = code_of(surface.store, target.code).roots
            fields = {"roots": roots, "rewrites": surface.rewrites, "modules": sorted(sys.modules)}
            recorder.write("code", task=task.number, **fields)
        client.close()


def _striker(task: Task, recorder: Recorder) -> Any:
    if task.point is None:
        return None
    point = Point(*task.point)

    def at(here: Point) -> None:
        if (here.file, here.line) != (point.file, point.line):
            return
        if not point.hit <= here.hit < point.hit + task.hits:
            return
        recorder.write("struck", task=task.number, pid=os.getpid())
        if task.strike == "kill-app":
            os.kill(os.getpid(), signal.SIGKILL)
        os.read(0, 1)

    return at


def main(job: Job, recorder: Recorder) -> int:
    """Serve; 0 at the end of the requests, 4 where there is no such target."""
    try:
        target = load_target(TargetSpec.from_json(job.spec))
    except VerifyError as error:
        recorder.write("failed", stage="import", because=str(error))
        return 4
    recorder.write("ready")
    serve(job, target, recorder)
    return 0


def once(job_json: str, line: str) -> NoReturn:
    """One task, in a process of its own."""
    warnings.simplefilter("ignore", StorageWarning)
    job, task = Job(**json.loads(job_json)), Task(**json.loads(line))
    target = load_target(TargetSpec.from_json(job.spec))
    _in_the_child(task, job, target, Recorder(job.events_fd))


if __name__ == "__main__":
    once(*sys.argv[1:])
