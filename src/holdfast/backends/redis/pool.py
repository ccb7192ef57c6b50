"""Which engine to talk to, and connections to it: one server, behind sentinels, or a cluster.

Everything here yields `Ask`s and never waits itself, so the sync and the async API share it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.backends.redis import durability, sentinels
from holdfast.backends.redis.address import Address, Server
from holdfast.backends.redis.driver import Fresh, Link, Open, Shut, Steps, talk
from holdfast.backends.redis.durability import Assessment, Seen, Waitaof
from holdfast.backends.redis.errors import BACKEND, Lost, code_of, mapped
from holdfast.backends.redis.keys import SLOTS, slot_of
from holdfast.backends.redis.scripts import ALL
from holdfast.backends.redis.statements import pack
from holdfast.errors import EngineUnreachable, HoldfastError, Refused
from holdfast.model import Durability

RECHECK_S: Final = 1.0
"""How old a look at the engine may be when a write is sent. Whether it has an append-only file, and
when it syncs that, is seen with each write."""
RECHECK_LOW_S: Final = 0.1
"""The same of a look that showed too little: after a failover replicas come one by one."""
AVOID_S: Final = 30.0
"""So long a sentinel that did not answer is left alone while most others do."""
SYNC_MS_MAX: Final = 3000
AT_ONCE_MS: Final = 300


class Pool:
    """Knows where each session lives, and lends checked connections to there."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_cluster = address.cluster
        self.may_promote = bool(address.service)
        """Whether a replica may become the primary by itself."""
        self._idle: dict[Server, list[Link]] = {}
        self._slots: list[Server | None] | None = None
        self._primary: Server | None = None
        self._closed = False
        self._worth: dict[tuple[Server, str], Waitaof] = {}
        self._view: tuple[float, Server, int] | None = None
        """When sentinels were last asked, the primary that they named, and how many may replace it."""
        self._silent_s: dict[Server, float] = {}
        """When a sentinel did not answer: one that hangs would hold up each look at all of them."""

    @property
    def has_failover(self) -> bool:
        """Whether another engine may become the primary: then it is looked for again."""
        return self.is_cluster or bool(self.address.service)

    def known_server(self, slot: int | None) -> Server | None:
        """Where that slot was last seen; without asking anybody."""
        if self.is_cluster:
            slots = self._slots  # another thread may forget them at any moment
            return None if slots is None or slot is None else slots[slot]
        return self._primary

    def server_of(self, slot: int | None) -> Steps[Server]:
        """The engine that serves a slot; asks for the way if it is not known."""
        found = self.known_server(slot)
        if found is None:
            found = yield from self._find_way(slot)
        if found is None:
            raise EngineUnreachable(
                f"no node of the cluster serves slot {slot} now; nothing was written. Try again",
                backend=BACKEND,
            )
        return found

    def doubt(self) -> None:
        """Forget the way: the primary does not answer, or is no longer one."""
        if self.has_failover:
            self._slots = self._primary = self._view = None

    def prepare(self) -> Steps[list[Assessment]]:
        """Find the way, and what every primary keeps."""
        yield from self._find_way()
        if self._primary is not None:
            assessment = yield from self._prepare_one(self._primary)
            if not self.is_cluster:
                return [assessment]
        found: list[Assessment] = []
        for server in (yield from self.primaries()):
            assessment = yield from self._prepare_one(server)
            found.append(assessment)
        return found

    def primaries(self) -> Steps[list[Server]]:
        """Every engine that serves a slot; where there are no slots, the one."""
        if not self.is_cluster:
            return [(yield from self.server_of(None))]
        slots = self._slots or (yield from self._find_slots())
        return sorted(set(filter(None, slots)), key=str)

    def borrow(self, server: Server) -> Steps[Link]:
        """A connection that works, to an engine that is a primary; nothing of ours was sent yet."""
        link = yield from self._idle_link(server)
        if link is None:
            link = yield Open(server)
        try:
            if time.monotonic() - link.checked_s > self._good_for_s(link):
                yield from self._check(link)
        except HoldfastError:
            yield Shut(link)
            raise
        return link

    def give_back(self, link: Link) -> Steps[None]:
        """Keep a connection for the next one who needs it."""
        if self._closed:
            yield Shut(link)
        else:
            self._idle.setdefault(link.server, []).append(link)

    def close(self) -> Steps[None]:
        """Close idle connections now, lent ones when they come back."""
        self._closed = True
        for links in self._idle.values():
            while links:
                yield Shut(links.pop(), gently=True)

    def _idle_link(self, server: Server) -> Steps[Link | None]:
        links = self._idle.setdefault(server, [])
        while True:
            try:
                link = links.pop()
            except IndexError:
                return None
            if (yield Fresh(link)):
                return link
            yield Shut(link)

    def _prepare_one(self, server: Server) -> Steps[Assessment]:
        """What one engine keeps; it knows our scripts afterwards, which spares a trip later."""
        link = yield from self.borrow(server)
        yield from _ask(link, [(b"SCRIPT", b"LOAD", script.source) for script in ALL])
        yield from self.give_back(link)
        return link.assessment or Assessment(Durability.MEMORY)

    def _check(self, link: Link) -> Steps[None]:
        """What the engine says of itself now; its configuration may have changed."""
        questions = [*durability.QUESTIONS]
        if not link.checked_s:
            questions.append(durability.PROBE)
        replies = yield from _ask(link, questions)
        if not link.checked_s:
            link.has_waitaof = isinstance(replies.pop(), list)
        seen = durability.seen_from(replies)
        self._check_role(link, seen.info or {})
        require, stated = self.address.require, self.address.stated
        if require >= Durability.REPLICA and self.has_failover:
            seen = replace(seen, promotable=(yield from self._promotable(link)))
        link.assessment = durability.decide(seen, require, stated)
        if link.assessment.durability < require and link.has_waitaof:
            waitaof = yield from self._worth_of_waitaof(link, seen)
            seen = replace(seen, waitaof=waitaof)
            link.assessment = durability.decide(seen, require, stated)
        link.seen, link.checked_s = seen, time.monotonic()
        link.recheck, link.unchanged = _packed(durability.recheck(seen)), None
        if link.assessment.wait_replicas:
            link.fence = pack(durability.fence(seen, self._key_at(link.server)))

    def _good_for_s(self, link: Link) -> float:
        found = link.assessment
        is_low = found is not None and found.durability < self.address.require
        return RECHECK_LOW_S if is_low and self.has_failover else RECHECK_S

    def _promotable(self, link: Link) -> Steps[int]:
        """How many replicas may take the place of this primary; an error if it is none any more."""
        if self.is_cluster:
            [slots] = yield from _ask(link, [(b"CLUSTER", b"SLOTS")])
            return max(
                (len(to) for _, server, to in self._shards(slots) if server == link.server),
                default=0,
            )
        view = self._view  # another thread may forget it at any moment
        if view is None or time.monotonic() - view[0] > self._good_for_s(link):
            yield from self._find_primary()
            view = self._view
        if view is None or view[1] != link.server:
            self.doubt()
            raise EngineUnreachable(
                f"{link.server} is no longer the primary; nothing was written. Try again",
                backend=BACKEND,
            )
        return view[2]

    def _worth_of_waitaof(self, link: Link, seen: Seen) -> Steps[Waitaof]:
        """Found out once for every start of an engine."""
        if not durability.may_wait(seen):
            return Waitaof.NONE
        if durability.syncs_always(seen):
            return Waitaof.TRUE
        start = (link.server, (seen.info or {}).get("run_id", ""))
        if start not in self._worth:
            self._worth[start] = yield from self._try_waitaof(link)
        return self._worth[start]

    def _try_waitaof(self, link: Link) -> Steps[Waitaof]:
        """Under everysec there is one sync a second, so of two confirmations at once one is a lie."""
        write = (b"SET", self._key_at(link.server), b"", b"PX", b"1000")
        waits = [(b"WAITAOF", b"1", b"0", b"%d" % time_ms) for time_ms in (SYNC_MS_MAX, AT_ONCE_MS)]
        # Each in a trip of its own: sent together with the write, WAITAOF looks before it lies.
        [wrote] = yield from _ask(link, [write])
        if code_of(wrote) in {"MOVED", "ASK"}:  # without a write there is nothing to confirm
            self.doubt()
            words = f"it is not known now which slots {link.server} serves; nothing was written. Try again"
            raise EngineUnreachable(words, backend=BACKEND)
        [first] = yield from _ask(link, [waits[0]])
        yield from _ask(link, [write])
        [second] = yield from _ask(link, [waits[1]])
        if not isinstance(first, list) or not isinstance(second, list) or not first[0]:
            return Waitaof.NONE
        return Waitaof.EARLY if second[0] else Waitaof.TRUE

    def _key_at(self, server: Server) -> bytes:
        """A key of ours that this engine serves."""
        keys = (b"hf:{probe%d}:probe" % number for number in range(SLOTS))
        if not self.is_cluster:
            return next(keys)
        return next(key for key in keys if self.known_server(slot_of(key)) in {server, None})

    def _check_role(self, link: Link, info: Mapping[str, str]) -> None:
        if info.get("cluster_enabled") == "1" and not self.is_cluster:
            self.is_cluster = True
        if info.get("loading", "0") != "0":
            raise EngineUnreachable(
                f"{link.server} is still loading its data; nothing was written. Try again",
                backend=BACKEND,
            )
        if info.get("role", "master") != "master":
            self.doubt()
            kind = EngineUnreachable if self.has_failover else Refused
            raise kind(
                f"{link.server} is a replica and takes no writes; nothing was written. "
                "Connect to the primary, or through Sentinel",
                backend=BACKEND,
            )

    def _find_way(self, slot: int | None = None) -> Steps[Server | None]:
        """Who serves that slot, as was found now: another thread may forget it again at once."""
        if self.is_cluster:
            slots = yield from self._find_slots()
            return None if slot is None else slots[slot]
        if self.address.service:
            return (yield from self._find_primary())
        self._primary = self.address.seeds[0]
        return self._primary

    def _find_primary(self) -> Steps[Server]:
        """Of what sentinels say, the newest: one that is cut off from the others may not know it."""
        name = self.address.service.encode()
        questions = [(b"SENTINEL", b"MASTER", name), (b"SENTINEL", b"REPLICAS", name)]
        views: list[tuple[int, Server, int]] = []
        failed: HoldfastError | None = None
        most = len(self.address.seeds) // 2 + 1
        avoided = {one for one, at_s in self._silent_s.items() if time.monotonic() < at_s + AVOID_S}
        for server in sorted(self.address.seeds, key=avoided.__contains__):
            if server in avoided and len(views) >= most:
                break
            try:
                link = yield Open(server, sentinel=True)
                answers = yield from _ask(link, questions)
                yield Shut(link)
            except HoldfastError as error:
                failed = error
                self._silent_s[server] = time.monotonic()
                continue
            said = sentinels.understood(answers)
            if isinstance(said, Exception):
                failed = mapped(said, "connect", writes=False)
            else:
                views.append(said)
        if len(views) < (most if self.address.require >= Durability.REPLICA else 1):
            raise sentinels.too_few(self.address, len(views), failed) from failed
        epoch, primary, _ = max(views, key=lambda said: said[0])
        # The most cautious count: a replica that one of them still counts on may be chosen.
        replicas = max(count for at, _, count in views if at == epoch)
        self._primary, self._view = primary, (time.monotonic(), primary, replicas)
        return primary

    def _find_slots(self) -> Steps[list[Server | None]]:
        """Where each slot is. A node may know a part of that, so others are asked for the rest."""
        slots: list[Server | None] = [None] * SLOTS
        todo = list(dict.fromkeys((*self.address.seeds, *self._idle)))
        failed: HoldfastError | None = None
        for asked in todo:
            try:
                link = yield Open(asked)
                [answer] = yield from _ask(link, [(b"CLUSTER", b"SLOTS")])
                yield Shut(link)
            except HoldfastError as error:
                failed = error
                continue
            if isinstance(answer, Exception):
                failed = mapped(answer, "connect", writes=False)
                continue
            for shard, server, replicas in self._shards(answer):
                self.may_promote |= bool(replicas)
                for slot in shard:
                    slots[slot] = slots[slot] or server
                if server not in todo:
                    todo.append(server)
            if None not in slots:
                break
        if failed is not None and not any(slots):
            raise failed
        self._slots = slots
        return slots

    def _shards(self, answer: Any) -> Iterator[tuple[range, Server, Sequence[Any]]]:
        """Of each range of slots the primary, and its replicas that have not failed."""
        for first, last, (host, port, *_), *replicas in answer if isinstance(answer, list) else ():
            server = Server(host.decode() or self.address.seeds[0].host, int(port))
            yield range(first, last + 1), server, replicas


def _packed(words: Sequence[bytes]) -> bytes:
    return pack(words) if words else b""


def _ask(link: Link, questions: Sequence[Sequence[bytes]]) -> Steps[list[Any]]:
    """Replies to questions; errors of the engine stand among them, a lost connection raises."""
    replies = yield from talk(link, b"".join(map(pack, questions)), len(questions))
    lost = [reply for reply in replies if isinstance(reply, Lost)]
    if lost:
        raise mapped(lost[0], "connect", writes=False)
    return replies
