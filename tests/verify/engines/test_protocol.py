"""What every engine can do, and that powers are told apart by isinstance."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.verify.engines import (
    KINDS,
    Engine,
    Killable,
    Pausable,
    Replicable,
    Restartable,
    find_engines,
    open_engine,
    start_engine,
)
from holdfast.verify.engines.configs import CONFIGS
from holdfast.verify.engines.sqlite import SqliteEngine

NAMED = [(kind, config) for kind in KINDS for config in CONFIGS[kind] if config != "cluster"]
SERVERS = ("redis", "valkey", "postgres", "chroma")


@pytest.mark.parametrize(("kind", "config"), NAMED)
def test_every_named_configuration_starts_stops_and_starts_again(kind: str, config: str) -> None:
    with start_engine(kind, config=config) as engine:
        assert isinstance(engine, Engine)
        assert engine.data_dir is not None
        url, home = engine.url, engine.data_dir.parent
        assert (engine.kind, engine.config, engine.provider) == (kind, config, "local")
        assert engine.version[0].isdigit()
        engine.stop()
        engine.stop()
        assert engine.start().url == url
    assert not home.exists()
    engine.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_has_the_powers_of_a_process(kind: str) -> None:
    engine = open_engine(kind)
    assert isinstance(engine, Killable)
    assert isinstance(engine, Pausable)
    assert isinstance(engine, Restartable)


@pytest.mark.parametrize(("kind", "can"), [("redis", True), ("postgres", True), ("chroma", False)])
def test_only_who_can_replicate_says_so(kind: str, can: bool) -> None:
    assert isinstance(open_engine(kind), Replicable) is can


def test_sqlite_has_no_process_and_does_not_claim_to(sqlite_engine: SqliteEngine) -> None:
    assert not isinstance(sqlite_engine, (Killable, Pausable, Restartable, Replicable))


def test_every_kind_is_found_here_with_version_and_place() -> None:
    found = [one for one in find_engines("local") if one.version]
    assert {one.kind for one in found} == set(KINDS)
    assert all(one.where and not one.how_to_get for one in found)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"kind": "mongo"}, "no engine 'mongo'; there are: redis, valkey"),
        ({"kind": "redis", "config": "aof"}, "no configuration 'aof'; there are: rdb-only"),
        ({"kind": "redis", "provider": "cloud"}, "no provider 'cloud'; there are: local"),
        ({"kind": "sqlite", "settings": {"a": 1}}, "set pragmas where you open it"),
    ],
)
def test_a_wrong_order_is_refused_with_what_there_is(wanted: dict[str, Any], says: str) -> None:
    kind = wanted.pop("kind")
    with pytest.raises(UsageError, match=says):
        start_engine(kind, **wanted)


def test_before_it_was_started_an_engine_has_no_place() -> None:
    engine = open_engine("redis")
    with pytest.raises(UsageError, match="was not started yet"):
        _ = engine.url
    with pytest.raises(UsageError, match="not open"):
        _ = engine.data_dir
    assert isinstance(engine, Restartable)
    with pytest.raises(UsageError, match="never started"):
        engine.restart()
    engine.close()
