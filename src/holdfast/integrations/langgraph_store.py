"""Our store as LangGraph's long-term memory: each item is a session of its own.

The id of the session says namespace and key, so that a listing by prefix finds what lies below a
namespace. Its newest record is the item: value, vectors and times in one write. So there is no second
place that could fall behind, and an item expires as a session does, on the engine's clock.
"""

from __future__ import annotations

import base64
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.contract import AsyncStore, Store
from holdfast.errors import Conflict, Damaged, OutcomeUnknown, UsageError
from holdfast.integrations import framework_operations
from holdfast.integrations.framework_operations import AT_ONCE, TRIES, StepRunner, log
from holdfast.model import History, Message, Retention
from holdfast.recall import vectors
from holdfast.runner import Steps

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
    )
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[langgraph]'") from error

FIELD: Final = "langgraph_store"
ROOT: Final = "langgraph.store/"
"""How the ids of all items begin."""
_NEWEST: Final = Retention(last=1)
_ESCAPED: Final = {"%": "%25", ".": "%2E", "/": "%2F"}
_COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le,
}  # fmt: skip

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """An item as it was read."""

    item: Item
    session: str
    message: Message
    ttl_minutes: float | None
    vectors: tuple[bytes, ...]

    def found(self, score: float | None = None) -> SearchItem:
        """As a search returns it."""
        one = self.item
        return SearchItem(
            one.namespace, one.key, one.value, one.created_at, one.updated_at, score=score
        )


class HoldfastStore(BaseStore):
    """Items in a store. Each put is there as a whole when it returns, with its vectors, or not at all.

    Give it a store with a namespace of its own: `connect(url, namespace="memories")`. Both ways of
    calling work with a `Store`; an `AsyncStore` has the async ones only. A batch reads first and then
    writes, item by item: two items are not one step. With `index` items are found by meaning; a
    search reads every item below its prefix.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._runner = StepRunner(store)
        self.ttl_config = ttl
        self.index_config = index
        self.embeddings: Any = None if index is None else ensure_embeddings(index.get("embed"))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """The answers in the order of the operations; every read is of before the writes."""
        return self._runner.run(self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `batch`."""
        return await self._runner.wait(self._batch(list(ops)))

    def _batch(self, ops: Sequence[Op]) -> Steps[list[Result]]:
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        results: list[Result] = []
        for op in ops:
            if isinstance(op, GetOp):
                results.append((yield from self._get(op)))
            elif isinstance(op, SearchOp):
                results.append((yield from self._search(op)))
            elif isinstance(op, ListNamespacesOp):
                results.append((yield from self._namespaces(op)))
            elif isinstance(op, PutOp):
                results.append(None)
            else:
                raise UsageError(f"no operation of a store: {op!r}; nothing was written")
        made = yield from self._embedded([op for op in puts.values() if op.value is not None])
        for place, op in puts.items():
            yield from _put(op, made.get(place, ()))
        return results

    def _get(self, op: GetOp) -> Steps[Item | None]:
        session = session_of(op.namespace, op.key)
        found: History = yield lambda store: store.history(session, limit=1)
        if found.damaged:
            raise Damaged(
                f"the item {op.key!r} of {op.namespace} cannot be read: {found.damaged[0]}"
            )
        if not found:
            return None
        stored = _stored(session, found[-1])
        if op.refresh_ttl:
            yield from _refresh(stored)
        return stored.item

    def _search(self, op: SearchOp) -> Steps[list[SearchItem]]:
        below = yield from _below(op.namespace_prefix)
        wanted = op.filter or {}
        kept = [one for one in below if _matches(one.item.value, wanted)]
        kept.sort(key=lambda one: one.item.updated_at, reverse=True)
        scores: dict[str, float] = {}
        if op.query and self.embeddings is not None:
            [asked] = yield from self._vectors([op.query], "embed_query")
            scores = _nearness(asked, kept)
            # What has no vector comes last, the latest first.
            kept.sort(key=lambda one: -scores.get(one.session, float("-inf")))
        page = kept[op.offset : op.offset + op.limit]
        for one in page if op.refresh_ttl else ():
            yield from _refresh(one)
        return [one.found(scores.get(one.session)) for one in page]

    def _namespaces(self, op: ListNamespacesOp) -> Steps[list[Names]]:
        conditions = op.match_conditions or ()
        begins: Names = ()
        for one in conditions:
            if one.match_type == "prefix" and "*" not in one.path:
                begins = max(begins, tuple(one.path), key=len)
        names = yield from framework_operations.names(_prefix(begins))
        found = {place_of(name)[0] for name in names}
        found = {one for one in found if all(_is_like(one, each) for each in conditions)}
        listed = sorted({one[: op.max_depth] for one in found})
        return listed[op.offset : op.offset + op.limit]

    def _embedded(self, ops: Sequence[PutOp]) -> Steps[dict[tuple[Names, str], list[bytes]]]:
        """The vectors of what is to be put, by namespace and key."""
        if self.index_config is None or not ops:
            return {}
        fields = self.index_config.get("fields") or ["$"]
        texts = [
            ((op.namespace, op.key), text)
            for op in ops
            if op.index is not False
            for path in (op.index or fields)
            for text in get_text_at_path(op.value, path if path == "$" else tokenize_path(path))
        ]
        made: dict[tuple[Names, str], list[bytes]] = {}
        rows = (yield from self._vectors([text for _, text in texts])) if texts else []
        for (place, _), row in zip(texts, rows, strict=True):
            made.setdefault(place, []).append(row)
        return made

    def _vectors(self, texts: list[str], how: str = "embed_documents") -> Steps[list[bytes]]:
        asked = texts[0] if how == "embed_query" else texts

        def embed(store: Store | AsyncStore) -> Any:
            name = f"a{how}" if isinstance(store, AsyncStore) else how
            return getattr(self.embeddings, name)(asked)

        rows = yield embed
        rows = [rows] if how == "embed_query" else rows
        dimension = len(rows[0])
        packed = vectors.pack(rows, model="embed", count=len(texts), dimension=dimension)
        return [one.vector for one in packed]


