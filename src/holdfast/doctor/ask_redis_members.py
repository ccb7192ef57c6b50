"""Asking the members behind a Redis: its replicas, the sentinels of the URL, the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.backends.redis import durability
from holdfast.backends.redis.address import Address, Server
from holdfast.backends.redis.driver import Link, Open, Shut, Steps, Talk
from holdfast.backends.redis.errors import Lost, mapped
from holdfast.backends.redis.statements import pack
from holdfast.doctor.budget import Budget
from holdfast.doctor.redis_members import Node, Replica, Sentinel, Sentinels
from holdfast.errors import HoldfastError

REPLICAS_MAX: Final = 16
_ASKED: Final = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "replica-priority")


def ask(link: Link, questions: Sequence[Sequence[bytes]]) -> Steps[list[Any]]:
    """Replies to questions; refusals stand among them, a lost connection raises."""
    if not questions:
        return []
    replies: list[Any] = yield Talk(link, b"".join(map(pack, questions)), len(questions))
    for reply in replies:
        if isinstance(reply, Lost):
            raise mapped(reply, "doctor", writes=False)
    return replies


def ask_replicas(
    info: Mapping[str, str], budget: Budget, unseen: list[str]
) -> Steps[tuple[Replica, ...]]:
    """Each replica of a primary, asked itself where it answers."""
    found: list[Replica] = []
    for name, value in list(info.items()):
        if not (name.startswith("slave") and name[5:].isdigit()) or len(found) >= REPLICAS_MAX:
            continue
        of_it = dict(part.partition("=")[::2] for part in value.split(","))
        where = Server(of_it.get("ip", ""), int(of_it.get("port", 0)))
        behind = int(info.get("master_repl_offset", 0)) - int(of_it.get("offset", 0))
        config: dict[str, str] | None = None
        if budget.is_spent:
            unseen.append(f"replica {where}: the time for this audit was over")
        else:
            try:
                config = yield from _settings(where)
            except HoldfastError as error:
                unseen.append(f"replica {where}: {error}")
        priority = (config or {}).get("replica-priority")
        found.append(
            Replica(
                where=str(where),
                state=of_it.get("state", "unknown"),
                lag_s=float(of_it.get("lag", "nan")),
                behind_bytes=max(0, behind),
                persistence=None if config is None else durability.persistence_of(config, {}),
                priority=None if priority is None else int(priority),
            )
        )
    return tuple(found)


def _settings(server: Server) -> Steps[dict[str, str]]:
    link = yield Open(server)
    try:
        replies = yield from ask(link, [(b"CONFIG", b"GET", name.encode()) for name in _ASKED])
    finally:
        yield Shut(link)
    pairs = [reply for reply in replies if isinstance(reply, list) and reply]
    return {_text(pair[0]): _text(pair[1]) for pair in pairs}


def ask_sentinels(address: Address, budget: Budget) -> Steps[Sentinels]:
    """What each sentinel of the URL says of the service."""
    views = []
    silent: dict[str, str] = {}
    name = address.service.encode()
    questions = [(b"SENTINEL", word, name) for word in (b"MASTER", b"SENTINELS")]
    for server in address.seeds:
        if budget.is_spent:
            silent[str(server)] = "the time for this audit was over"
            continue
        try:
            link = yield Open(server, sentinel=True)
            view, others = yield from ask(link, questions)
            yield Shut(link)
        except HoldfastError:
            silent[str(server)] = "no answer"
            continue
        if isinstance(view, Exception) or isinstance(others, Exception):
            silent[str(server)] = f"answers with an error ({view})"
            continue
        seen = _pairs(view)
        peers = [_pairs(one) for one in others]
        views.append(
            Sentinel(
                where=str(server),
                primary=f"{seen['ip']}:{seen['port']}",
                epoch=int(seen["config-epoch"]),
                quorum=int(seen["quorum"]),
                flags=seen["flags"],
                others=tuple(f"{one['ip']}:{one['port']}" for one in peers),
                replicas=int(seen["num-slaves"]),
            )
        )
    return Sentinels(address.service, len(address.seeds), tuple(views), silent)


def ask_cluster(server: Server) -> Steps[tuple[tuple[Node, ...], str]]:
    """Every member by the word of one, and the state of the whole."""
    link = yield Open(server)
    try:
        nodes, info = yield from ask(link, [(b"CLUSTER", b"NODES"), (b"CLUSTER", b"INFO")])
    finally:
        yield Shut(link)
    if isinstance(nodes, Exception) or isinstance(info, Exception):
        return (), "unknown"
    state = durability.parse_info(info).get("cluster_state", "unknown")
    return tuple(_node(line.split()) for line in _text(nodes).splitlines() if line), state


def _node(words: Sequence[str]) -> Node:
    """`id ip:port@bus,host flags primary ping pong epoch link slot …`."""
    name, place, flags, primary, *_ = words
    ranges = [word.partition("-") for word in words[8:] if not word.startswith("[")]
    slots = sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    where = place.partition("@")[0]
    return Node(where, tuple(flags.split(",")), primary.strip("-"), slots, name)


def _pairs(words: Sequence[bytes]) -> dict[str, str]:
    texts = [_text(word) for word in words]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _text(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")
