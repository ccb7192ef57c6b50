"""What it costs on Redis that a read at REPLICA is confirmed: beside reads at DISK and a plain client.

Such a read writes a key that expires and waits until each replica has it: what it shows is then on every
machine that may become the primary, and a primary that was deposed finds nobody to confirm. On a disk, with
`appendfsync always`, so that a write costs what it costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis

import holdfast
from bench.figure import Figure, side_by_side
from bench.log import BODY, PAGE, RECORD
from holdfast import Durability, StorageWarning, Store
from holdfast.verify.engines import start_engine

CALLS = 40
ROUNDS = 9
READERS = 8
REPLICAS = 2
WAIT_MS = 5000


def run() -> Iterator[Figure]:
    """Reads and appends at REPLICA, each beside the same at DISK."""
    warnings.simplefilter("ignore", StorageWarning)  # what DISK may lose is measured elsewhere
    with start_engine("redis", topology="sentinel", config="aof-always", storage="disk") as engine:
        primary: Any = engine.primary()  # type: ignore[attr-defined]
        raw: Any = redis.Redis.from_url(primary.url)
        raw.rpush("page", *[RECORD] * PAGE)
        disk = holdfast.connect(engine.url, require=Durability.DISK)
        replica = holdfast.connect(engine.url, require=Durability.REPLICA)
        with disk, replica, ThreadPoolExecutor(READERS) as pool:
            for number in range(PAGE):
                replica.append("s", BODY, key=str(number))

            def confirmed() -> None:
                with raw.pipeline(transaction=False) as pipe:
                    pipe.set("fence", "", px=1000).wait(REPLICAS, WAIT_MS).lrange("page", -PAGE, -1)
                    assert pipe.execute()[1] == REPLICAS

            ways: dict[str, Callable[[], object]] = {
                "read at DISK": _times(lambda: disk.history("s", limit=PAGE)),
                "read at REPLICA": _times(lambda: replica.history("s", limit=PAGE)),
                "plain, confirmed": _times(confirmed),
                "append at DISK": _times(lambda: disk.append("a", BODY)),
                "append at REPLICA": _times(lambda: replica.append("a", BODY)),
                "many at DISK": lambda: _many(pool, disk),
                "many at REPLICA": lambda: _many(pool, replica),
            }
            ms = {n: 1000 * s / CALLS for n, s in side_by_side(ways, rounds=ROUNDS).items()}
        raw.close()
        version = engine.version
    yield from _figures(ms, f"Redis {version} behind Sentinel, {REPLICAS} replicas")


def _figures(ms: dict[str, float], where: str) -> Iterator[Figure]:
    for name, one, other, at_most in (
        ("read of a page at REPLICA / at DISK", "read at REPLICA", "read at DISK", None),
        ("the same / SET, WAIT and LRANGE by redis-py", "read at REPLICA", "plain, confirmed", 2.0),
        ("append at REPLICA / at DISK", "append at REPLICA", "append at DISK", None),
        (f"{READERS} readers at REPLICA / at DISK", "many at REPLICA", "many at DISK", None),
    ):
        detail = f"{where}: {one} {ms[one]:.2f} ms, {other} {ms[other]:.2f} ms each"
        yield Figure(name, ms[one] / ms[other], at_most=at_most, detail=detail)


def _times(call: Callable[[], object]) -> Callable[[], object]:
    return lambda: [call() for _ in range(CALLS)]


def _many(pool: ThreadPoolExecutor, store: Store) -> None:
    """As many reads, by several threads of one store."""
    list(pool.map(lambda _: store.history("s", limit=PAGE), range(CALLS)))
