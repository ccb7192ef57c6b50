"""A real cluster of three primaries: one slot a session, moved slots, names on another node."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import Durability, EngineUnreachable
from holdfast.backends.redis.address import read_address
from holdfast.backends.redis.driver import Driver
from holdfast.backends.redis.keys import Keys, slot_of
from holdfast.backends.redis.pool import Pool
from holdfast.backends.redis.statements import pack
from holdfast.commands import Settings
from holdfast.secrets import SecretUrl
from tests.contract.harness import AsyncApi, say, texts
from tests.contract.harness_redis import engine as shared_engine
from tests.waiting import wait_until

APIS = [holdfast.connect, AsyncApi]
StepRunner = Callable[..., Any]
names = st.binary(min_size=1, max_size=12) | st.sampled_from([b"a.b", b"a", b"b", b"%2E", b"{a}"])


@given(names, names, names, names)
def test_no_two_sessions_share_a_key_whatever_their_ids_contain(
    space: bytes, session: bytes, other_space: bytes, other: bytes
):
    mine = {Keys(space).index, *Keys(space).session(session)}
    theirs = {Keys(other_space).index, *Keys(other_space).session(other)}
    if (space, session) == (other_space, other):
        assert mine == theirs
    elif space != other_space:
        assert not mine & theirs
    else:
        assert mine & theirs == {Keys(space).index}


@given(names, names)
def test_all_keys_of_a_session_are_in_one_slot(space: bytes, session: bytes):
    keys = Keys(space)
    everything = {*keys.session(session), *keys.staged(session, b"0123")}
    assert len({slot_of(key) for key in everything}) == 1
    assert all(key.count(b"{") == key.count(b"}") == 1 for key in everything)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_a_command_carries_every_byte(words: list[bytes]):
    data = pack(words)
    lengths = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    assert data == b"*%d\r\n%b" % (len(words), lengths)


@pytest.fixture
def cluster() -> Iterator[Any]:
    engine = shared_engine("redis", "7", "cluster")
    for node in engine.nodes:
        node.call("FLUSHALL")
    yield engine
    restore(engine)


def test_what_waitaof_is_worth_is_not_concluded_from_a_write_that_went_elsewhere(cluster: Any):
    """Another thread forgets the way in that moment: which key a node has is then not known."""
    address = read_address(Settings(SecretUrl(cluster.url), b"default", Durability.DISK))
    pool, driver = Pool(address), Driver(address)
    driver.run(pool.prepare())
    probe = pool.known_server(slot_of(b"hf:{probe0}:probe"))
    link = driver.run(pool.borrow(next(one for one in pool._idle if one != probe)))
    pool.doubt()
    with pytest.raises(EngineUnreachable, match="which slots"):
        driver.run(pool._try_waitaof(link))
    driver.run(pool.give_back(link))
    driver.run(pool.close())


def restore(engine: Any) -> None:
    """Every slot where it was."""
    for node in engine.nodes:
        node.call("FLUSHALL")
    ids = [node.call("CLUSTER", "MYID") for node in engine.nodes]
    for slot in moved_slots:
        home = ids[min(slot * 3 // 16384, 2)]
        for node in engine.nodes:
            node.call("CLUSTER", "SETSLOT", str(slot), "NODE", home)
    moved_slots.clear()


moved_slots: set[int] = set()


@functools.cache
def session_at(third: int) -> str:
    """A session whose slot is in that third of the slots."""
    keys = Keys(b"default")
    return next(
        name
        for name in (f"session-{number}" for number in range(1000))
        if 5600 * third < slot_of(keys.session(name.encode())[0]) < 5600 * third + 5000
    )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_sessions_live_on_every_node_and_are_listed_together(
    cluster: Any, api: StepRunner, scheme: str
):
    url = cluster.url.replace("redis://", f"{scheme}://")
    with api(url) as store:
        wanted = sorted(f"s{number}" for number in range(40))
        for name in wanted:
            store.append(name, say(name), key="k")
        assert store.sessions() == wanted
    sizes = [node.call("DBSIZE") for node in cluster.nodes]
    assert all(sizes), "a node has nothing"
    assert sum(sizes) == 40 * 3 + 1


def test_any_node_of_a_list_leads_to_the_cluster(cluster: Any):
    port, password = cluster.nodes[2].port, cluster.nodes[2].password
    with holdfast.connect(f"redis+cluster://:{password}@127.0.0.1:1,127.0.0.1:{port}") as store:
        assert store.append("s", say("x")).first == 1


@pytest.mark.parametrize("api", APIS)
def test_a_node_that_knows_a_part_of_the_slots_is_not_the_only_one_asked(
    cluster: Any, api: StepRunner
):
    """A node may hear of another's slots last, and says that the cluster is well all the same."""
    name = session_at(2)
    slot = slot_of(Keys(b"default").session(name.encode())[0])
    first = cluster.nodes[0]
    said = []

    def is_known() -> bool:
        return any(start <= slot <= end for start, end, *_ in first.call("CLUSTER", "SLOTS"))

    def answered() -> bool:
        """Whether that node did not know the slot from before the store asked until after it."""
        if is_known():
            first.call("CLUSTER", "DELSLOTS", str(slot))
        with api(cluster.url) as store:
            said.append(texts(store.history(name)))
        return not is_known()

    with api(cluster.url) as store:
        store.append(name, say("there"))
    for node in cluster.nodes:
        node.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
    try:
        wait_until(answered)
        assert said == [["there"]] * len(said)
    finally:
        wait_until(is_known)
        for node in cluster.nodes:
            node.call("CONFIG", "SET", "cluster-require-full-coverage", "yes")


