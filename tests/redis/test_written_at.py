"""When a session was written to, where a client of an earlier release writes as well: it notes no time."""

from __future__ import annotations

from datetime import timedelta

import redis

import holdfast
from holdfast.pytest_plugin import EngineFactory
from tests.contract.harness import say, texts
from tests.contract.test_forgetting_many import passed


def test_what_an_earlier_release_has_written_to_since_is_not_taken_for_old(
    redis_engine_factory: EngineFactory,
):
    engine = redis_engine_factory()
    with holdfast.connect(engine.url) as store, redis.Redis.from_url(engine.url) as raw:
        store.append("s", say("long ago"))
        [head] = [key for key in raw.keys("*:head") if raw.hget(key, "last") == b"1"]
        noted = raw.hget(head, "written")
        marked = passed()
        store.append("s", say("just now"))
        raw.hset(head, "written", noted)  # an append of an earlier release leaves it as it was
        receipt = store.forget(older_than=marked)
        assert (receipt.sessions, receipt.unknown) == ((), 1)
        assert texts(store.history("s")) == ["long ago", "just now"]
        store.append("s", say("again"))
        passed()
        assert store.forget(older_than=timedelta(0)).sessions == ("s",)
