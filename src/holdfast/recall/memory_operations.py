"""Every operation of long-term memory once, as steps for the sync and the async API."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from holdfast import codec, limits, operations
from holdfast.commands import (
    ERASED,
    MEMORIES,
    Append,
    EraseRecord,
    Facts,
    Forget,
    Read,
    ReadNumbers,
    Removed,
    Slice,
    StatSession,
    sublogs_of,
)
from holdfast.errors import (
    Damaged,
    HoldfastError,
    InvalidMessage,
    OutcomeUnknown,
    StoredDataError,
    UsageError,
)
from holdfast.model import (
    Ack,
    Erased,
    History,
    Hit,
    Message,
    Recalled,
    SessionState,
    Source,
)
from holdfast.recall import embedders, summaries
from holdfast.recall.index_commands import Candidate, Erase, EraseEntry, Search
from holdfast.recall.indexing import (
    catch_up,
    embed,
    end_of,
    index_log,
    lag,
    model_of,
)
from holdfast.recall.summaries import text_of
from holdfast.recall.words import asked, rarity, term_hash, terms, weights
from holdfast.runner import Steps

Rows = Sequence[tuple[int, bytes]]
Known = dict[tuple[bytes, int], Message]
"""What has been read of logs during one recall."""
Filter = Mapping[str, Any] | Callable[[Hit], bool]

K_MAX: Final = 1000
SEARCH_MIN: Final = 10
CATCH_UP_S: Final = 0.5
"""How long one recall may spend on catching up before it answers, and says how far behind it is."""
WORDS_WORTH: Final = 0.4
WORDS_SCALE: Final = 12.0
"""Both chosen by `python -m bench recall` on the tuning part of its questions, never on the other."""
REINDEX_S: Final = 24 * 3600.0


@dataclass(slots=True)
class Models:
    """What long-term memory thinks with: chosen at connect, loaded when first used."""

    embedder: embedders.Embedder
    summarizer: summaries.Summarizer


def models(embedder: object, summarizer: object) -> Models:
    """Of what `connect` was given."""
    return Models(embedders.choose(embedder), summaries.choose(summarizer))


def logs_of(scope: str) -> tuple[bytes, bytes]:
    """What is recalled from: the messages of a scope, and its memories."""
    session = operations.session_bytes(scope)
    return session, sublogs_of(session)[0]


IN_THE_INDEX: Final = (
    "the files of the index: vectors, no text. When it frees their room is up to it"
)


def remember(
    scope: str,
    text: object,
    meta: Mapping[str, Any] | None,
    key: str | None,
    source: Source | None,
    ttl_ms: int,
) -> Append:
    """Of `Store.remember`: a record in the log of the scope's memories."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidMessage("a memory is a text with something in it; nothing was sent")
    extra: dict[str, Any] = {} if meta is None else {"meta": dict(meta)}
    if source is not None:
        extra["from"] = {"session": source.session, "first": source.first, "last": source.last}
        key = _key_of(source, text) if key is None else key
    sublog, _ = sublogs_of(operations.session_bytes(scope))
    record = codec.encode(Message("memory", text, extra=extra))
    digest = None if key is None else operations.key_digest(key)
    return Append(sublog, (record,), digest, None, ttl_ms)


def _key_of(source: Source, text: str) -> str:
    key = json.dumps([source.session, source.first, source.last, text])
    return key if len(key) <= limits.KEY_BYTES_MAX else sha256(key.encode()).hexdigest()


def memories(
    scope: str, limit: int | None, before: int | None, after: int | None
) -> Steps[History]:
    """Of `Store.memories`."""
    sublog, _ = sublogs_of(operations.session_bytes(scope))
    return _beside(sublog, operations.read(scope, limit, before, after, None))


def summaries_of(session: str) -> Steps[History]:
    """Of `Store.summaries`."""
    _, sublog = sublogs_of(operations.session_bytes(session))
    return _beside(sublog, Read(sublog))


def _beside(sublog: bytes, page: Read) -> Steps[History]:
    """A page of a log beside a session without what was erased: read at one instant, as a whole."""
    wanted = size = page.limit
    while True:
        cut: Slice = yield replace(page, session=sublog, limit=size)
        rows = [row for row in cut.rows if row[1] != ERASED]
        if size is None or wanted is None:
            break
        if len(rows) >= wanted or len(cut.rows) < size:
            rows = rows[:wanted] if page.forward else rows[max(0, len(rows) - wanted) :]
            break
        size *= 2  # some of them were erased: more is read, again from the beginning
    return operations.history(replace(cut, rows=rows))


