"""Scenarios without a fault: many clients at once, a retry that comes too late, expiry."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdfast.verify.history import read_history
from holdfast.verify.judge import Verdict
from holdfast.verify.process_tree import pause_tree
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import TTL_ERROR_S, Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.outage import shut_out
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess
from holdfast.verify.workload.plan import Step

CLIENTS: Final = 4
LONG_BATCH: Final = 100
LONG_BATCHES: Final = 22
LONG_S: Final = 4.0
"""How long a session may take to grow, and to be read while it is forgotten."""
LONG_SESSIONS: Final = 4
READS: Final = 3
HELD_S: Final = 1.0
"""So long a reader is held at most while its session is forgotten."""
TTL_S: Final = 1.0
TTL_S_MAX: Final = 20.0
"""A check waits no longer than this for a session to expire."""


class Concurrency(Scenario):
    """Several processes on the same sessions at once, as agents do."""

    name = "concurrency"
    rank = 0
    about = f"{CLIENTS} processes write and read the same conversations at once"
    tests = (
        "ordered", "atomic", "exactly-once", "fresh", "snapshot", "isolated", "forgotten",
    )  # fmt: skip

    def run(self, context: ScenarioContext) -> Outcome:
        """Let them work until enough was acknowledged."""
        with context.clients(self) as clients:
            at_once = context.at_once(CLIENTS)
            shape = context.shape(self.name)
            for client in context.start_mixed(clients, at_once, shape=shape):
                client.go()
            clients.until_acknowledged(context.amount(500))
            many = f"{CLIENTS} processes at once" if at_once > 1 else "one process alone"
            outcome = context.conclude(self, clients, f"{clients.acknowledged()} appends by {many}")
            outcome.findings += shut_out(clients, self.name)
            if context.alone:
                outcome.untried = [(p, f"several at once ({context.alone})") for p in self.tests]
            elif any(
                f.promise == "durable" and f.verdict is Verdict.BROKEN for f in outcome.findings
            ):
                context.alone = "several processes at once lose messages without any fault"
            return outcome


class LongSession(Scenario):
    """A session of thousands of messages; then it is read while it is forgotten and begun again.

    A cap drops what was acknowledged; a reader that takes page after page mixes two histories.
    """

    name = "long-session"
    about = "a session grows to thousands of messages, and is read while another forgets it"
    tests = ("ordered", "snapshot")

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Several have to be at work at once."""
        return context.alone or None

    def run(self, context: ScenarioContext) -> Outcome:
        """Each of a few writes a long session; all read one of them while another forgets it."""
        wait = Step("wait")
        sessions = [f"{self.name}-{number}" for number in range(LONG_SESSIONS)]
        reads = [step for s in sessions for step in (wait, *[Step("history", s)] * READS)]
        scripts = [
            [
                *(_long(session, "grown", number) for number in range(LONG_BATCHES)),
                Step("history", session),
                *reads,
                wait,
            ]
            for session in sessions
        ]
        forgets = "forgotten" in context.claimed
        for session in sessions:
            forget = [Step("forget", session)] if forgets else []
            scripts.append([wait, *forget, _long(session, "again", 0)])
        with context.clients(self) as clients:
            started = clients.start(scripts=scripts)
            if not clients.trouble:
                self._read_while_forgotten(clients, started)
            kept = f"{LONG_SESSIONS} sessions of {LONG_BATCHES * LONG_BATCH} messages"
            return context.conclude(self, clients, kept)

    def _read_while_forgotten(self, clients: ClientPool, started: list[ClientProcess]) -> None:
        readers, writers = started[:LONG_SESSIONS], started[LONG_SESSIONS:]
        for client in started:
            client.go()
        for number, writer in enumerate(writers, 1):
            at_wait = functools.partial(_all_wait, readers, number)
            # A slow store gets as far as it gets; of one that drops messages enough is known.
            if not clients.until(at_wait, within_s=LONG_S) or not _all_whole(readers):
                return
            for reader in readers:
                reader.go()
            clients.until(functools.partial(_all_wait, readers, number + 1, or_read=True))
            _held_while(readers, lambda: self._forget(clients, writer))  # noqa: B023 - done at once

    @staticmethod
    def _forget(clients: ClientPool, writer: ClientProcess) -> None:
        writer.go()
        # A reader that is held may hold a lock: then it is let go first.
        clients.until(lambda: not writer.alive, within_s=HELD_S)


def _all_wait(readers: list[ClientProcess], number: int, *, or_read: bool = False) -> bool:
    return all(r.waiting >= number or (or_read and r.open) or not r.alive for r in readers)


def _all_whole(readers: list[ClientProcess]) -> bool:
    """Whether each has seen all that it wrote, which is the last that it read."""
    seen = [next((e for e in reversed(r.events) if "messages" in e), None) for r in readers]
    first = all(r.waiting == 1 for r in readers)
    return not first or all(e and len(e["messages"]) == LONG_BATCHES * LONG_BATCH for e in seen)


def _held_while(readers: list[ClientProcess], work: Callable[[], None]) -> None:
    """Stop those who are in the middle of a read, until the work is done."""
    held = [reader for reader in readers if reader.open and reader.alive]
    for reader in held:
        pause_tree(reader.process)
    try:
        work()
    finally:
        for reader in held:
            reader.resume()


