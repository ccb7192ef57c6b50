"""A second opinion on tiny histories: every order, tried on a list, with none of our reasoning.

It knows only what a log is. An append puts its batch at the end; a forget empties the log; a
read returns the newest `limit`. Each takes effect at one instant of its own interval.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER_NS = 2**63 - 1


@dataclass(frozen=True)
class Op:
    number: int
    f: str
    inv: int
    comp: int
    status: str
    messages: tuple[str, ...] = ()
    limit: int | None = None
    key: str | None = None
    process: int = 0
    session: str = "s"
    seqs: tuple[int, ...] | None = None


def legal(ops: list[Op]) -> bool:
    """Whether some execution of a sound store explains every operation."""
    todo = tuple(op for op in merge_attempts(ops) if op.status != "fail" and not _idle(op))
    return _search(todo, (), 0, set())


def _idle(op: Op) -> bool:
    return op.f == "history" and op.status != "ok"


def merge_attempts(ops: list[Op]) -> list[Op]:
    """Attempts under one key are one append, from the first invoke to the first ack."""
    merged: dict[str, Op] = {}
    rest = []
    for op in ops:
        if op.key is None or op.status == "fail":
            rest.append(op)
            continue
        first = merged.get(op.key)
        merged[op.key] = op if first is None else _join(first, op)
    return rest + list(merged.values())


def _join(a: Op, b: Op) -> Op:
    oks = [op.comp for op in (a, b) if op.status == "ok"]
    status = "ok" if oks else "info"
    comp = min(oks) if oks else max(a.comp, b.comp)
    return Op(a.number, a.f, min(a.inv, b.inv), comp, status, a.messages, None, a.key)


def _search(todo: tuple[Op, ...], log: tuple[str, ...], now: int, seen: set[object]) -> bool:
    if all(op.status == "info" for op in todo):
        return True
    if (todo, log, now) in seen:
        return False
    seen.add((todo, log, now))
    if any(op.status == "ok" and op.comp < now for op in todo):
        return False
    for at, op in enumerate(todo):
        then = max(now, op.inv)
        if then > op.comp:
            continue
        after = _run(op, log)
        if after is not None and _search(todo[:at] + todo[at + 1 :], after, then, seen):
            return True
    return False


def _run(op: Op, log: tuple[str, ...]) -> tuple[str, ...] | None:
    if op.f == "append":
        return log + op.messages
    if op.f == "forget":
        return ()
    newest = log if op.limit is None else log[len(log) - min(op.limit, len(log)) :]
    return log if newest == op.messages else None
