"""10 forgotten: `forget(now=True)` leaves a digest in the place of the id, and it stays forgotten."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Conflict, SessionState, UsageError
from holdfast.backends.redis.listing import Listing
from tests.contract.harness import AnyStore, Opener, SqliteHarness, say, texts
from tests.contract.harness_postgres import PostgresHarness
from tests.contract.harness_redis import RedisHarness
from tests.contract.test_erasure import Disk
from tests.waiting import wait_until

HARNESSES = {"sqlite": SqliteHarness, "redis": RedisHarness, "postgres": PostgresHarness}


@pytest.fixture(params=HARNESSES)
def disk(request: pytest.FixtureRequest, disk_path: Path) -> Disk:
    return Disk(HARNESSES[request.param](disk_path))


@pytest.fixture(params=["sync", "async"])
def opener(request: pytest.FixtureRequest, disk: Disk) -> Iterator[Any]:
    opener = Opener(disk.harness, request.param)
    yield opener
    opener.close()


@pytest.fixture
def store(opener: Opener) -> AnyStore:
    return opener()


def fill(store: AnyStore, name: str) -> None:
    store.append(name, [say("one"), say("two")], key="first")
    store.remember(name, "a memory")
    store.append("keep", say("other things"))


def a_name() -> str:
    """Random, so that no engine compresses it; with bytes that every engine quotes or not."""
    return f"anna-{os.urandom(16).hex()}"


def named_in(lines: list[str], name: str) -> list[str]:
    """Lines of an export that name a session, also in base64."""
    found = []
    for line in lines[1:-1]:
        value = json.loads(line)
        data = base64.b64decode(value.get("session_b64", "")) + value.get("session", "").encode()
        if name.encode() in data or name in line:
            found.append(line)
    return found


def test_the_id_is_in_no_file_that_the_engine_can_clean(disk: Disk, store: AnyStore):
    name = a_name()
    fill(store, name)
    store.sessions()  # a listing has come across it
    assert disk.holding([name]), "the test looks in the wrong place"
    store.forget(name)
    store.sessions()  # and found it forgotten
    assert disk.holding([name]), (
        "an ordinary forget keeps the id: clients of earlier releases ask for it"
    )
    is_postgres = isinstance(disk.harness, PostgresHarness)
    if is_postgres:  # the server does so by itself, and keeps samples of what it sees
        disk.harness.engine.query(f"ANALYZE {disk.harness.schema}.sessions")

    def is_clean() -> bool:  # again, if a transaction of the server's own was in the way
        left = store.forget(name, now="full" if is_postgres else True).left
        return ["pg_wal" in place for place in left] == [True] * is_postgres

    wait_until(is_clean)
    may_hold = {"pg_wal"} if is_postgres else set()
    wait_until(lambda: {path.split("/")[0] for path in disk.holding([name])} <= may_hold)
    assert named_in(list(store.export()), name) == []
    assert store.stat(name).state is SessionState.FORGOTTEN
    assert store.stat(name).last == 2
    assert name not in store.sessions()


def test_what_bears_a_digest_stays_forgotten(opener: Opener, store: AnyStore):
    name, other = a_name(), opener(namespace="other")
    fill(store, name)
    old = list(store.export())
    assert store.forget(name, now=True).messages == 2
    assert len(store.history(name)) == 0
    assert not list(store.memories(name))
    assert store.append(name, [say("one"), say("two")], key="first").repeated
    with pytest.raises(Conflict):
        store.append(name, say("late"), expect=2)
    with pytest.raises(Conflict):
        store.load(old)
    assert len(store.history(name)) == 0
    assert store.stat(name).state is SessionState.FORGOTTEN
    assert store.forget(name, now=True).messages == 0
    assert store.forget(name).messages == 0

    moved = list(store.export())  # a digest moves, and is found by the name there, too
    assert named_in(moved, name) == []
    other.load(moved)
    assert other.load(moved).sessions == 0
    assert other.stat(name).state is SessionState.FORGOTTEN
    assert other.append(name, say("x"), key="first").repeated
    with pytest.raises(Conflict):
        other.load(old)
    assert list(other.export()) == moved


def test_a_new_beginning_is_as_after_any_forget(opener: Opener, store: AnyStore):
    name = a_name()
    fill(store, name)
    store.forget(name, now=True)
    ack = store.append(name, [say("new")], key="second", expect=0)
    assert (ack.first, ack.last) == (3, 3)
    assert texts(store.history(name)) == ["new"]
    assert name in store.sessions()
    assert store.append(name, say("x"), key="first").repeated
    store.remember(name, "another memory")
    assert [memory.content for memory in store.memories(name)] == ["another memory"]
    assert texts(opener().history(name)) == ["new"]
    store.forget(name, now=True)
    assert store.rewrite(name, say("newest")).first == 4
    assert texts(store.history(name)) == ["newest"]
    assert store.stat(name).last == 4
    assert name in store.sessions()
    assert named_in(list(store.export()), name) != []


def test_a_loaded_digest_does_not_touch_a_session_of_that_name(opener: Opener, store: AnyStore):
    name, other = a_name(), opener(namespace="other")
    fill(store, name)
    store.append(name, [say("three"), say("four"), say("five")], key="more")
    store.forget(name, now=True)
    other.append(name, say("mine"), key="own")
    other.load(list(store.export()))
    assert texts(other.history(name)) == ["mine"]
    other.forget(name, now=True)  # two tombstones become one: all numbers and keys stay used
    assert other.stat(name).last == 5
    assert other.append(name, say("x"), key="own").repeated
    assert other.append(name, say("x"), key="more").repeated
    assert other.append(name, say("new")).first == 6
    assert texts(other.history(name)) == ["new"]


def test_a_digest_that_is_none_or_lives_is_refused(store: AnyStore):
    name = a_name()
    fill(store, name)
    store.forget(name, now=True)
    lines = list(store.export())
    at = next(at for at, line in enumerate(lines) if "session_b64" in line)
    for change in ({"state": "live"}, {"session_b64": "/2R4"}, {"session_b64": "/2Rh/2Rh"}):
        spoilt = [*lines]
        spoilt[at] = json.dumps(json.loads(lines[at]) | change)
        with pytest.raises(UsageError, match="nothing of the rest"):
            store.load(spoilt)


def test_many_are_forgotten_without_their_names(disk: Disk, store: AnyStore):
    names = [a_name() for _ in range(3)]
    for name in names:
        fill(store, name)
    receipt = store.forget(prefix="anna-", now=True)
    assert sorted(receipt.sessions) == sorted(names)
    assert named_in(list(store.export()), "anna-") == []
    if not isinstance(disk.harness, PostgresHarness):
        wait_until(lambda: not disk.holding(names))
    assert store.sessions() == ["keep"]


def test_a_listing_beside_it_does_not_keep_the_name(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It marks a name that is about to leave its index; the session gets its digest just then."""
    harness, name = RedisHarness(disk_path), a_name()
    with holdfast.connect(harness.url) as store, holdfast.connect(harness.url) as other:
        fill(store, name)
        store.forget(name)
        unlist = Listing._unlist
        meanwhile: list[bytes] = []

        def forgotten_just_then(listing: Listing, names: Any) -> Any:
            if not meanwhile:
                meanwhile.extend(names)
                other.forget(name, now=True)
            return unlist(listing, names)

        monkeypatch.setattr(Listing, "_unlist", forgotten_just_then)
        assert store.sessions() == ["keep"]
        assert meanwhile == [name.encode()]
        assert other.forget("keep", now=True).left == ()  # the files hold what the engine has
        wait_until(lambda: not Disk(harness).holding([name]))