def forget_memory(scope: str, number: int, *, apart: bool) -> Steps[Erased]:
    """Of `Store.forget_memory`; `apart`: the index is not in the log's engine, and comes after it."""
    if operations.check_number(number, "number") is None:
        raise UsageError("number must be a whole number, not None; nothing was sent")
    sublog, _ = sublogs_of(operations.session_bytes(scope))
    removed: Removed = yield EraseRecord(sublog, min(number, limits.NUMBER_MAX))
    if apart:
        try:
            yield EraseEntry(sublog, number)
        except HoldfastError as error:
            raise OutcomeUnknown(
                f"the memory is erased from the log for good, but not from its index ({error}). "
                "Its vector is left there. Forget it again when the index is back",
                operation="forget_memory",
            ) from error
        removed = replace(removed, left=(*removed.left, IN_THE_INDEX))
    return operations.erased(scope, removed)


def recall(
    models: Models, scope: str, query: str, k: int, since: datetime | None, keep: Filter | None
) -> Steps[Recalled]:
    """Of `Store.recall`."""
    logs = logs_of(scope)
    _check(query, k, since)
    limit = limits.RECALL_FILTERED_MAX if since or keep else max(SEARCH_MIN, 2 * k)
    known: Known = {}
    ranked, left = yield from _ranked(models, logs, query, limit, known)
    hits: list[Hit] = []
    for begin in range(0, len(ranked), max(k, 1)):
        if len(hits) >= k:
            break
        part = ranked[begin : begin + k]
        found = yield from _read(scope, logs, part, known)
        hits += [hit for hit in found if _wanted(hit, since, keep)]
    return Recalled(tuple(hits[:k]), left, model_of(models.embedder))


def _check(query: object, k: object, since: object) -> None:
    if not isinstance(query, str):
        raise UsageError(f"query must be text, not {type(query).__name__}; nothing was sent")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= K_MAX:
        raise UsageError(f"k must be a whole number from 1 to {K_MAX}, not {k!r}")
    if since is not None and (not isinstance(since, datetime) or since.tzinfo is None):
        raise UsageError(f"since must be a datetime with a time zone, not {since!r}")


def _ranked(
    models: Models, logs: Sequence[bytes], query: str, limit: int, known: Known
) -> Steps[tuple[list[tuple[float, bytes, int]], int]]:
    """(score, log, number), best first; and how many records were not looked at."""
    model = model_of(models.embedder)
    [packed] = yield from embed(models.embedder, [query])
    until_s = time.monotonic() + CATCH_UP_S  # from here: to load a model is no part of it
    terms = asked(query)
    ranked: list[tuple[float, bytes, int]] = []
    left = 0
    for log in logs:
        facts: Facts = yield StatSession(log)
        if facts.state is SessionState.NEVER:
            continue
        _, behind = yield from index_log(log, facts, models.embedder, until_s=until_s)
        if not end_of(facts):
            continue
        search = Search(log, model, packed.vector, packed.sketch, terms, limit)
        found: Sequence[Candidate] = ()
        from_scratch = False
        try:
            found = yield search
        except Damaged:
            from_scratch = True
        # An index that has lost its data, now or since it was asked how far it is: built again.
        if from_scratch or (not found and (yield from lag(log, models.embedder)) > behind):
            _, behind = yield from index_log(
                log, facts, models.embedder, until_s=until_s, from_scratch=from_scratch
            )
            found = yield search
        left += behind
        if any(one.words is None for one in found):
            found = yield from _with_words(search, found, known)
        ranked += [(score(one), log, one.seq) for one in found]
    # Of two that are equally good the newer one is shown first.
    return sorted(ranked, key=lambda one: (-one[0], -one[2])), left


def _with_words(search: Search, found: Sequence[Candidate], known: Known) -> Steps[list[Candidate]]:
    """Candidates with how well their words fit, by their texts and among themselves."""
    rows: Rows = yield ReadNumbers(search.session, sorted(one.seq for one in found))
    messages = dict(decoded(rows))
    known.update({(search.session, seq): message for seq, message in messages.items()})
    wanted = set(search.words)
    texts = {
        seq: weights(text)
        for seq, text in ((seq, text_of(message)) for seq, message in messages.items())
        if not wanted.isdisjoint(map(term_hash, terms(text)))
    }
    rare = {
        term: rarity(sum(term in text for text in texts.values()), len(found)) for term in wanted
    }
    return [Candidate(one.seq, one.nearness, _worth(texts.get(one.seq, {}), rare)) for one in found]


def _worth(text: Mapping[int, float], rare: Mapping[int, float]) -> float:
    return sum(text[term] * rarity for term, rarity in rare.items() if term in text)


