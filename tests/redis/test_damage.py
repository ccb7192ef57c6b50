"""A session that lost part of its data hides no other one: it is named, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Damaged, EngineFull, SessionState, StoredDataError
from holdfast.cli import main
from holdfast.verify.engines.drivers import redis_client
from tests.contract.harness import AsyncApi, say, texts
from tests.contract.harness_redis import RedisHarness

APIS: dict[str, Callable[..., Any]] = {"sync": holdfast.connect, "async": AsyncApi}


@pytest.fixture
def harness(tmp_path: Path) -> RedisHarness:
    return RedisHarness(tmp_path)


@pytest.fixture(params=APIS)
def store(request: pytest.FixtureRequest, harness: RedisHarness) -> Iterator[Any]:
    with APIS[request.param](harness.url) as store:
        for name in ("a", "b", "c", "d"):
            store.append(name, [say("one"), say("two"), say("three")])
        yield store


def damage(harness: RedisHarness) -> None:
    """Another program took a message of one; a later release wrote another."""
    harness.engine.call("LPOP", "hf:{default.b}:log")
    harness.engine.call("HSET", "hf:{default.c}:head", "v", "99")


def read_all(store: Any) -> tuple[list[str], StoredDataError | None]:
    """The lines of an export up to its end or its error. The async one is read to its end first."""
    lines: list[str] = []
    source = store.store.export() if isinstance(store, AsyncApi) else None
    if source is None:
        try:
            lines.extend(store.export())
        except StoredDataError as error:
            return lines, error
        return lines, None

    async def collect() -> StoredDataError | None:
        try:
            async for line in source:
                lines.append(line)  # noqa: PERF401 - those before an error count
        except StoredDataError as error:
            return error
        return None

    return lines, store._run(collect())


def test_an_export_has_every_session_that_can_be_read_and_names_the_others(
    harness: RedisHarness, store: Any
):
    damage(harness)
    lines, error = read_all(store)
    assert isinstance(error, Damaged)
    assert "2 session(s)" in str(error)
    assert "'b'" in str(error)
    assert "2 of its 3 messages" in str(error)
    assert "'c'" in str(error)
    with APIS["sync"](harness.url, namespace="restored") as restored:
        assert restored.load(lines).sessions == 2
        assert restored.sessions() == ["a", "d"]
        assert texts(restored.history("d")) == ["one", "two", "three"]


def test_a_listing_shows_what_it_cannot_look_into(harness: RedisHarness, store: Any):
    damage(harness)
    assert store.sessions() == ["a", "b", "c", "d"]


HEADS = {
    "state": ("", "lixe", "never"),
    "last": ("", "abc", "-1", "nan", "1e400", "2.5", "4294967296"),
    "floor": ("abc", "-1", "nan", "4"),
    "bytes": ("abc", "-1", "inf"),
    "ttl": ("", "nan", "-5"),
    "exp": ("", "nan", "99999999999999999999"),
}


def test_a_head_that_nobody_wrote_is_said_and_nothing_is_dropped_for_it(
    harness: RedisHarness, store: Any
):
    for field, values in HEADS.items():
        for value in values:
            before = harness.engine.call("HGET", "hf:{default.b}:head", field)
            harness.engine.call("HSET", "hf:{default.b}:head", field, value)
            for work in (
                lambda: store.history("b"),
                lambda: store.history("b", after=0),
                lambda: store.stat("b"),
                lambda: store.append("b", say("four")),
                lambda: store.rewrite("b", say("four")),
            ):
                with pytest.raises(Damaged):
                    work()
            assert isinstance(read_all(store)[1], Damaged)
            assert store.sessions() == ["a", "b", "c", "d"]
            if before is None:
                harness.engine.call("HDEL", "hf:{default.b}:head", field)
            else:
                harness.engine.call("HSET", "hf:{default.b}:head", field, before)
            assert texts(store.history("b")) == ["one", "two", "three"], (field, value)


@pytest.mark.parametrize("last", ["abc", "3"])
def test_what_is_damaged_can_be_forgotten_and_gives_no_number_twice(
    harness: RedisHarness, store: Any, last: str
):
    harness.engine.call("HSET", "hf:{default.b}:head", "state", "lixe", "last", last)
    store.forget("b")
    assert store.history("b").state is SessionState.FORGOTTEN
    assert harness.engine.call("EXISTS", "hf:{default.b}:log") == 0
    if last == "3":
        assert store.append("b", say("four")).first == 4
    else:  # nobody knows which numbers it gave
        with pytest.raises(EngineFull):
            store.append("b", say("four"))


def test_a_used_key_that_nobody_wrote_is_said(harness: RedisHarness, store: Any):
    store.append("b", say("four"), key="k")
    with redis_client(harness.url, decode=False) as client:
        [digest] = client.hkeys("hf:{default.b}:keys")
        client.hset("hf:{default.b}:keys", digest, "junk")
    with pytest.raises(Damaged):
        store.append("b", say("four"), key="k")
    assert isinstance(read_all(store)[1], Damaged)


@pytest.mark.usefixtures("store")
def test_the_command_keeps_the_file_and_fails(harness: RedisHarness, tmp_path: Path):
    damage(harness)
    file = tmp_path / "export.jsonl"
    result = CliRunner().invoke(main, ["export", "--store", harness.url, "-o", str(file)])
    assert result.exit_code != 0
    assert "'b'" in result.output
    with APIS["sync"](harness.url, namespace="restored") as restored:
        assert restored.load(file.read_text().splitlines()).sessions == 2


@pytest.mark.parametrize("ttl_s", [None, 7200.0], ids=["for ever", "longer"])
def test_summaries_that_the_engine_let_expire_stay_gone_when_its_clock_is_set_back(
    harness: RedisHarness, store: Any, ttl_s: float | None
):
    """The engine removes what has expired key by key: their log may be gone, their session there."""
    store.append("u", [say(f"turn {number}") for number in range(30)], ttl_s=3600)
    assert store.summarize("u", keep=10) is not None
    assert harness.engine.call("DEL", "hf:{default.u}:summaries:log") == 1
    store.append("u", say("more"), ttl_s=ttl_s)
    assert store.summaries("u").state is SessionState.EXPIRED
    assert store.summarize("u", keep=10) is not None
    assert len(store.summaries("u")) == 1
