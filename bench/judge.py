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

from holdfast.verify.history import Event, Header, History, event_json, header_json, read_history
from holdfast.verify.judge import judge
from holdfast.verify.judge.command import judge_file, render

OPERATIONS = 1_000_000
SESSIONS_IN_FLIGHT = 8


def run() -> dict[str, Any]:
    """The figures of both shapes, each judged three times."""
    with tempfile.TemporaryDirectory() as where:
        return {
            "full reads": _shape(Path(where) / "full.jsonl", sessions=10_000, limit=None),
            "limit 50": _shape(Path(where) / "limit.jsonl", sessions=1_000, limit=50),
        }


def _shape(path: Path, *, sessions: int, limit: int | None) -> dict[str, Any]:
    write_sound(path, sessions=sessions, operations=OPERATIONS // sessions, limit=limit)
    history = read_history(path)
    judged_s = statistics.median(_judging_s(history) for _ in range(3))
    del history
    whole_s = _seconds(lambda: render(judge_file(path)))
    plain_s = _seconds(lambda: _json_loads(path))
    return {
        "operations": OPERATIONS,
        "file_mib": round(path.stat().st_size / 2**20),
        "judged_s": round(judged_s, 2),
        "command_s": round(whole_s, 2),
        "json_loads_s": round(plain_s, 2),
        "command_to_json_loads": round(whole_s / plain_s, 2),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _judging_s(history: History) -> float:
    return _seconds(lambda: judge(history))


def _seconds(work: Callable[[], object]) -> float:
    # The time of one core, whoever else uses the machine: nothing here waits or runs beside.
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