def test_a_session_that_begins_again_beside_a_forget_keeps_its_name(disk_path: Path):
    """The forget waits for the append that takes the digest away, and then finds neither at first."""
    harness = PostgresHarness(disk_path)
    blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with (
        holdfast.connect(harness.url) as store,
        holdfast.connect(harness.url) as other,
        psycopg.connect(harness.engine.url) as holder,
        psycopg.connect(harness.engine.url, autocommit=True) as looker,
        ThreadPoolExecutor() as pool,
    ):

        def are_blocked(count: int) -> bool:
            return looker.execute(blocked).fetchall() == [(count,)]

        store.append("s", say("old"))
        store.forget("s", now=True)
        holder.execute(f"SELECT FROM {harness.schema}.sessions FOR UPDATE")
        written = pool.submit(store.append, "s", say("new"))
        wait_until(lambda: are_blocked(1))
        forgot = pool.submit(other.forget, "s", now=True)
        wait_until(lambda: are_blocked(2))
        holder.commit()
        assert written.result(10).first == 2
        shown = ["new"] if forgot.result(10).messages == 0 else []
        assert texts(store.history("s")) == shown
        assert store.sessions() == (["s"] if shown else [])
        with holdfast.connect(harness.url, namespace="other") as copy:
            copy.load(list(store.export()))
            assert texts(copy.history("s")) == shown