def score(one: Candidate, worth: float = WORDS_WORTH, scale: float = WORDS_SCALE) -> float:
    """Nearness, raised by rare words in common: a name or a number that no vector knows."""
    shared = math.tanh((one.words or 0.0) / scale)
    return one.nearness + worth * shared * shared


def _read(
    scope: str, logs: Sequence[bytes], ranked: Sequence[tuple[float, bytes, int]], known: Known
) -> Steps[list[Hit]]:
    """What the log says under these numbers; an index cannot show what is not there any more."""
    for log in logs:
        numbers = sorted(seq for _, of, seq in ranked if of == log and (log, seq) not in known)
        if numbers:
            rows: Rows = yield ReadNumbers(log, numbers)
            known.update({(log, seq): found for seq, found in decoded(rows)})
    return [
        _hit(scope, known[log, seq], value, "message" if log == logs[0] else "memory")
        for value, log, seq in ranked
        if (log, seq) in known
    ]


def decoded(rows: Rows) -> Iterable[tuple[int, Message]]:
    """What of some records can be read, with their numbers; nothing that was erased."""
    for seq, record in rows:
        if record == ERASED:
            continue
        try:
            yield seq, codec.decode(record, seq)
        except StoredDataError:
            continue


def _hit(scope: str, message: Message, value: float, kind: str) -> Hit:
    is_memory = kind == "memory"
    meta = message.extra.get("meta") if is_memory else message.extra
    meta = meta if isinstance(meta, dict) else {}
    source = source_of(message) if is_memory else None
    seq = message.seq or 0
    return Hit(scope, seq, kind, text_of(message), value, message, meta, source)


def source_of(message: Message) -> Source | None:
    """What a memory or a summary was made from; None where a loaded file has nothing of the kind."""
    made = message.extra.get("from")
    made = made if isinstance(made, dict) else {}
    session, first, last = made.get("session", ""), made.get("first"), made.get("last")
    if isinstance(session, str) and isinstance(first, int) and isinstance(last, int):
        return Source(session, first, last)
    return None


def _wanted(hit: Hit, since: datetime | None, keep: Filter | None) -> bool:
    at = hit.message.created_at
    if since is not None and (at is None or at < since):
        return False
    if keep is None:
        return True
    if isinstance(keep, Mapping):
        return all(name in hit.meta and hit.meta[name] == value for name, value in keep.items())
    return keep(hit)


def forget(command: Forget) -> Steps[Removed]:
    """A forget where the index is not in the log's engine: that comes after the log."""
    removed: Removed = yield command
    try:
        for log in (command.session, sublogs_of(command.session)[0]):
            facts: Facts = yield StatSession(log)
            yield Erase(log, facts.last - facts.count)
    except HoldfastError as error:
        raise OutcomeUnknown(
            f"the session is erased from the log for good, but not from its index ({error}). "
            "Vectors of it are left there. Forget it again when the index is back",
            operation="forget",
        ) from error
    return replace(removed, left=(*removed.left, IN_THE_INDEX))


def index_lag(models: Models, scope: str) -> Steps[int]:
    """Of `Store.index_lag`."""
    left = 0
    for log in logs_of(scope):
        left += yield from lag(log, models.embedder)
    return left


def facts_of(logs: Sequence[bytes]) -> Steps[list[Facts]]:
    """The state of each log."""
    found: list[Facts] = []
    for log in logs:
        facts: Facts = yield StatSession(log)
        found += [facts]
    return found


def wait_for(models: Models, scope: str, seq: int | Ack | None, timeout_s: float) -> Steps[int]:
    """Of `Store.wait_for`. Messages and memories have numbers of their own: both go that far."""
    logs = logs_of(scope)
    upto = operations.check_number(seq.last if isinstance(seq, Ack) else seq, "seq")
    if upto is not None:
        known = yield from facts_of(logs)
        last = max(facts.last for facts in known)
        if upto > last:
            raise UsageError(f"{scope!r} has given no number {upto} yet; its last is {last}")
    return (yield from catch_up(logs, models.embedder, timeout_s=timeout_s, seq=upto))


def reindex(models: Models, scope: str | None) -> Steps[int]:
    """Of `Store.reindex`: one log after another, each complete before the next."""
    if scope is not None:
        return (
            yield from catch_up(
                logs_of(scope), models.embedder, timeout_s=REINDEX_S, from_scratch=True
            )
        )
    done = 0
    for sublog in (b"", MEMORIES):
        after: bytes | None = None
        while names := (yield operations.all_names(sublog, "", after)):
            done += yield from catch_up(
                names, models.embedder, timeout_s=REINDEX_S, from_scratch=True
            )
            after = names[-1]
    return done
