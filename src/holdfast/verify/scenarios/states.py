"""Crash states of one recorded run: what was promised by then, and what a real engine shows."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import EngineFailed, VerifyError
from holdfast.verify.blocks import Block
from holdfast.verify.engines import open_engine
from holdfast.verify.engines.server import ServerEngine
from holdfast.verify.history import History, parse_history
from holdfast.verify.judge import JudgeResult, judge
from holdfast.verify.power.trace import Recording
from holdfast.verify.spec import EngineView, TargetSpec, view_of
from holdfast.verify.workload.reader import Answer, Reader

FAULT: Final = "power-explore"
_ENDED: Final = "ended at start"
"""What an engine's failure says where it gave up by itself, and was not merely late."""
_LAST_WORDS: Final = 3
_READER: Final = "reader after the crash"
_FIRST_READ: Final = 1_000_000_000
"""The number of the first read; clients count from below."""


@dataclass(frozen=True, slots=True)
class Promised:
    """What clients had been told when the power went."""

    lines: list[bytes]
    in_flight: tuple[int, ...]
    acknowledged: int
    sessions: tuple[str, ...]


class Story:
    """One recorded run: what was done to the disk, and what clients asked and were told.

    `data` is where the engine's data are below the directory that was recorded.
    """

    def __init__(self, recording: Recording, history: Path, spec: TargetSpec, data: str) -> None:
        self.recording, self.spec, self.data = recording, spec, data
        self.header, *self._lines = history.read_bytes().splitlines(keepends=True)
        self._events: list[dict[str, Any]] = [json.loads(line) for line in self._lines]
        self._times = [event["time_ns"] for event in self._events]
        self.began_ns: int = self._times[0] if self._times else 0
        self.ended_ns: int = self._times[-1] if self._times else 0

    @property
    def view(self) -> EngineView:
        """The engine that was recorded."""
        if self.spec.engine is None:
            raise VerifyError(f"{self.spec.name} has no engine of its own to be recorded")
        return self.spec.engine

    def acks_ns(self) -> list[int]:
        """When a write was acknowledged."""
        writes = {e["op"] for e in self._events if e.get("f") in ("append", "forget")}
        return [e["time_ns"] for e in self._events if e["type"] == "ok" and e["op"] in writes]

    def until(self, at_ns: int) -> Promised:
        """What had been asked and answered at or before that time; the rest never happened."""
        count = bisect.bisect_right(self._times, at_ns)
        events = self._events[:count]
        asked = {event["op"]: event for event in events if event["type"] == "invoke"}
        done = {event["op"]: event["type"] for event in events if event["type"] != "invoke"}
        acknowledged = sum(asked[op]["f"] == "append" for op, how in done.items() if how == "ok")
        sessions = dict.fromkeys(event["session"] for event in asked.values())
        in_flight = tuple(op for op in asked if op not in done)
        return Promised(self._lines[:count], in_flight, acknowledged, tuple(sessions))

    def judge(
        self, at_ns: int, promised: Promised, reads: Sequence[dict[str, Any]]
    ) -> tuple[History, JudgeResult]:
        """The verdict on what was read after a crash at that time.

        With the power the engine and its clients went: what was in flight is over by then. A
        session that is broken without any crash is judged by what was read after it alone.
        """
        history, result = self._judged(at_ns, promised, reads, promised.lines)
        broken = {root.session for root in result.roots if max(root.witness) < _FIRST_READ}
        if not broken:
            return history, result
        return self._judged(at_ns, promised, reads, self._unread(promised, broken))

    def _unread(self, promised: Promised, sessions: set[str]) -> list[bytes]:
        """What was promised, without the answered reads of these sessions."""
        events = self._events[: len(promised.lines)]
        reads = {
            event["op"]
            for event in events
            if event.get("f") == "history" and event["session"] in sessions
        }.difference(promised.in_flight)
        pairs = zip(events, promised.lines, strict=True)
        return [line for event, line in pairs if event.get("op") not in reads]

    def _judged(
        self,
        at_ns: int,
        promised: Promised,
        reads: Sequence[dict[str, Any]],
        before: Sequence[bytes],
    ) -> tuple[History, JudgeResult]:
        fault = {"type": "fault", "name": FAULT, "time_ns": at_ns, "closes": promised.in_flight}
        lines = [self.header, *before, _line(fault)]
        for number, read in enumerate(reads):
            op, time_ns = _FIRST_READ + number, at_ns + 2 * number + 1
            session = {"f": "history", "session": read["session"], "process": _READER}
            shown: dict[str, Any] = {n: read[n] for n in ("messages", "seqs") if n in read}
            lines.append(_line({"type": "invoke", "time_ns": time_ns, "op": op, **session}))
            lines.append(_line({"type": "ok", "time_ns": time_ns + 1, "op": op, **shown}))
        history = parse_history(lines)
        return history, judge(history)


def _last(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return " / ".join(lines[-_LAST_WORDS:]) or "none"


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class Seen:
    """What came of one state. `lost` says why nothing could be read at all."""

    reads: list[dict[str, Any]] = field(default_factory=list)
    lost: str = ""
    unknown: str = ""


class Visitor(Block):
    """Boots the engine on one state after another, and reads the store whole."""

    def __init__(self, story: Story, folder: Path, *, timeout_s: float) -> None:
        folder.mkdir(mode=0o711)
        self._story = story
        self._folder = folder
        self._engine: ServerEngine | None = None
        self._reader = Reader(folder / "reader.log", timeout_s=timeout_s)

    def visit(self, state: Path, sessions: Sequence[str]) -> Seen:
        """What the store shows on what this state holds. The state is used up."""
        data, view = state / self._story.data, self._story.view
        if view.kind == "sqlite":
            url = view.url.replace(str(view.data_dir), str(data))
            return self._read(replace(view, url=url, data_dir=data), sessions)
        engine = self._engine = self._engine or self._new_engine(view)
        engine.adopt(data)
        try:
            engine.start()
            return self._read(view_of(engine), sessions)
        except EngineFailed as error:
            words = f"the engine does not start any more; its last words: {_last(str(error))}"
            return Seen(lost=words) if _ENDED in str(error) else Seen(unknown=words)
        finally:
            if engine.pid is not None:
                engine.kill()

    def close(self) -> None:
        """End the reader and the engine."""
        self._reader.close()
        if self._engine is not None:
            self._engine.close()

    def _new_engine(self, view: EngineView) -> ServerEngine:
        engine = open_engine(
            view.kind,
            config=view.config,
            version=view.version,
            storage=self._folder,
            provider="local",
        )
        if not isinstance(engine, ServerEngine):
            raise VerifyError(f"{view.kind} of {view.provider} cannot be started on other data")
        return engine

    def _read(self, view: EngineView, sessions: Sequence[str]) -> Seen:
        answer: Answer = self._reader.read(replace(self._story.spec, engine=view), sessions)
        if answer.unknown:
            return Seen(unknown=answer.unknown)
        if answer.not_opened:
            return Seen(lost=f"the store cannot be opened any more: {answer.not_opened}")
        for read in answer.reads:
            if "error" in read:
                return Seen(lost=f"{read['session']} cannot be read any more: {read['error']}")
        return Seen(answer.reads)
