"""One anomaly as a reader needs it. Pure, and bounded.

The operations that prove it, what stood around them in time, and the conversation as the reading
client got it, with what is missing from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.verify.history import NEVER_NS, Fault, History, Operation
from holdfast.verify.judge import Anomaly
from holdfast.verify.workload import plan

WHOLE_MAX: Final = 3
"""So many of each name are told with their conversation; the others with their operations."""
SESSION_MAX: Final = 8
"""A session of so few operations is told whole."""
FAULTS_MAX: Final = 5
NEARBY_MAX: Final = 3
LINES_BEFORE: Final = 4
LINES_AFTER: Final = 5
SHOWN_AFTER: Final = 3
MISSING_MAX: Final = 200
TEXT_CHARS_MAX: Final = 300
_LACKS: Final = frozenset(
    {"lost", "rollback", "hole", "torn", "stale", "window", "expired-early"}
)  # a read shows too little
_MARKS: Final[Mapping[str, str]] = {
    "phantom": "extra",
    "leak": "extra",
    "resurrected": "extra",
    "expired-late": "extra",
    "window": "extra",
    "duplicate": "twice",
    "doubled": "twice",
    "reorder": "misplaced",
    "seq-clash": "misplaced",
    "torn": "misplaced",
}
"""What is wrong with a message that a read shows."""


def anomalies_json(
    scenario: str,
    fault: str | None,
    history: History,
    anomalies: Iterable[Anomaly],
    *,
    among: Sequence[Anomaly],
    every: bool = False,
) -> Iterator[dict[str, Any]]:
    """Each anomaly with its operations; the first of each name with all that is known of it.

    `among` is everything that was found in this history: one read may lack many messages. `every`:
    of a small session all operations are told, not only those that prove it.
    """
    counted: dict[str, int] = {}
    for anomaly in anomalies:
        counted[anomaly.name] = counted.get(anomaly.name, 0) + 1
        whole = counted[anomaly.name] <= WHOLE_MAX and anomaly.follows_from is None
        yield {
            "name": anomaly.name,
            "promise": anomaly.promise,
            "scenario": scenario,
            "session": anomaly.session,
            "message": anomaly.message,
            "witness": list(anomaly.witness),
            "because": anomaly.because,
            "confirmed": anomaly.confirmed,
            "follows_from": None if anomaly.follows_from is None else list(anomaly.follows_from),
            "operations": [_operation(one) for one in _shown(history, anomaly, every=every)],
            "fault": fault,
            **(_surroundings(history, among, anomaly) if whole else {}),
        }


def _shown(history: History, anomaly: Anomaly, *, every: bool) -> list[Operation]:
    """The operations that prove it; of a small session all up to the last of them."""
    proof = [history.operations[number] for number in anomaly.witness]
    home = history.sessions.get(anomaly.session)
    others = [] if home is None else [*home.appends, *home.reads, *home.forgets]
    last_ns = max(operation.invoked_ns for operation in proof)
    before = {one.number: one for one in others if one.invoked_ns <= last_ns}
    before |= {one.number: one for one in proof}
    if not every or len(before) > SESSION_MAX:
        return proof
    return sorted(before.values(), key=lambda one: one.invoked_ns)


def _surroundings(history: History, among: Sequence[Anomaly], anomaly: Anomaly) -> dict[str, Any]:
    operations = [history.operations[number] for number in anomaly.witness]
    began = min(operation.invoked_ns for operation in operations)
    ended = max(_end(operation) for operation in operations)
    faults = faults_between(history, began, ended)
    return {
        # Those that came first after the write: whatever took it away was one of them, or later.
        "faults": [
            {"name": fault.name, "time_ns": fault.time_ns, "landed": fault.landed}
            for fault in faults[:FAULTS_MAX]
        ],
        "faults_between": len(faults),
        "writer_went_on": _went_on(history, anomaly, faults),
        "nearby": [_operation(operation) for operation in _nearby(history, anomaly)],
        "conversation": _conversation(history, among, anomaly),
    }


def faults_between(history: History, began: int, ended: int) -> list[Fault]:
    """Also the one that was under way at the beginning: the next that is told is its end."""
    between = [fault for fault in history.faults if began <= fault.time_ns <= ended]
    before = [fault for fault in history.faults if fault.time_ns < began]
    after = [fault for fault in history.faults if fault.time_ns >= began]
    if after and before and after[0].name == f"{before[-1].name} over":
        return [before[-1], *between]
    return between


def _went_on(history: History, anomaly: Anomaly, faults: Sequence[Fault]) -> bool:
    """Whether the client that wrote the message was still at work after all these faults."""
    own = history.writers.get(anomaly.message)
    last = max((fault.time_ns for fault in faults), default=0)
    return own is not None and any(
        one.process == own.process and _end(one) > last for one in history.operations.values()
    )


def _nearby(history: History, anomaly: Anomaly) -> list[Operation]:
    """Writes of other clients to the same session at the same time as the message's own."""
    own = history.writers.get(anomaly.message)
    home = history.sessions.get(anomaly.session)
    if own is None or home is None:
        return []
    rivals = [
        write
        for write in (*home.appends, *home.forgets)
        if write.process != own.process
        and write.number not in anomaly.witness
        and write.invoked_ns <= _end(own)
        and _end(write) >= own.invoked_ns
    ]
    return sorted(rivals, key=lambda write: write.invoked_ns)[:NEARBY_MAX]


