"""The suite's tests that need an engine with more: each catches the store that breaks its promise."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Target
from holdfast.verify.suite import durable, expiring

WEEK_S = 7 * 24 * 3600.0


class Turns:
    """A list of turns in Redis; with a time to live if it is given one."""

    def __init__(self, url: str, ttl_s: int | None = None) -> None:
        self.client = redis.Redis.from_url(url)
        self.ttl_s = ttl_s

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        with self.client.pipeline() as both:
            both.rpush(session, *map(json.dumps, messages))
            if self.ttl_s:
                both.expire(session, self.ttl_s)
            both.execute()

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        return [json.loads(turn) for turn in self.client.lrange(session, -(limit or 0), -1)]

    def forget(self, session: str) -> None:
        self.client.delete(session)

    def close(self) -> None:
        self.client.close()


@pytest.mark.usefixtures("can_cut")
def test_a_policy_that_syncs_after_the_ack_loses_to_a_power_cut(
    redis_engine_factory: EngineFactory,
):
    engine = redis_engine_factory(config="aof-everysec", power="best")
    target = Target(open=lambda: Turns(engine.url), engine=engine)
    durable.test_messages_survive_sigkill_of_the_engine(target)
    with pytest.raises(pytest.fail.Exception, match=r"durable: (lost|rollback)"):
        durable.test_messages_survive_a_power_cut(target)


def test_a_memory_of_five_minutes_is_no_memory_of_a_week(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(clock=True)
    target = Target(open=lambda: Turns(engine.url, 300), engine=engine, ttl_s=WEEK_S)
    with pytest.raises(pytest.fail.Exception, match="after 6/7 of its time it has"):
        expiring.test_a_long_time_to_live_passes_on_the_clock_of_the_engine(target)


def test_a_memory_that_never_ends_is_no_memory_of_a_week(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(clock=True)
    target = Target(open=lambda: Turns(engine.url), engine=engine, ttl_s=WEEK_S)
    with pytest.raises(pytest.fail.Exception, match="are still there"):
        expiring.test_a_long_time_to_live_passes_on_the_clock_of_the_engine(target)
