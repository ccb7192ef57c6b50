"""What a read shows although its time was over: expired-late."""

from __future__ import annotations

from holdfast.verify.history import NEVER_NS
from holdfast.verify.judge.case import NS_PER_S, Append
from holdfast.verify.judge.facts import Facts
from holdfast.verify.judge.findings import Findings


def check_expired(facts: Facts, found: Findings) -> int:
    """Report messages shown after their time. Gives the number of reads nobody can decide."""
    case = facts.case
    if case.ttl_ns is None:
        return 0
    life_ns = case.ttl_ns + case.error_ns
    ends = _ends(case.appends, life_ns)
    known_ends = _ends([a for a in case.appends if a.comp < NEVER_NS], life_ns)
    undecided = 0
    for read in case.reads:
        row = facts.rows[read]
        newest = facts.newest(read)
        began = read.inv if newest is None else max(read.inv, newest.inv)
        late = [append for append in row if began > ends[append]]
        for append in late:
            # A read takes effect no earlier than what it shows began.
            beyond = None if newest is None or newest.inv <= read.inv else newest
            which = f"read {read.number}" if beyond is None else f"append {beyond.number}"
            lived_s = (began - append.inv) / NS_PER_S
            message = facts.shown_message(append, read)
            because = (
                f"read {read.number} shows {message!r}; {which} began {lived_s:.3f} s after append "
                f"{append.number} of it did, and no write since can have kept the session alive"
            )
            if beyond is not None:
                because = because.replace(";", f" and {facts.shown_message(beyond, read)!r};", 1)
            numbers = () if beyond is None else (beyond.number,)
            witness = (append.number, *numbers, read.number)
            also = ("fresh",) if beyond is None else ()
            found.add("expired-late", message, witness, because, also=also, read=read.number)
        if not late:
            undecided += any(began > known_ends.get(a, NEVER_NS) for a in row)
    return undecided


def _ends(appends: list[Append], life_ns: int) -> dict[Append, int]:
    """For each append, the latest time until which its session can have lived on.

    A write while the session may still live lets it live longer; a later one begins a new one.
    """
    tries = sorted((inv, comp, at) for at, a in enumerate(appends) for inv, comp in a.tries)
    ends: dict[Append, int] = {}
    group: list[Append] = []
    end = -1
    for inv, comp, at in tries:
        if inv > end:
            ends |= dict.fromkeys(group, end)
            group, end = [], -1
        if inv <= appends[at].comp:  # a retry after the ack wrote nothing, one before it may have
            group.append(appends[at])
        end = max(end, comp + life_ns)
    return ends | dict.fromkeys(group, end)
