"""Whole checks at the default time: each twin is caught with every seed, each sound store with none.

Goes on where the last run stopped (`.cache/checks`). Every other sound one has two busy loops beside it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.verify.judge import Verdict
from tests.verify.check.checking import broken, run, tell

STORES = "tests.verify.check"
TWINS = {
    "stores:lost_update": ("sqlite", "durable"),
    "stores:torn_batch": ("sqlite", "atomic"),
    "stores:ack_before_write": ("sqlite", "durable"),
    "stores:never_syncs": ("sqlite", "durable"),
    "stores:lossy": ("sqlite", "faithful"),
    "stores:resurrects": ("sqlite", "forgotten"),
    "stores:forgets_by_prefix": ("sqlite", "isolated"),
    "stores:oldest_first": ("sqlite", "snapshot"),
    "stores:retry_duplicates": ("sqlite", "exactly-once"),
    "stores:skips_damaged": ("sqlite", "faithful"),
    "stores:swallows": ("redis", "loud"),
    "stores:never_reconnects": ("redis", "loud"),
    "stores:claims_not_done": ("redis", "loud"),
    "stores:hides_all": ("redis", "faithful"),
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
"""Each with its engine and the promise that it breaks."""
SOUND = {
    "stores:sound": "sqlite",
    "stores:sound_async": "sqlite",
    "stores:opaque": "sqlite",
    "stores:sound_redis": "redis",
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
DONE = Path(__file__).parents[2] / ".cache" / "checks"


def left(names: dict[str, object], seeds: range) -> Iterator[tuple[str, int]]:
    """What no earlier run has done, seed by seed; all of it again where nothing is left."""
    done = set(DONE.read_text().split()) if DONE.exists() else set()
    every = [(name, seed) for seed in seeds for name in names]
    yield from [each for each in every if f"{each[0]}/{each[1]}" not in done] or every


def note(name: str, seed: int) -> None:
    DONE.parent.mkdir(exist_ok=True)
    with DONE.open("a") as file:
        file.write(f"{name}/{seed}\n")


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(loops)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


@pytest.mark.timeout(0)
def test_every_twin_is_caught_for_its_promise_with_every_seed(time_s: float):
    deadline, missed = time.monotonic() + time_s / 2, []
    for name, seed in left(dict(TWINS), TWIN_SEEDS):
        if time.monotonic() > deadline:
            break
        engine, promise = TWINS[name]
        result = run(f"{STORES}.{name}", engine, seed=seed)
        print(name, seed, f"{result.environment['took_s']} s", broken(result), flush=True)
        if result.promises[promise].verdict is Verdict.BROKEN:
            note(name, seed)
        else:
            missed.append(f"{name} seed {seed}: {tell(result)}")
    assert not missed, "\n".join(missed)


@pytest.mark.timeout(0)
def test_no_sound_store_raises_an_alarm(time_s: float):
    deadline, alarms = time.monotonic() + time_s / 2, []
    for name, seed in left(dict(SOUND), SOUND_SEEDS):
        if time.monotonic() > deadline:
            break
        engine = SOUND[name]
        with busy(2 if seed % 2 else 0):
            result = run(f"{STORES}.{name}" if engine else name, engine, seed=seed)
        print(name, seed, f"{result.environment['took_s']} s", result.verdict, flush=True)
        if broken(result):
            alarms.append(f"{name} seed {seed}: {tell(result)}")
        else:
            note(name, seed)
    assert not alarms, "\n".join(alarms)
