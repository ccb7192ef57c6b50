"""Asking a Redis or Valkey: INFO, CONFIG GET, a bounded SCAN, and reads of our own keys only.

The connection is the backend's own (one server, behind sentinels, or a cluster), but nothing is
prepared on it: the backend loads scripts and tries WAITAOF with a write, and this never writes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.backends.redis import durability
from holdfast.backends.redis.address import Address, Server, read_address
from holdfast.backends.redis.driver import Driver, Link, Open, Shut, Steps
from holdfast.backends.redis.keys import SLOTS, Keys, slot_of
from holdfast.backends.redis.pool import Pool
from holdfast.commands import Settings
from holdfast.doctor import books, redis_members, redis_rules, ttl
from holdfast.doctor.ask_redis_members import ask as _ask
from holdfast.doctor.ask_redis_members import ask_cluster, ask_replicas, ask_sentinels
from holdfast.doctor.books import Books
from holdfast.doctor.budget import KEYS_MAX, RECORDS_MAX, SESSIONS_MAX, Budget
from holdfast.doctor.finding import Audit, Measure, joined, ordered
from holdfast.doctor.redis_members import Node
from holdfast.doctor.redis_rules import RedisSeen
from holdfast.doctor.storage import LOCAL, Storage, storage_of
from holdfast.doctor.ttl import Key, Sample
from holdfast.errors import EngineUnreachable
from holdfast.linux import listeners
from holdfast.model import Durability
from holdfast.secrets import SecretUrl

NODES_MAX: Final = 32
LOOKED_MAX: Final = 10 * KEYS_MAX
"""Keys that are passed over in the search for a sample, because they are our own."""
_NOT_ASKED: Final = "this node: the time for this audit was over"
LAYOUT: Final = 1
_SCAN_COUNT: Final = b"100"


def look(url: str, namespace: bytes, budget: Budget) -> Audit:
    """The audit of a server, or of every primary of a cluster."""
    address = read_address(Settings(SecretUrl(url), namespace, Durability.MEMORY))
    wait_s = budget.question_s
    address = replace(address, connect_timeout_s=wait_s, reply_timeout_s=wait_s)
    driver, pool = Driver(address), Pool(address)
    first = driver.run(pool.server_of(0 if address.cluster else None))
    if address.service:
        return _watched(driver, pool, budget, first)
    pool.is_cluster = address.cluster or driver.run(_is_cluster(first))
    return _whole(driver, pool, budget) if pool.is_cluster else _alone(driver, pool, budget, first)


def _alone(driver: Driver, pool: Pool, budget: Budget, server: Server) -> Audit:
    """One server, and who follows it."""
    names = driver.run(_names(pool, Keys(pool.address.namespace), server))
    return driver.run(_Look(pool.address, server, budget).steps(names))


def _watched(driver: Driver, pool: Pool, budget: Budget, server: Server) -> Audit:
    """A primary behind sentinels; where it is away, what they say is all there is."""
    try:
        found = _alone(driver, pool, budget, server)
        replicas = bool(found.topology)
    except EngineUnreachable as error:
        found, replicas = Audit("redis", str(server), unseen=(str(error),)), True
    seen = driver.run(ask_sentinels(pool.address, budget))
    opinion = redis_members.of_sentinels(seen, replicas=replicas)
    return found.with_more(opinion, redis_members.sentinel_lines(seen))


def _whole(driver: Driver, pool: Pool, budget: Budget) -> Audit:
    """Every primary of a cluster, with who follows it; a node that is away hides no other."""
    places = _primaries(driver, pool)
    names: list[bytes] | Exception
    try:
        names = driver.run(_names(pool, Keys(pool.address.namespace), places[0]))
    except EngineUnreachable as error:
        names = error
    looks = {server: _there(pool, names, server) for server in places[:NODES_MAX]}
    unseen = [Audit("redis", str(server), unseen=(_NOT_ASKED,)) for server in places[NODES_MAX:]]
    nodes = (_node(driver, pool.address, budget, *one) for one in looks.items())
    found = joined([*nodes, *unseen])
    members, state = _cluster(driver, places, budget)
    lines = redis_members.cluster_lines(members, state) if members else ()
    return found.with_more(redis_members.of_cluster(members, state), lines)


def _cluster(
    driver: Driver, places: Sequence[Server], budget: Budget
) -> tuple[tuple[Node, ...], str]:
    """The cluster by the word of the first primary that answers."""
    for server in places:
        with contextlib.suppress(EngineUnreachable):
            if not budget.is_spent:
                return driver.run(ask_cluster(server))
    return (), "unknown"


def _node(
    driver: Driver, address: Address, budget: Budget, server: Server, names: list[bytes] | Exception
) -> Audit:
    """One node of a cluster; one that is away, or came too late, hides nothing of the others."""
    if budget.is_spent:
        return Audit("redis", str(server), unseen=(_NOT_ASKED,))
    try:
        return driver.run(_Look(address, server, budget).steps(names))
    except EngineUnreachable as error:
        return Audit("redis", str(server), unseen=(str(error),))


def _is_cluster(server: Server) -> Steps[bool]:
    link = yield Open(server)
    [reply] = yield from _ask(link, [(b"INFO", b"cluster")])
    yield Shut(link)
    return not isinstance(reply, Exception) and b"cluster_enabled:1" in reply


def _primaries(driver: Driver, pool: Pool) -> list[Server]:
    """Every primary of a cluster; the node that was named, where no slots are served yet."""
    named = pool.address.seeds[0]
    try:
        driver.run(pool.server_of(0))
    except EngineUnreachable:
        return [named]
    found = {pool.known_server(slot) for slot in range(SLOTS)} - {None}
    return sorted((server for server in found if server), key=str) or [named]


def _names(pool: Pool, keys: Keys, place: Server) -> Steps[list[bytes] | Exception]:
    """Some sessions of our own store, from the node that has the index of them."""
    link = yield Open(pool.known_server(slot_of(keys.index)) or place)
    [names] = yield from _ask(link, [(b"ZRANGE", keys.index, b"0", b"%d" % (SESSIONS_MAX - 1))])
    yield Shut(link)
    found: list[bytes] | Exception = names
    return found


def _there(pool: Pool, names: list[bytes] | Exception, server: Server) -> list[bytes] | Exception:
    """Those whose records are on this node."""
    if not pool.is_cluster or isinstance(names, Exception):
        return names
    keys = Keys(pool.address.namespace)
    slots = {name: slot_of(keys.session(name)[0]) for name in names}
    return [name for name, slot in slots.items() if pool.known_server(slot) in (server, None)]


class _Look:
    """One look at one server."""

    def __init__(self, address: Address, server: Server, budget: Budget) -> None:
        self._address, self._server, self._budget = address, server, budget
        self._unseen: list[str] = []

    def steps(self, names: list[bytes] | Exception) -> Steps[Audit]:
        """Ask everything; what is forbidden is noted, what fails ends the look."""
        link = yield Open(self._server)
        try:
            info, config = yield from self._settings(link)
            replicas = yield from ask_replicas(info or {}, self._budget, self._unseen)
            sample = yield from self._sample(link)
            own_books = yield from self._books(link, names)
        finally:
            yield Shut(link)
        place = self._place(info or {}, config or {})
        seen = RedisSeen(config, info, sample, place, replicas)
        if seen.place is None and "dir" in (config or {}):
            self._unseen.append("the data directory: the server is not a process of this machine")
        return self._audit(seen, own_books)

    def _settings(self, link: Link) -> Steps[tuple[dict[str, str] | None, dict[str, str] | None]]:
        names = redis_rules.CONFIG
        questions = [(b"INFO",), *((b"CONFIG", b"GET", name.encode()) for name in names)]
        reply, *pairs = yield from _ask(link, questions)
        info = None if isinstance(reply, Exception) else durability.parse_info(reply)
        if info is None:
            self._unseen.append(f"INFO: {reply}")
        config: dict[str, str] = {}
        for name, pair in zip(names, pairs, strict=True):
            if isinstance(pair, Exception):
                self._unseen.append(f"CONFIG GET {name}: {pair}")
            elif pair:
                config[name] = pair[1].decode("utf-8", "replace")
        return info, config or None

    def _sample(self, link: Link) -> Steps[Sample | None]:
        """Keys that a bounded SCAN meets, with what they have left."""
        found: list[Key] = []
        cursor, complete = b"0", False
        looked = 0
        while not complete and len(found) < KEYS_MAX and looked < LOOKED_MAX:
            if self._budget.is_spent:
                break
            [page] = yield from _ask(link, [(b"SCAN", cursor, b"COUNT", _SCAN_COUNT)])
            if isinstance(page, Exception):
                self._unseen.append(f"keys and their times to live: {page}")
                return None
            cursor, names = page
            complete, looked = cursor == b"0", looked + len(names)
            theirs = [name for name in names if not ttl.is_holdfast_key(_text(name))]
            left = yield from _ask(link, [(b"PTTL", name) for name in theirs])
            for name, left_ms in zip(theirs, left, strict=True):
                if isinstance(left_ms, int) and left_ms >= -1:  # -2: it has gone meanwhile
                    found.append(Key(_text(name), left_ms))
        return Sample(tuple(found), complete)

    def _books(self, link: Link, names: list[bytes] | Exception) -> Steps[Books | None]:
        """A sample of our own store in this namespace; None where there is none."""
        if isinstance(names, Exception):
            self._unseen.append(f"records of holdfast: {names}")
        if isinstance(names, Exception) or not names:
            return None
        [clock] = yield from _ask(link, [(b"TIME",)])
        now_ms = time.time() * 1000 if isinstance(clock, Exception) else int(clock[0]) * 1000
        found = Books(LAYOUT, LAYOUT)
        for name in names:
            if self._budget.is_spent:
                self._unseen.append("more records of holdfast: the time for this audit was over")
                break
            yield from self._session(link, name, found, now_ms)
        return found

    def _session(self, link: Link, name: bytes, found: Books, now_ms: float) -> Steps[None]:
        head, log, _ = Keys(self._address.namespace).session(name)
        fields = (b"v", b"last", b"floor", b"state", b"exp")
        questions = [
            (b"MULTI",),
            (b"HMGET", head, *fields),
            (b"LLEN", log),
            (b"LRANGE", log, b"%d" % -RECORDS_MAX, b"-1"),
            (b"HMGET", log.removesuffix(b"log") + b"followed", b"upto", b"floor"),
            (b"EXEC",),
        ]
        *_, reply = yield from _ask(link, questions)
        if isinstance(reply, Exception) or not reply[0][1]:
            return  # moved meanwhile, or a name whose session never began
        (version, last, floor, state, expires), there, records, (upto, of_floor) = reply
        if version != b"1":
            found.schema = max(found.schema, int(version or 0))
            return
        end, gone = int(last), expires is not None and int(expires) <= now_ms
        if (
            state == b"live"
            and not gone
            and there != end - int(floor)
            and not (expires and not there)
        ):
            found.torn.append(f"{_text(name)!r} counts {end - int(floor)}, has {there}")
        found.leftovers += bool(gone and there)
        if there and not gone and upto is not None:
            found.count_lag(end, int(floor), int(upto), int(of_floor))
        found.read(name, enumerate(records, end - len(records) + 1))

    def _place(self, info: dict[str, str], config: dict[str, str]) -> Storage | None:
        """The data directory, where the server is proven to be a process of this machine."""
        pid, port = int(info.get("process_id", 0)), int(info.get("tcp_port", 0))
        if self._server.host not in LOCAL or "dir" not in config or not port:
            return None
        if port != self._server.port or pid not in listeners(port):
            return None
        return storage_of(Path(config["dir"]), pid)

    def _audit(self, seen: RedisSeen, own_books: Books | None) -> Audit:
        opinion = redis_rules.judge(seen)
        facts = _facts(seen)
        opinion.add(books.judge(own_books))
        if own_books is not None:
            facts |= own_books.facts()
        info = seen.info or {}
        lags = redis_rules.replica_lags(info)
        measures = [Measure("replica_lag_seconds", lag, name) for name, lag in lags.items()]
        if int(info.get("maxmemory", 0)):
            ratio = int(info["used_memory"]) / int(info["maxmemory"])
            measures.append(Measure("memory_used_ratio", ratio, str(self._server)))
        measures += own_books.measures(str(self._server)) if own_books is not None else []
        return Audit(
            engine="valkey" if info.get("server_name") == "valkey" else "redis",
            where=str(self._server),
            findings=ordered(opinion.findings),
            sound=opinion.sound(),
            facts=facts,
            unseen=_grouped(self._unseen),
            measures=tuple(measures),
            ack_durability=self._durability(seen),
            topology=tuple(_topology(seen, str(self._server))),
        )

    def _durability(self, seen: RedisSeen) -> Durability | None:
        """Without trying WAITAOF, which takes a write: it may be more, never less."""
        if seen.config is None and self._address.stated is None:
            return None
        known = durability.Seen(seen.config, seen.info)
        return durability.decide(known, Durability.DISK, self._address.stated).durability


def _topology(seen: RedisSeen, where: str) -> Iterator[str]:
    """The members in lines; none for a server that stands alone."""
    if seen.replicas:
        yield f"primary {where}"
        yield from redis_members.replica_lines(seen.replicas)


def _facts(seen: RedisSeen) -> dict[str, str]:
    info, config = seen.info or {}, seen.config or {}
    facts = {"version": info.get("valkey_version") or info.get("redis_version", "unknown")}
    facts |= {name: value or "''" for name, value in config.items()}
    facts |= {
        name: info[name]
        for name in ("used_memory_human", "role", "connected_slaves")
        if name in info
    }
    facts |= {name: value for name, value in info.items() if name.startswith("db")}
    if seen.sample is not None:
        which = "all" if seen.sample.complete else "a sample of"
        facts["keys looked at"] = f"{which} {len(seen.sample.keys)} that are not holdfast's"
        facts |= ttl.facts(seen.sample)
    return facts


def _grouped(unseen: Sequence[str]) -> tuple[str, ...]:
    """One sentence where CONFIG is forbidden as a whole."""
    denied = [words for words in unseen if words.startswith("CONFIG GET")]
    if len(denied) < len(redis_rules.CONFIG):
        return tuple(unseen)
    reason = denied[0].partition(": ")[2]
    others = [words for words in unseen if words not in denied]
    return (f"the configuration (appendonly, appendfsync, save, …): {reason}", *others)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
