"""Whole checks at the default time: each twin is caught with every seed, each sound store with none.

Goes on where the last run stopped (`counts`), and keeps each result there. Every other sound one has two busy loops beside it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

import pytest

from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult
from tests.torture.counts import FOLDER, Counts
from tests.verify.check.checking import broken, run, tell

STORES = "tests.verify.check"
TWINS = {
    "stores:lost_update": ("sqlite", "durable", "fresh", "forgotten"),
    "stores:torn_batch": ("sqlite", "atomic", "durable"),
    "stores:ack_before_write": ("sqlite", "durable", "fresh", "loud"),
    "stores:never_syncs": ("sqlite", "durable"),
    "stores:lossy": ("sqlite", "faithful"),
    "stores:resurrects": ("sqlite", "forgotten"),
    "stores:forgets_by_prefix": ("sqlite", "isolated"),
    "stores:oldest_first": ("sqlite", "snapshot"),
    "stores:retry_duplicates": ("sqlite", "exactly-once"),
    "stores:skips_damaged": ("sqlite", "faithful"),
    "redis_stores:swallows": ("redis", "loud"),
    "redis_stores:never_reconnects": ("redis", "loud"),
    "redis_stores:claims_not_done": ("redis", "loud"),
    "redis_stores:hides_all": ("redis", "faithful"),
    "content_stores:capped": ("sqlite", "durable"),
    "content_stores:pages": ("sqlite", "snapshot"),
    "content_stores:truncates": ("sqlite", "faithful"),
    "many_stores:groups_unsynced": ("sqlite", "durable"),
    "many_stores:tasks_one_transaction": ("sqlite", "atomic"),
    "clock_stores:five_minutes_redis": ("redis", "expiring"),
    "clock_stores:expires_next": ("redis", "expiring"),
    "clock_stores:expires_next_briefly": ("redis", "expiring"),
    "clock_stores:notes_the_end_next": ("sqlite", "expiring"),
    "clock_stores:created_at_file": ("sqlite", "ordered"),
    "lock_stores:gives_up_quietly": ("redis", "durable"),
    "lock_stores:leased": ("redis", "durable"),
    "files:json_lines": ("sqlite", "atomic"),
    "files:unsynced_rename": ("sqlite", "durable"),
}
"""Each with its engine, the promise that it is made to break, and those that go with that:

A lost update before a forget may as well have been a stale read, and one after it brings back
what was forgotten. A batch whose key is noted first is acknowledged to a retry although a crash
took it. What a thread writes later is not shown before, and nobody hears that it failed.
"""
SOUND = {
    "stores:sound": "sqlite",
    "stores:sound_async": "sqlite",
    "stores:opaque": "sqlite",
    "redis_stores:sound_redis": "redis",
    "many_stores:grouped": "sqlite",
    "many_stores:tasks_one_by_one": "sqlite",
    "clock_stores:week_file": "sqlite",
    "clock_stores:week_redis": "redis",
    "clock_stores:week_postgres": "postgres",
    "lock_stores:document": "redis",
    "lock_stores:gives_up_aloud": "redis",
    "lock_stores:fenced": "redis",
    "files:json_file": "sqlite",
    "sqlite": None,
    "redis": None,
    "postgres": None,
}
TWIN_SEEDS = range(5)
SOUND_SEEDS = range(10)
SPIN = "while True: pass"


def left(names: Iterable[str], seeds: range) -> list[tuple[str, int]]:
    """What no earlier run has passed, seed by seed."""
    return [(name, seed) for seed in seeds for name in names if _counts(name, seed).left]


def _counts(name: str, seed: int) -> Counts:
    return Counts(f"check-{name.replace(':', '.')}-{seed}", 1)


def keep(name: str, result: CheckResult, *, passed: bool) -> None:
    """The whole result: it is looked into where it failed, and not asked for again where not."""
    how = "passed" if passed else "failed"
    path = FOLDER / "checks" / how / f"{name.replace(':', '.')}-{result.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result.to_json(), indent=1, default=str))
    _counts(name, result.seed).add(int(passed), failures=int(not passed))


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(loops)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


def timed(names: Iterable[str], seeds: range, time_s: float) -> Iterator[tuple[str, int]]:
    deadline = time.monotonic() + time_s
    for each in left(names, seeds):
        if time.monotonic() > deadline:
            return
        yield each


@pytest.mark.timeout(0)
def test_every_twin_is_caught_for_its_promise_with_every_seed(time_s: float):
    missed = []
    for name, seed in timed(TWINS, TWIN_SEEDS, time_s / 2):
        engine, *promises = TWINS[name]
        result = run(f"{STORES}.{name}", engine, seed=seed)
        found = broken(result)
        print(name, seed, f"{result.environment['took_s']} s", list(found), flush=True)
        caught = promises[0] in found and set(found) <= set(promises)
        keep(name, result, passed=caught)
        if not caught:
            missed.append(f"{name} seed {seed}: {tell(result)}")
    assert not missed, "\n".join(missed)


@pytest.mark.timeout(0)
def test_no_sound_store_raises_an_alarm(time_s: float):
    alarms = []
    for name, seed in timed(SOUND, SOUND_SEEDS, time_s / 2):
        engine = SOUND[name]
        with busy(2 if seed % 2 else 0):
            result = run(f"{STORES}.{name}" if engine else name, engine, seed=seed)
        print(name, seed, f"{result.environment['took_s']} s", result.verdict, flush=True)
        # What is unknown (a busy machine came to the time limit) is no alarm, and is tried again.
        keep(name, result, passed=result.verdict is Verdict.KEPT)
        if broken(result):
            alarms.append(f"{name} seed {seed}: {tell(result)}")
    assert not alarms, "\n".join(alarms)