@pytest.mark.parametrize("api", APIS)
def test_a_slot_that_moved_is_followed(cluster: Any, api: StepRunner):
    name = session_at(0)
    slot = slot_of(Keys(b"default").session(name.encode())[0])
    with api(cluster.url) as store:
        store.append("warm", say("x"))
        move(cluster, slot, cluster.nodes[1])
        assert store.append(name, say("a"), key="k").first == 1
        assert texts(store.history(name)) == ["a"]
        assert store.sessions(prefix=name) == [name]
        assert cluster.nodes[1].call("EXISTS", f"hf:{{default.{name}}}:head") == 1


@pytest.mark.parametrize("api", APIS)
def test_a_slot_on_its_way_is_asked_for_at_its_new_place(cluster: Any, api: StepRunner):
    name = session_at(0)
    slot = slot_of(Keys(b"default").session(name.encode())[0])
    here, there = cluster.nodes[:2]
    moved_slots.add(slot)
    keys = [f"hf:{{default.{name}}}:{part}" for part in ("head", "log", "keys")]
    with api(cluster.url) as store:
        store.append(name, say("a"), key="k")
        there.call("CLUSTER", "SETSLOT", str(slot), "IMPORTING", here.call("CLUSTER", "MYID"))
        here.call("CLUSTER", "SETSLOT", str(slot), "MIGRATING", there.call("CLUSTER", "MYID"))
        here.call(
            "MIGRATE", "127.0.0.1", str(there.port), keys[0], "0", "5000", "AUTH", there.password
        )
        with pytest.raises(EngineUnreachable, match="is moving this session"):
            store.append(name, say("lost"))
        here.call(
            "MIGRATE",
            "127.0.0.1",
            str(there.port),
            "",
            "0",
            "5000",
            "AUTH",
            there.password,
            "KEYS",
            *keys[1:],
        )
        assert store.append(name, say("b"), key="l").first == 2
        assert texts(store.history(name)) == ["a", "b"]
    assert here.call("CLUSTER", "COUNTKEYSINSLOT", str(slot)) == 0


def move(cluster: Any, slot: int, target: Any) -> None:
    moved_slots.add(slot)
    identity = target.call("CLUSTER", "MYID")
    for node in (target, *cluster.nodes):
        node.call("CLUSTER", "SETSLOT", str(slot), "NODE", identity)


def test_a_name_without_a_session_is_not_listed(cluster: Any):
    """The name is written first: a crash in between leaves one too many, never one too few."""
    with holdfast.connect(cluster.url) as store:
        store.append("real", say("x"))
        index = Keys(b"default").index
        home = next(
            node
            for node in cluster.nodes
            if not is_moved(node, "ZADD", index.decode(), "0", "ghost")
        )
        assert home.call("ZCARD", index.decode()) == 2
        assert store.sessions() == ["real"]
        assert len(list(store.export())) == 4


