"""How long the judge takes, and the whole command beside a plain `json.loads` of every line."""

from __future__ import annotations

import json
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from holdfast.verify.history import Event, Header, event_json, header_json, read_history
from holdfast.verify.judge import judge
from holdfast.verify.judge.judge_command import judge_file, render

OPERATIONS = 1_000_000
SESSIONS_IN_FLIGHT = 8
DEFECTS = ("lost", "late", "misplaced", "twice")


def run() -> Iterator[Figure]:
    """One million operations in each of two shapes, and with one session in a hundred broken."""
    with tempfile.TemporaryDirectory() as where:
        yield from _shape("full reads", Path(where) / "full.jsonl", 10_000, None, 3.0)
        yield from _shape("limit 50", Path(where) / "limit.jsonl", 1_000, 50, 4.0)
    yield Figure(
        "memory at its height, both shapes",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        at_most=2.0,
        unit="GiB",
    )


def _shape(
    name: str, path: Path, sessions: int, limit: int | None, judged_s_max: float
) -> Iterator[Figure]:
    write_sessions(path, sessions=sessions, operations=OPERATIONS // sessions, limit=limit)
    judged_s = _judged_s(path)
    whole_s = _seconds(lambda: render(judge_file(path)))
    plain_s = _seconds(lambda: _json_loads(path))
    about = f"{OPERATIONS:,} operations, {sessions:,} sessions, {path.stat().st_size >> 20} MiB"
    yield Figure(
        f"judged, {name}", judged_s, at_most=judged_s_max, unit="s of one core", detail=about
    )
    yield Figure(
        f"holdfast judge, {name}, beside json.loads of every line",
        whole_s / plain_s,
        at_most=1.5,
        detail=f"{whole_s:.2f} s beside {plain_s:.2f} s of one core",
    )
    each = OPERATIONS // sessions
    write_sessions(path, sessions=sessions, operations=each, limit=limit, broken_every=100)
    broken_s = _judged_s(path)
    yield Figure(
        f"judged, {name}, one session in 100 broken, beside all sound",
        broken_s / judged_s,
        at_most=3.0,
        detail=f"{broken_s:.2f} s beside {judged_s:.2f} s of one core",
    )


def _judged_s(path: Path) -> float:
    history = read_history(path)
    return statistics.median(_seconds(lambda: judge(history)) for _ in range(3))


def _seconds(work: Callable[[], object]) -> float:
    # The time of one core, whatever else uses the machine: nothing here waits or runs beside.
    start = time.process_time()
    work()
    return time.process_time() - start


def _json_loads(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def write_sessions(
    path: Path, *, sessions: int, operations: int, limit: int | None, broken_every: int = 0
) -> None:
    """Write the history of a store, several sessions at a time; so often it breaks a promise."""
    random_ = random.Random(5)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header_json(Header("bench"))) + "\n")
        clock_ns, op = 0, 0
        for group in range(0, sessions, SESSIONS_IN_FLIGHT):
            members = range(group, min(group + SESSIONS_IN_FLIGHT, sessions))
            streams = [
                _operations(f"s{number}", operations, limit, _defect(number, broken_every))
                for number in members
            ]
            while streams:
                at = random_.randrange(len(streams))
                pair = next(streams[at], None)
                if pair is None:
                    del streams[at]
                    continue
                for fields in pair:
                    clock_ns += 1000
                    event = Event(time_ns=clock_ns, op=op, process=at, **fields)
                    line = json.dumps(event_json(event), separators=(",", ":"))
                    file.write(line + "\n")
                op += 1


def _defect(number: int, broken_every: int) -> str:
    broken = broken_every and number % broken_every == 0
    return DEFECTS[number // broken_every % len(DEFECTS)] if broken else ""


def _operations(
    session: str, operations: int, limit: int | None, defect: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    log: list[str] = []
    for number in range(operations):
        if number % 2 == 0:
            batch = (f"{session}-{number}",)
            log += batch
            if number == operations // 2 // 2 * 2:
                log = _struck(log, defect)
            invoke: dict[str, Any] = {
                "type": "invoke",
                "f": "append",
                "session": session,
                "messages": batch,
            }
            yield invoke, {"type": "ok"}
        else:
            late = defect == "late" and number == operations // 2 // 2 * 2 + 1
            row = log[:-1] if late else log
            shown = tuple(row if limit is None else row[-limit:])
            invoke = {"type": "invoke", "f": "history", "session": session, "limit": limit}
            yield invoke, {"type": "ok", "messages": shown}


def _struck(log: list[str], defect: str) -> list[str]:
    """What a defect makes of the log, once, in the middle of a session."""
    if defect == "lost":
        return log[:-2] + log[-1:]
    if defect == "misplaced":
        return [*log[:-2], log[-1], log[-2]]
    return log + log[-1:] if defect == "twice" else log