def _nearness(asked: bytes, items: Sequence[Stored]) -> dict[str, float]:
    """How near the nearest vector of each is, by session; those of another model say nothing."""
    rows = [(one.session, row) for one in items for row in one.vectors if len(row) == len(asked)]
    near = vectors.nearness(asked, [row for _, row in rows])
    scores: dict[str, float] = {}
    for (name, _), score in zip(rows, near, strict=True):
        scores[name] = max(score, scores.get(name, score))
    return scores


def session_of(namespace: Names, key: str) -> str:
    """The id of an item: no two items have the same, whatever their names contain."""
    return f"{_prefix(namespace)}/{key}"


def place_of(session: str) -> tuple[Names, str]:
    """The other way: namespace and key."""
    labels, _, key = session.removeprefix(ROOT).partition("/")
    return tuple(_unescaped(label) for label in labels.split(".")[:-1]), key


def _prefix(namespace: Names) -> str:
    """How the ids of a namespace begin, and of those below it: each label ends with a point."""
    return ROOT + "".join(f"{_escaped(label)}." for label in namespace)


def _escaped(label: str) -> str:
    return "".join(_ESCAPED.get(one, one) for one in label)


def _unescaped(label: str) -> str:
    for one, escaped in reversed(_ESCAPED.items()):
        label = label.replace(escaped, one)
    return label


def _put(op: PutOp, rows: Sequence[bytes]) -> Steps[None]:
    session = session_of(op.namespace, op.key)
    before: History = yield lambda store: store.history(session, limit=1)
    if op.value is None:
        if before or before.damaged:  # a forget leaves a mark behind: none for what was not there
            yield lambda store: store.forget(session)
        return
    now = datetime.now(UTC)
    created = _stored(session, before[-1]).item.created_at if before else now
    fields = {
        "value": op.value,
        "created_at": created.isoformat(),
        "ttl_minutes": op.ttl,
        "vectors": [base64.b64encode(row).decode() for row in rows],
    }
    message = Message("data", None, created_at=now, extra={FIELD: fields})
    expect: int | None = None
    for last in range(TRIES, 0, -1):
        try:
            yield functools.partial(_append, session, message, op.ttl, expect)
        except OutcomeUnknown:
            if last == 1:
                raise
            expect = before.last
        except Conflict:  # it is there, or another put came since and stands in its place
            return
        else:
            return


def _refresh(stored: Stored) -> Steps[None]:
    """Let the time of an item begin again, which only a write can; another write does so too."""
    if stored.ttl_minutes is not None:
        write = functools.partial(_append, stored.session, stored.message, stored.ttl_minutes)
        try:
            yield functools.partial(write, stored.message.seq)
        except Conflict:
            return


def _append(
    session: str, message: Message, ttl_minutes: float | None, expect: int | None, store: Any
) -> Any:
    ttl_s = None if ttl_minutes is None else ttl_minutes * 60
    return store.append(session, message, ttl_s=ttl_s, retention=_NEWEST, expect=expect)


def _below(namespace: Names) -> Steps[list[Stored]]:
    """All items of a namespace and of those below it; what cannot be read is named in the log."""
    names = yield from framework_operations.names(_prefix(namespace))
    below: list[Stored] = []
    for at in range(0, len(names), AT_ONCE):
        for name, found in (yield from framework_operations.ends(names[at : at + AT_ONCE], 1)):
            below += [_stored(name, message) for message in found]
            for damage in found.damaged:
                log.warning("the item %r cannot be read: %s", place_of(name), damage.reason)
    return below


def _stored(session: str, message: Message) -> Stored:
    fields = message.extra[FIELD]
    namespace, key = place_of(session)
    created = datetime.fromisoformat(fields["created_at"])
    item = Item(
        value=fields["value"],
        key=key,
        namespace=namespace,
        created_at=created,
        updated_at=message.created_at or created,
    )
    rows = tuple(base64.b64decode(row) for row in fields["vectors"])
    return Stored(item, session, message, fields["ttl_minutes"], rows)


def _is_like(namespace: Names, condition: MatchCondition) -> bool:
    """Whether it begins, or ends, like this; a star stands for any label."""
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


def _matches(value: Any, wanted: Any) -> bool:
    """Whether a value is as a filter says: equal, or by `$gt` and the like, inside objects too."""
    if not isinstance(wanted, Mapping):
        return bool(value == wanted)
    if any(str(name).startswith("$") for name in wanted):
        return all(_compares(value, name, other) for name, other in wanted.items())
    return isinstance(value, Mapping) and all(
        _matches(value.get(name), other) for name, other in wanted.items()
    )


def _compares(value: Any, name: str, other: Any) -> bool:
    if name in ("$eq", "$ne"):
        return bool(value == other) == (name == "$eq")
    if name not in _COMPARED:
        raise UsageError(f"no operator {name!r} for a filter: $eq, $ne, {', '.join(_COMPARED)}")
    try:
        return bool(_COMPARED[name](value, other))
    except TypeError:  # a text is neither more nor less than a number
        return False
