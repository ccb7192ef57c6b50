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
from holdfast.verify.history import Event, Header, History, event_json, header_json, read_history
from holdfast.verify.judge import judge
from holdfast.verify.judge.judge_command import judge_file, render

OPERATIONS = 1_000_000
SESSIONS_IN_FLIGHT = 8


def run() -> Iterator[Figure]:
    """One million operations in each of two shapes."""
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
    write_sound(path, sessions=sessions, operations=OPERATIONS // sessions, limit=limit)
    history = read_history(path)
    judged_s = statistics.median(_judging_s(history) for _ in range(3))
    del history
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


def _judging_s(history: History) -> float:
    return _seconds(lambda: judge(history))


def _seconds(work: Callable[[], object]) -> float:
    # The time of one core, whatever else uses the machine: nothing here waits or runs beside.
    start = time.process_time()
    work()
    return time.process_time() - start


def _json_loads(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def write_sound(path: Path, *, sessions: int, operations: int, limit: int | None) -> None:
    """Write the history of a store that keeps every promise, several sessions at a time."""
    random_ = random.Random(5)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header_json(Header("bench"))) + "\n")
        clock_ns, op = 0, 0
        for group in range(0, sessions, SESSIONS_IN_FLIGHT):
            members = range(group, min(group + SESSIONS_IN_FLIGHT, sessions))
            streams = [_operations(f"s{number}", operations, limit) for number in members]
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


def _operations(
    session: str, operations: int, limit: int | None
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    log: list[str] = []
    for number in range(operations):
        if number % 2 == 0:
            batch = (f"{session}-{number}",)
            log += batch
            invoke: dict[str, Any] = {
                "type": "invoke",
                "f": "append",
                "session": session,
                "messages": batch,
            }
            yield invoke, {"type": "ok"}
        else:
            shown = tuple(log if limit is None else log[-limit:])
            invoke = {"type": "invoke", "f": "history", "session": session, "limit": limit}
            yield invoke, {"type": "ok", "messages": shown}