def _conversation(
    history: History, among: Sequence[Anomaly], anomaly: Anomaly
) -> dict[str, Any] | None:
    """What one read of the witness showed, and what it should have; None without such a read."""
    read = _telling_read(history, anomaly)
    if read is None:
        return None
    alike = [a for a in among if a.session == anomaly.session and read.number in a.witness]
    lines = _marked(read.ids(), alike)
    for name in _missing(history, read, alike):
        lines.insert(_place(history, lines, name), (name, "missing"))
    focus = next(
        (at for at, (name, mark) in enumerate(lines) if name == anomaly.message and mark != "seen"),
        0,
    )
    return {
        "read": read.number,
        "limit": read.limit,
        "mark": lines[focus][1] if lines else "seen",
        "lines": list(_excerpt(history, lines, focus)),
    }


def _excerpt(
    history: History, lines: list[tuple[str, str]], focus: int
) -> Iterator[dict[str, Any]]:
    """The lines around one, and the next that the read did show; what lies between is counted."""
    around = range(max(focus - LINES_BEFORE, 0), min(focus + LINES_AFTER + 1, len(lines)))
    shown = [at for at in range(focus, len(lines)) if lines[at][1] != "missing"]
    last = -1
    for at in [*sorted({*around, *shown[:SHOWN_AFTER]}), len(lines)]:
        if between := lines[last + 1 : at]:
            yield {"skipped": len(between), "missing": sum(m == "missing" for _, m in between)}
        if at < len(lines):
            yield _line(history, *lines[at])
        last = at


def _telling_read(history: History, anomaly: Anomaly) -> Operation | None:
    """The read that shows it: one that lacks the message, or one that shows what it must not."""
    operations = [history.operations[number] for number in anomaly.witness]
    reads = [o for o in operations if o.f == "history" and o.session == anomaly.session]
    reads = [read for read in reads if read.status == "ok"]
    lacking = [read for read in reads if anomaly.message not in read.ids()]
    telling = lacking if anomaly.name in _LACKS and lacking else reads
    return telling[-1] if telling else None


def _marked(shown: list[str], alike: list[Anomaly]) -> list[tuple[str, str]]:
    """The messages of a read, each with what the judge found wrong with it."""
    marks = {a.message: _MARKS[a.name] for a in alike if a.name in _MARKS}
    lines: list[tuple[str, str]] = []
    seen: set[str] = set()
    for name in shown:
        mark = marks.get(name, "seen")
        if mark == "twice" and name not in seen:
            mark = "seen"
        lines.append((name, mark))
        seen.add(name)
    return lines


def _missing(history: History, read: Operation, alike: list[Anomaly]) -> list[str]:
    """Messages proven to be missing from a read, with the batches they were written in."""
    shown = set(read.ids())
    found: dict[str, int] = {}
    for anomaly in alike:
        writer = history.writers.get(anomaly.message)
        if anomaly.name in _LACKS and anomaly.message not in shown and writer is not None:
            found |= {name: writer.invoked_ns for name in writer.ids() if name not in shown}
    return sorted(found, key=lambda name: found[name])[:MISSING_MAX]


def _place(history: History, lines: list[tuple[str, str]], name: str) -> int:
    """Where it should stand: after the last message whose append began no later."""
    began = history.writers[name].invoked_ns
    earlier = [
        at
        for at, (other, _) in enumerate(lines)
        if other in history.writers and history.writers[other].invoked_ns <= began
    ]
    return earlier[-1] + 1 if earlier else 0


def _line(history: History, name: str, mark: str) -> dict[str, Any]:
    """A message with its words; of one that nobody wrote only what the store called it."""
    sent = plan.message(name) if name in history.writers else {"role": None, "content": None}
    content = None if sent["content"] is None else sent["content"][:TEXT_CHARS_MAX]
    return {"id": name[:TEXT_CHARS_MAX], "role": sent["role"], "content": content, "mark": mark}


def _operation(operation: Operation) -> dict[str, Any]:
    """What a reader needs to see of one operation."""
    known = operation.status != "info"
    closed = not known and operation.completed_ns != NEVER_NS
    return {
        "op": operation.number,
        "process": operation.process,
        "f": operation.f,
        "session": operation.session,
        "status": operation.status,
        "invoked_ns": operation.invoked_ns,
        "completed_ns": operation.completed_ns if known else None,
        "closed_ns": operation.completed_ns if closed else None,
        "messages": operation.ids() if operation.messages else [],
        "limit": operation.limit,
        "key": operation.key,
    }


def _end(operation: Operation) -> int:
    """When it ended, or of one that never did, when it began."""
    ended = operation.completed_ns
    return operation.invoked_ns if ended == NEVER_NS else ended