def _long(session: str, word: str, number: int) -> Step:
    ids = tuple(f"{session}.{word}.{number}.{part}" for part in range(LONG_BATCH))
    return Step("append", session, ids)


class LateRetry(Scenario):
    """Forget a session, then retry an append from before: nothing may come back."""

    name = "late-retry"
    about = "sessions are forgotten, and old requests are sent again"
    tests = ("forgotten",)

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs a store that forgets."""
        return None if "forgotten" in context.claimed else "forgotten is not claimed"

    def run(self, context: ScenarioContext) -> Outcome:
        """One client forgets and retries; another one, opened later, looks."""
        keyed = context.shape(self.name).keyed
        script = [step for n in range(context.amount(10)) for step in _forget_and_retry(n, keyed)]
        with context.clients(self) as clients:
            for client in clients.start(scripts=[script]):
                client.go()
            clients.until(lambda: not any(client.alive for client in clients.processes))
            kept = "late retries" if keyed else "reads by another process"
            return context.conclude(self, clients, kept)


def _forget_and_retry(number: int, keyed: bool) -> list[Step]:
    session = f"late-{number}"

    def append(part: str) -> Step:
        ids = (f"late.{number}.{part}.0", f"late.{number}.{part}.1")
        return Step("append", session, ids, key=f"late.{number}.{part}" if keyed else None)

    first, second = append("a"), append("b")
    again = [first] if keyed else []
    read, forget = Step("history", session), Step("forget", session)
    return [first, read, forget, read, *again, read, second, read, *again, read, forget, *again]


class Expiry(Scenario):
    """Sessions live as long as they should, are refreshed by writes, and are then gone whole."""

    name = "expiry"
    about = "short-lived sessions are refreshed, and then left alone until they expire"
    tests = ("expiring",)

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs a time to live that is short enough to be waited for."""
        if "expiring" not in context.claimed:
            return "expiring is not claimed"
        ttl_s = self._ttl_s(context)
        if ttl_s is None:
            return "the target claims expiring and names no ttl_s"
        if ttl_s > TTL_S_MAX:
            return f"its time to live of {ttl_s:g} s is longer than a check waits ({TTL_S_MAX:g} s)"
        return None

    def run(self, context: ScenarioContext) -> Outcome:
        """Three clients, each with sessions of its own."""
        ttl_s = self._ttl_s(context) or TTL_S
        # Ours is opened with a time to live for this scenario alone, in a corner of its own.
        with_ttl = replace(context.spec, ttl_s=ttl_s, namespace=f"{context.spec.namespace}-ttl")
        with context.clients(self, spec=with_ttl if context.spec.is_holdfast else None) as clients:
            several = range(context.at_once(3))
            lives = [_lifetime(number, round(ttl_s * 1000)) for number in several]
            for client in clients.start(scripts=lives):
                client.go()
            context.meanwhile(lambda: not any(c.alive for c in clients.processes))
            within_s = 4 * ttl_s + context.bounds.operation_s
            clients.until(lambda: not any(c.alive for c in clients.processes), within_s=within_s)
            header = {"ttl_s": ttl_s, "clock_error_s": TTL_ERROR_S}
            outcome = context.conclude(
                self, clients, f"gone {ttl_s:g} s after their last write", header=header
            )
            return _with_proof(self, context, outcome, ttl_s)

    @staticmethod
    def _ttl_s(context: ScenarioContext) -> float | None:
        return TTL_S if context.spec.is_holdfast else context.about["ttl_s"]


def _lifetime(number: int, ttl_ms: int) -> list[Step]:
    """Write, refresh in time, look after the first write's time is over, then wait for the end."""
    session = f"brief-{number}"
    error_ms = round(TTL_ERROR_S * 1000)

    def append(part: int) -> Step:
        return Step("append", session, (f"brief.{number}.{part}.0", f"brief.{number}.{part}.1"))

    read = Step("history", session)
    refresh = [Step("think", think_ms=ttl_ms * 6 // 10), append(1), read]
    later = [Step("think", think_ms=ttl_ms * 6 // 10), read]
    over = [Step("think", think_ms=ttl_ms * 4 // 10 + error_ms + 100), read]
    return [append(0), read, *refresh, *later, *over]


def _with_proof(
    scenario: Expiry, context: ScenarioContext, outcome: Outcome, ttl_s: float
) -> Outcome:
    """Without a read that showed the session and one that came too late, nothing was tested."""
    history = read_history(context.folder / f"{scenario.name}.jsonl")
    late_ns = round((ttl_s + TTL_ERROR_S) * 1e9)
    for session in history.sessions.values():
        last_ns = max((a.completed_ns for a in session.appends if a.status == "ok"), default=0)
        reads = [read for read in session.reads if read.status == "ok"]
        alive = any(read.ids() for read in reads)
        late = any(read.invoked_ns > last_ns + late_ns for read in reads)
        if not last_ns or not alive or not late:
            words = f"no read of {session.name} was in time, or none was late enough"
            outcome.findings.append(Finding("expiring", Verdict.UNKNOWN, words, scenario.name))
    return outcome
