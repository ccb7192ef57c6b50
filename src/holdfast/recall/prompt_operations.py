"""What goes into a prompt: the running summary of a session, and a context of one instant, as steps."""

from __future__ import annotations

from typing import Final

from holdfast import codec, operations
from holdfast.commands import Derive, Facts, Read, Slice, StatSession, sublogs_of
from holdfast.errors import Conflict, EngineUnreachable
from holdfast.model import Ack, Context, Message, Recalled
from holdfast.recall import context as contexts
from holdfast.recall.indexing import Work, end_of
from holdfast.recall.memory_operations import Models, decoded, facts_of, recall, source_of
from holdfast.recall.summaries import text_of
from holdfast.runner import Steps
from holdfast.turns import open_calls

CUT_TRIES: Final = 8
HEAD: Final = 8
"""Messages at the beginning of a session among which system messages are looked for."""
SUMMARIES_READ: Final = 8


def summarize(models: Models, session: str, keep: int) -> Steps[Ack | None]:
    """Of `Store.summarize`."""
    operations.check_number(keep, "keep")
    name = operations.session_bytes(session)
    facts: Facts = yield StatSession(name)
    return (yield from _summarize(models, session, name, facts, facts.last - keep))


def _summarize(
    models: Models, session: str, name: bytes, facts: Facts, upto: int
) -> Steps[Ack | None]:
    """Continue the running summary to a number, at most; None if there is nothing to add."""
    if not end_of(facts):
        return None
    floor = facts.floor
    before, covered = yield from _newest_summary(name, facts)
    cut: Slice = yield Read(name, None, upto + 1, max(covered, floor))
    messages = [message for _, message in decoded(cut.rows)]
    whole = contexts.units(messages)
    if whole and upto < facts.last and open_calls(whole[-1]):
        whole.pop()  # its results may come after: the next summary has all of it
    messages = [message for unit in whole for message in unit]
    if not messages:
        return None
    first, last = max(covered, floor) + 1, messages[-1].seq or 0
    # Where summaries have gone, the keys that they were written under are used: another one then.
    beside: Facts = yield StatSession(sublogs_of(name)[1])
    gone = f", after {beside.last - beside.count} that are gone" * (beside.last > beside.count)
    so_far = "" if before is None else text_of(before)
    text = yield Work(lambda: models.summarizer.summarize(so_far, messages))
    made = {"first": first, "last": last, "by": models.summarizer.name}
    record = codec.encode(Message("summary", text, extra={"from": made}))
    key = operations.key_digest(f"summary of {first} to {last}{gone}")
    written = yield Derive(name, record, key, last)
    return operations.ack(session, written)


def _newest_summary(name: bytes, facts: Facts) -> Steps[tuple[Message | None, int]]:
    """The summary that reaches furthest, and how far; none of what is gone, but of what was cut off."""
    gone = facts.floor - facts.trimmed
    cut: Slice = yield Read(sublogs_of(name)[1], SUMMARIES_READ)
    best: tuple[Message | None, int] = (None, 0)
    for _, message in decoded(cut.rows):
        source = source_of(message)
        if source is not None and source.last > max(best[1], gone):
            best = (message, source.last)
    return best


def context(
    models: Models,
    session: str,
    query: str,
    tokens: int,
    *,
    scope: str | None,
    k: int,
    count: contexts.Count | None,
) -> Steps[Context]:
    """Of `Store.context`: assembled again if what it is made from has changed meanwhile."""
    operations.check_number(tokens, "tokens")
    name = operations.session_bytes(session)
    about = operations.session_bytes(session if scope is None else scope)
    logs = tuple(dict.fromkeys((name, about, *sublogs_of(about)[:1], sublogs_of(name)[1])))
    summarized = 0
    for _ in range(CUT_TRIES):
        before = yield from facts_of(logs)
        recalled = yield from recall(models, scope or session, query, k, None, None)
        made = yield from _parts(session, name, before[0], recalled, tokens)
        found = contexts.assemble(made, tokens, count or contexts.estimate)
        if (yield from facts_of(logs)) != before:
            continue
        upto = _unspoken(found)
        if upto <= summarized:  # nothing is left to summarize, or the summary is gone or too long
            return found
        try:
            if (yield from _summarize(models, session, name, before[0], upto)) is None:
                return found
        except Conflict:  # it was forgotten, rewritten or has expired meanwhile
            continue
        summarized = upto
    raise EngineUnreachable(
        f"{session!r} changed during each of {CUT_TRIES} tries to read it as of one instant. Try "
        "again",
        operation="context",
    )


def _unspoken(found: Context) -> int:
    """Up to where a summary is wanted: older than every turn, and not told by anything yet."""
    shown = [message.seq for message in found.turns if message.seq]
    older = [last for _, last in found.left_out if not shown or last < shown[0]]
    return max(older, default=0)


def _parts(
    session: str, name: bytes, facts: Facts, recalled: Recalled, tokens: int
) -> Steps[contexts.Parts]:
    """No more is read than the budget can hold."""
    floor = facts.floor
    window = tokens // (contexts.MESSAGE_TOKENS + 1) + 1
    newest: Slice = yield Read(name, window)
    messages = [message for _, message in decoded(newest.rows)]
    first = newest.rows[0][0] if newest.rows else 0
    if first > floor + 1:
        head: Slice = yield Read(name, HEAD, first, floor)
        kept = [message for _, message in decoded(head.rows) if message.role in contexts.SYSTEM]
        messages = [*kept, *messages]
    summary, covered = yield from _newest_summary(name, facts)
    last = end_of(facts)
    return contexts.Parts(
        session,
        messages,
        recalled.hits,
        summary,
        covered,
        recalled.behind,
        floor if last else 0,
        last,
        facts.trimmed,
    )
