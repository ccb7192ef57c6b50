"""An engine comes up on data that were made elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.redis import RedisEngine


def test_an_engine_comes_up_on_other_data_and_not_while_it_runs(tmp_path: Path):
    with start_engine("redis", storage=tmp_path) as engine:
        assert isinstance(engine, RedisEngine)
        engine.call("SET", "k", "mine")
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(UsageError, match="runs"):
            engine.adopt(other)
        url = engine.url
        engine.kill()
        engine.adopt(other)
        engine.start()
        assert engine.call("GET", "k") is None
        assert engine.url == url
        assert not other.exists()