def is_moved(node: Any, *words: str) -> bool:
    try:
        node.call(*words)
    except OSError as error:
        return str(error).startswith("MOVED")
    return False


@pytest.mark.parametrize("api", APIS)
def test_long_listings_and_large_loads_go_in_pieces(cluster: Any, api: StepRunner):
    with api(cluster.url) as store, api(cluster.url, namespace="copy") as copy:
        for number in range(0, 2500, 500):
            store.append("large", [say(f"{n}") for n in range(number, number + 500)])
        for number in range(1100):
            store.append("keys", say("x"), key=str(number))
        for number in range(520):
            store.append(f"s{number:04}", say("x"))
        wanted = ["keys", "large", *(f"s{number:04}" for number in range(520))]
        assert store.sessions(limit=1000) == wanted
        assert store.sessions(limit=510) == wanted[:510]
        assert copy.load(store.export(prefix="large")).messages == 2500
        copy.load(store.export(prefix="keys"))
        assert copy.history("large") == store.history("large")
        assert copy.append("keys", say("x"), key="1099").repeated
        assert list(copy.export(prefix="keys")) == list(store.export(prefix="keys"))


PARTS = ("head", "log", "keys")


def begin_to_move(cluster: Any, name: str) -> tuple[Any, Any]:
    """The slot of a session is under way from one node to another; its keys are still at the first."""
    slot = slot_of(Keys(b"default").session(name.encode())[0])
    here, there = cluster.nodes[:2]
    moved_slots.add(slot)
    there.call("CLUSTER", "SETSLOT", str(slot), "IMPORTING", here.call("CLUSTER", "MYID"))
    here.call("CLUSTER", "SETSLOT", str(slot), "MIGRATING", there.call("CLUSTER", "MYID"))
    return here, there


def carry_over(here: Any, there: Any, name: str, *parts: str) -> None:
    keys = [f"hf:{{default.{name}}}:{part}" for part in parts]
    here.call(
        "MIGRATE",
        "127.0.0.1",
        str(there.port),
        "",
        "0",
        "5000",
        "AUTH",
        there.password,
        "KEYS",
        *keys,
    )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("ttl_s", [None, 3600], ids=["for ever", "expiring"])
@pytest.mark.parametrize("moved", [False, True], ids=["still here", "already there"])
def test_a_session_can_be_used_while_its_slot_moves(
    cluster: Any, api: StepRunner, ttl_s: float | None, *, moved: bool
):
    """One that has used no key, has no index and no summaries: those parts are on neither node."""
    name = session_at(0)
    with api(cluster.url, ttl_s=ttl_s) as store:
        store.append(name, say("a"))
        here, there = begin_to_move(cluster, name)
        if moved:
            carry_over(here, there, name, "head", "log")
        store.append(name, say("b"))
        assert texts(store.history(name)) == ["a", "b"]
        assert texts(store.history(name, before=2)) == ["a"]
        assert store.stat(name).count == 2
        assert store.sessions() == [name]
        store.rewrite(name, say("c"))
        assert texts(store.history(name)) == ["c"]
        assert store.append(name, say("d"), expect=3).first == 4


@pytest.mark.parametrize("ttl_s", [None, 3600], ids=["for ever", "expiring"])
@pytest.mark.parametrize("operation", ["append", "rewrite", "forget"])
def test_what_is_done_while_a_slot_moves_is_done_whole_or_not_at_all(
    cluster: Any, operation: str, ttl_s: float | None
):
    name = session_at(0)
    with holdfast.connect(cluster.url, ttl_s=ttl_s) as store:
        store.append(name, say("a"), key="k")
        begin_to_move(cluster, name)
        before, after = ["a"], {"append": ["a", "b"], "rewrite": ["b"], "forget": []}[operation]
        with contextlib.suppress(EngineUnreachable):
            if operation == "forget":
                store.forget(name)
            else:
                getattr(store, operation)(name, say("b"))
            before = after
        found = store.history(name)
        assert texts(found) == before
