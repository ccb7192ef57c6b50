"""A listing costs what is alive, and a session that is alive is never missing from it."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import SessionState
from holdfast.backends.redis.keys import Keys
from holdfast.backends.redis.listing import PAGE
from holdfast.backends.redis.statements import statement_for
from holdfast.commands import Append, Names
from tests.contract.harness import AsyncApi, say
from tests.contract.harness_redis import ClusterHarness, RedisHarness
from tests.waiting import wait_until

APIS: dict[str, Callable[..., Any]] = {"sync": holdfast.connect, "async": AsyncApi}
DEAD = PAGE + 100  # a listing that meets them goes on to a second page


@pytest.fixture(params=[RedisHarness, ClusterHarness], ids=["server", "cluster"])
def harness(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    return request.param(tmp_path)


@pytest.fixture(params=APIS)
def store(request: pytest.FixtureRequest, harness: Any) -> Iterator[Any]:
    with APIS[request.param](harness.url) as store:
        yield store


def commands(harness: Any) -> int:
    """How many commands the nodes have carried out, those inside scripts among them."""
    stats = [str(node.call("INFO", "commandstats")) for node in harness.nodes()]
    return sum(int(calls) for text in stats for calls in re.findall(r":calls=(\d+)", text))


def cost(harness: Any, listing: Callable[[], Any]) -> int:
    before = commands(harness)
    idle = commands(harness) - before
    before = commands(harness)
    listing()
    return commands(harness) - before - idle


def test_a_listing_does_not_pay_for_the_dead(harness: Any, store: Any):
    alive = [f"alive-{number}" for number in range(5)]
    for name in alive:
        store.append(name, say("x"))
    assert store.sessions() == alive
    alone = cost(harness, store.sessions)
    for number in range(DEAD):
        store.append(f"dead-{number:05}", say("x"))
        store.forget(f"dead-{number:05}")
    assert store.sessions() == alive  # this one meets them, once
    assert cost(harness, store.sessions) <= alone + 10, f"{DEAD} dead sessions, 5 alive"
    assert len([line for line in store.export() if '"state"' in line]) == DEAD + 5


def test_a_small_page_looks_at_no_more_than_it_needs(harness: Any, store: Any):
    for number in range(300):
        store.append(f"s{number:03}", say("x"))
    store.sessions(limit=1)
    assert cost(harness, lambda: store.sessions(limit=1)) < 30


@pytest.mark.parametrize("how", ["forgotten", "expired"])
@pytest.mark.parametrize("again", ["append", "rewrite", "key", "expect"])
def test_a_session_that_begins_anew_is_listed_anew(store: Any, how: str, again: str):
    store.append("s", say("x"), ttl_s=0.05 if how == "expired" else None)
    if how == "forgotten":
        store.forget("s")
    wait_until(lambda: store.stat("s").state is SessionState(how))
    for _ in range(2):
        assert store.sessions() == []
        assert store.stat("s").state is SessionState(how)
    if again == "rewrite" and how == "expired":
        return  # it keeps the session's own time, which is over before anybody has looked
    if again == "rewrite":
        ack = store.rewrite("s", say("y"))
    else:
        settings: dict[str, Any] = {"key": {"key": "k"}, "expect": {"expect": 0}}
        ack = store.append("s", say("y"), ttl_s=None, **settings.get(again, {}))
    assert ack.first == 2
    assert store.sessions() == ["s"]
    assert store.sessions() == ["s"]
    store.forget("s")
    assert store.sessions() == []


def test_names_of_an_earlier_release_are_all_in_one_index(harness: Any, store: Any):
    """Dead names stood beside those alive; a listing is right before and after it has moved them."""
    store.append("alive", say("x"))
    store.append("dead", say("x"))
    store.forget("dead")
    keys = Keys(b"default")
    with harness._client(keys.index) as client:
        assert client.zrange(keys.index, 0, -1) == [b"alive", b"dead"]
        assert store.sessions() == ["alive"]
        assert client.zrange(keys.index, 0, -1) == [b"alive"]
    lines = [line for line in store.export() if '"state"' in line]
    assert ['"alive"' in line for line in lines] == [True, False]


@pytest.mark.parametrize("name", ["new", "newer", "torn", "out", "gone", "doubt", "conflict"])
def test_a_session_may_be_called_like_an_answer_of_ours(harness: Any, store: Any, name: str):
    store.append(name, say("x"))
    assert store.sessions() == [name]
    keys = Keys(b"default")
    with harness._client(keys.index) as client:
        assert client.zrange(keys.index, 0, -1) == [name.encode()]


class Crash(BaseException):
    """The process ends here."""


class Stepper:
    """An operation of a client of its own, carried out as far as the test says."""

    def __init__(self, url: str) -> None:
        self.store = holdfast.connect(url)
        self._backend: Any = self.store._backend
        self._steps: Any = None
        self._ask: Any = None

    def append(self, name: str) -> None:
        command = Append(name.encode(), (b"{}",))
        self._begin(self._backend._shared.engine.carry([statement_for(command, Keys(b"default"))]))

    def listing(self, name: str) -> None:
        self._begin(self._backend._shared.engine.names(Names(name.encode(), None, 10)))

    def go(self, steps: int) -> bool:
        """Do so many steps; whether it ended before."""
        for _ in range(steps):
            if self._ask is None:
                return True
            try:
                answer = self._backend._driver.run(self._one(self._ask))
            except Exception as error:  # noqa: BLE001 - the steps decide
                self._next(self._steps.throw, error)
            else:
                self._next(self._steps.send, answer)
        return False

    def crash(self) -> None:
        """Do no more but close the connection, as the end of a process does."""
        if self._ask is not None:
            with contextlib.suppress(Crash):
                self._next(self._steps.throw, Crash())
                self.go(STEPS_MAX)
        self._ask = None

    def _begin(self, steps: Any) -> None:
        self._steps = steps
        self._next(next, steps)

    def _next(self, how: Callable[[Any], Any], what: Any) -> None:
        try:
            self._ask = how(what)
        except StopIteration:
            self._ask = None

    def _one(self, ask: Any) -> Any:
        return (yield ask)


STEPS_MAX = 100


@pytest.mark.parametrize("ends", ["both go on", "first crashes", "second crashes"])
@pytest.mark.parametrize("first", ["append", "listing"])
def test_a_live_session_is_listed_however_the_steps_fall(harness: Any, first: str, ends: str):
    """An append and a listing, each cut at every step by the other; a third client in between."""
    one, two, third = (Stepper(harness.url) for _ in range(3))
    second = "listing" if first == "append" else "append"
    others = list(itertools.product((True, False), repeat=2))
    missing: list[str] = []
    done: list[tuple[bool, bool]] = []
    for at in itertools.count():
        for inner_at in itertools.count():
            done.clear()
            for unlisted, beside in others:
                name = f"{at}-{inner_at}-{unlisted}-{beside}."
                third.store.append(name, say("x"))
                third.store.forget(name)
                if unlisted:
                    third.store.sessions(prefix=name)
                getattr(one, first)(name)
                over = one.go(at)
                getattr(two, second)(name)
                done.append((over, two.go(inner_at)))
                if beside:
                    third.store.sessions(prefix=name)
                one.crash() if ends == "first crashes" else one.go(STEPS_MAX)
                two.crash() if ends == "second crashes" else two.go(STEPS_MAX)
                if third.store.stat(name).state is SessionState.LIVE:
                    found = [third.store.sessions(prefix=name) for _ in range(2)]
                    missing += [name] * (found != [[name], [name]])
            if all(inner for _, inner in done):
                break
        if all(outer for outer, _ in done):
            break
    for client in (one, two, third):
        client.store.close()
    assert at > 5
    assert missing == []
