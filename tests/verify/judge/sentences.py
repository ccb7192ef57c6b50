"""Looks every clause of a finding's sentence up in the history, with none of the judge's code.

A sentence must match one of the forms below as a whole; each of its clauses is then asked of the
operations that it names. What is left over, or is not so, is given back in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.verify.history import NEVER_NS, History, Operation
from holdfast.verify.judge import Anomaly

_M = r"'([^']*)'"
_SIGHT = r"(?:acknowledged \(append \d+\)|shown by read \d+)"
_WHAT = (
    rf"(?:'[^']*' was {_SIGHT} before read \d+ began and is missing from it"
    rf"|'[^']*' was {_SIGHT} before append \d+ of '[^']*' began, and read \d+ shows '[^']*' without it)"
)
_FORMS = (
    r"read \d+ asked for the newest \d+ and got \d+",
    r"read \d+ shows '[^']*' more than once, and (?:it was appended once|its \d+ attempts have the same key)",
    r"read \d+ ended before append \d+ of '[^']*' began",
    r"read \d+ of session '[^']*' shows '[^']*', which append \d+ wrote to session '[^']*'",
    r"append \d+ of '[^']*' definitely failed, yet read \d+ shows it",
    r"read \d+ shows '[^']*', which nobody ever appended",
    r"read \d+ shows \d+ of the \d+ messages of append \d+, and not '[^']*'(?:, and asked for the newest \d+)?",
    r"read \d+ shows '[^']*' among the messages of append \d+",
    r"read \d+ shows the messages of append \d+ in another order",
    rf"{_WHAT}, which asked for the newest \d+ and shows '[^']*' of the same append",
    (
        rf"{_WHAT}, and no read that (?:ended after read \d+ began|began after read \d+ ended) shows it"
        r"(?:: read \d+ shows nothing(?: as old as '[^']*')?, the whole session is gone before its time)?"
    ),
    rf"{_WHAT}; forget \d+ ended after read \d+ began, so no later read can tell whether it was lost",
    (
        rf"{_WHAT}; forget \d+ was not acknowledged and may have taken effect after read \d+ began, "
        r"so no later read can tell whether it was lost"
    ),
    (
        rf"{_WHAT}(?:, but (?:the later )?read \d+ shows it)?"
        r"(?:: [\d.]+ ms stale(?:, read by (?:its own writer|another client))?)?"
    ),
    (
        rf"{_WHAT}, which asked for the newest \d+"
        rf"(?: and shows '[^']*', which was {_SIGHT} before append \d+ of '[^']*' began)?"
    ),
    (
        rf"'[^']*' was {_SIGHT} and '[^']*' was {_SIGHT} before forget \d+ began, and read \d+ shows "
        r"'[^']*' without '[^']*'"
    ),
    (
        r"read \d+ shows '[^']*' and '[^']*' while forget \d+ may take effect, and read \d+ shows "
        r"'[^']*' without '[^']*'"
    ),
    (
        rf"forget \d+ began after (?:'[^']*' was {_SIGHT}|a fault ended append \d+ of '[^']*') and ended "
        r"before read \d+ began, which shows it again(?:, and the later read \d+ does not|, and not all of its \d+ attempts "
        r"had ended when forget \d+ began)?"
    ),
    (
        rf"(?:'[^']*' was {_SIGHT}|append \d+ of '[^']*' was ended by a fault) before append \d+ of "
        r"'[^']*' began, yet read \d+ shows '[^']*' after '[^']*'"
    ),
    r"read \d+ shows '[^']*' before '[^']*', read \d+ after it",
    (
        r"no order of operations [\d, ]+ explains them all: (?:read \d+ lacks '[^']*'"
        r"|read \d+ shows '[^']*'(?: without '[^']*'| before '[^']*')?|append \d+ wrote '[^']*')"
    ),
    r"'[^']*' has number \d+ in operation \d+ and \d+ in operation \d+",
    r"number \d+ was given to '[^']*' and to '[^']*'",
    r"read \d+ shows '[^']*', number \d+, before '[^']*', number \d+",
    r"append \d+ was acknowledged with number \d+ before append \d+ began, which got the smaller number \d+",
    (
        r"read \d+ shows '[^']*'(?: and '[^']*')?; (?:read|append) \d+ began [\d.]+ s after append \d+ of "
        r"it did, and no write since can have kept the session alive"
    ),
)
FORMS = [re.compile(form) for form in _FORMS]


def untrue(history: History, anomaly: Anomaly) -> list[str]:
    """The clauses of the sentence that the history does not bear out."""
    sentence = anomaly.because
    if not any(form.fullmatch(sentence) for form in FORMS):
        return [f"no known form: {sentence}"]
    look = _Look(history, anomaly)
    return [
        f"{name}: {sentence}"
        for name, pattern, check in _CLAUSES
        for match in re.finditer(pattern, sentence)
        if not check(look, *match.groups())
    ]


@dataclass
class _Look:
    history: History
    anomaly: Anomaly

    def op(self, number: str, f: str) -> Operation:
        operation = self.history.operations[int(number)]
        assert operation.f == f, (operation, f)
        return operation

    def row(self, read: str) -> list[str]:
        operation = self.op(read, "history")
        assert operation.status == "ok"
        return operation.ids()

    def _ended(self, append: str) -> int:
        """When an append ended: acknowledged, or by a fault."""
        return self.op(append, "append").completed_ns

    def sight_ns(self, message: str, sight: str) -> int:
        """When it was acknowledged or shown, as the sentence says; never if that is not so."""
        number = re.findall(r"\d+", sight)[0]
        operation = self.history.operations[int(number)]
        f = "append" if sight.startswith("acknowledged") else "history"
        if operation.f != f or operation.status != "ok" or message not in operation.ids():
            return NEVER_NS
        return operation.completed_ns

    # One method a clause.

    def known_before_read(self, message: str, sight: str, read: str) -> bool:
        return self.sight_ns(message, sight) < self.op(read, "history").invoked_ns

    def is_missing(self, message: str, read: str) -> bool:
        row, limit = self.row(read), self.op(read, "history").limit
        if message in row:
            return False
        if limit is None or len(row) < limit:
            return True
        # A full window: it could have held the message only if that is not older than all of it.
        session = self.history.sessions[self.anomaly.session]
        tries = [o for o in session.appends if o.status != "fail" and message in o.ids()]
        append = min(tries, key=lambda o: o.invoked_ns)
        return any(
            message in other.ids() or self._known_ns(m) < append.invoked_ns
            for m in row
            if (other := self.history.writers.get(m)) is not None
        )

    def _known_ns(self, message: str) -> int:
        session = self.history.sessions[self.anomaly.session]
        ends = [o.completed_ns for o in session.appends if o.status == "ok" and message in o.ids()]
        ends += [o.completed_ns for o in session.reads if o.status == "ok" and message in o.ids()]
        return min(ends, default=NEVER_NS)

    def missing_from_it(self, message: str, sight: str, read: str) -> bool:
        return self.known_before_read(message, sight, read) and self.is_missing(message, read)

    def known_before_append(self, message: str, sight: str, append: str, other: str) -> bool:
        op = self.op(append, "append")
        return other in op.ids() and self.sight_ns(message, sight) < op.invoked_ns

    def shows_without_it(
        self, message: str, sight: str, append: str, other: str, read: str, shown: str
    ) -> bool:
        row = self.row(read)
        return (
            self.known_before_append(message, sight, append, other)
            and other == shown
            and shown in row
            and self.is_missing(message, read)
        )

    def no_later_read(self, message: str, read: str) -> bool:
        began = self.op(read, "history").invoked_ns
        reads = self.history.sessions[self.anomaly.session].reads
        return not any(
            message in o.ids() for o in reads if o.status == "ok" and o.completed_ns > began
        )

    def shows_nothing(self, read: str) -> bool:
        return self.row(read) == [] and self.history.header.ttl_s is not None

    def forget_after(self, forget: str, read: str) -> bool:
        op = self.op(forget, "forget")
        return op.status == "ok" and op.completed_ns >= self.op(read, "history").invoked_ns

    def open_forget_after(self, forget: str, read: str) -> bool:
        op = self.op(forget, "forget")
        return op.status == "info" and op.completed_ns >= self.op(read, "history").invoked_ns

    def again(self, message: str, read: str, later: str, other: str) -> bool:
        one, two = self.op(read, "history"), self.op(other, "history")
        after = two.invoked_ns > one.completed_ns if later else two.completed_ns > one.invoked_ns
        return after and message in two.ids()

    def stale_ms(self, message: str, sight: str, read: str, late_ms: str, who: str) -> bool:
        op = self.op(read, "history")
        known = self.history.operations[int(re.findall(r"\d+", sight)[0])]
        ms = (op.invoked_ns - self.sight_ns(message, sight)) / 1e6
        own = who in (None, "its own writer" if op.process == known.process else "another client")
        return f"{ms:.3f}" == late_ms and own and (who is None or known.f == "append")

    def asked_for(self, read: str, limit: str) -> bool:
        op = self.op(read, "history")
        return op.limit == int(limit)

    def also_shows(self, read: str, shown: str) -> bool:
        return shown in self.row(read)

    def same_append(self, message: str, read: str, shown: str) -> bool:
        return shown in self.row(read) and shown in self.history.writers[message].ids()

    def half_forgotten(
        self,
        gone: str,
        s1: str,
        kept: str,
        s2: str,
        forget: str,
        read: str,
        shown: str,
        missing: str,
    ) -> bool:
        began = self.op(forget, "forget").invoked_ns
        row = self.row(read)
        return (
            self.sight_ns(gone, s1) < began
            and self.sight_ns(kept, s2) < began
            and (kept, gone) == (shown, missing)
            and shown in row
            and self.is_missing(missing, read)
        )

    def taken_apart(
        self, other: str, gone: str, kept: str, forget: str, read: str, shown: str, missing: str
    ) -> bool:
        both, taken = self.op(other, "history"), self.op(forget, "forget")
        row = self.row(other)
        return (
            (gone, kept) == (missing, shown)
            and gone in row
            and kept in row
            and taken.status in ("ok", "info")
            and taken.invoked_ns <= both.completed_ns
            and taken.completed_ns >= both.invoked_ns
            and shown in self.row(read)
            and missing not in self.row(read)
        )

    def resurrected(
        self, forget: str, message: str, sight: str, append: str, other: str, read: str
    ) -> bool:
        op = self.op(forget, "forget")
        known = self.sight_ns(message, sight) if sight else self._ended(append)
        shown = message or other
        if append and (
            other not in self.op(append, "append").ids()
            or self.op(append, "append").status != "info"
        ):
            return False
        return (
            op.status == "ok"
            and known < op.invoked_ns
            and op.completed_ns < self.op(read, "history").invoked_ns
            and shown in self.row(read)
        )

    def misplaced(
        self,
        message: str,
        sight: str,
        append: str,
        other: str,
        next_: str,
        x: str,
        read: str,
        a: str,
        b: str,
    ) -> bool:
        known = self.sight_ns(message, sight) if sight else self._ended(append)
        row = self.row(read)
        return (
            known < self.op(next_, "append").invoked_ns
            and x in self.op(next_, "append").ids()
            and a == (message or other)
            and b == x
            and self._before(row, b, a)
        )

    @staticmethod
    def _before(row: list[str], a: str, b: str) -> bool:
        return a in row and b in row and row.index(a) < row.index(b)

    def disagree(self, read: str, a: str, b: str, other: str) -> bool:
        return self._before(self.row(read), a, b) and self._before(self.row(other), b, a)

    def too_many(self, read: str, limit: str, got: str) -> bool:
        op = self.op(read, "history")
        return op.limit == int(limit) and len(op.ids()) == int(got) > int(limit)

    def twice(self, read: str, message: str, once: str) -> bool:
        session = self.history.sessions[self.anomaly.session]
        tries = [o for o in session.appends if o.status != "fail" and message in o.ids()]
        count = re.findall(r"\d+", once)
        keys = {o.key for o in tries}
        fits = (
            len(tries) == int(count[0]) and len(keys) == 1 and None not in keys
            if count
            else len(tries) == 1
        )
        return self.row(read).count(message) > 1 and fits

    def before_it_began(self, read: str, append: str, message: str) -> bool:
        op = self.op(append, "append")
        return (
            message in op.ids()
            and self.op(read, "history").completed_ns < op.invoked_ns
            and message in self.row(read)
        )

    def leak(self, read: str, session: str, message: str, append: str, other: str) -> bool:
        op = self.op(append, "append")
        home = self.op(read, "history").session == session != other == op.session
        return home and message in op.ids() and message in self.row(read)

    def failed(self, append: str, message: str, read: str) -> bool:
        op = self.op(append, "append")
        return op.status == "fail" and message in op.ids() and message in self.row(read)

    def nobody(self, read: str, message: str) -> bool:
        return message in self.row(read) and message not in self.history.writers

    def torn(self, read: str, shown: str, of: str, append: str, message: str) -> bool:
        ids, row = self.op(append, "append").ids(), self.row(read)
        there = [m for m in ids if m in row]
        if message in row or message not in ids or (len(there), len(ids)) != (int(shown), int(of)):
            return False
        limit = self.op(read, "history").limit
        tail = ids[-len(there) :]
        return not (
            limit is not None and len(row) >= limit and there == tail and row[: len(tail)] == tail
        )

    def among(self, read: str, message: str, append: str) -> bool:
        ids, row = self.op(append, "append").ids(), self.row(read)
        places = [row.index(m) for m in ids]
        return message not in ids and min(places) < row.index(message) < max(places)

    def other_order(self, read: str, append: str) -> bool:
        ids, row = self.op(append, "append").ids(), self.row(read)
        seen = list(dict.fromkeys(m for m in row if m in ids))
        return len(seen) > 1 and seen != [m for m in ids if m in seen]

    def gone_again(self, message: str, read: str, later: str) -> bool:
        ended = self.op(read, "history").completed_ns
        return self.is_missing(message, later) and self.op(later, "history").invoked_ns > ended

    def no_read_begun_later(self, message: str, read: str) -> bool:
        ended = self.op(read, "history").completed_ns
        session = self.history.sessions[self.anomaly.session]
        return not any(
            o.invoked_ns > ended and message in o.ids() for o in session.reads if o.status == "ok"
        )

    def _began_ns(self, message: str) -> int:
        session = self.history.sessions[self.anomaly.session]
        return min(o.invoked_ns for o in session.appends if message in o.ids())

    def nothing_as_old(self, read: str, message: str) -> bool:
        row = self.row(read)
        return bool(row) and all(self._began_ns(m) > self._began_ns(message) for m in row)

    def lacks(self, read: str, message: str) -> bool:
        return message not in self.row(read)

    def shows_but(self, read: str, shown: str, message: str) -> bool:
        return shown in self.row(read) and message not in self.row(read)

    def shows_before(self, read: str, a: str, b: str) -> bool:
        return self._before(self.row(read), a, b)

    def wrote(self, append: str, message: str) -> bool:
        return message in self.op(append, "append").ids()

    def numbers_differ(self, message: str, a: str, one: str, b: str, two: str) -> bool:
        return self._number(one, message) == int(a) != int(b) == self._number(two, message)

    def _number(self, operation: str, message: str) -> int | None:
        op = self.history.operations[int(operation)]
        return dict(zip(op.ids(), op.seqs or [], strict=bool(op.seqs))).get(message)

    def given_to(self, number: str, a: str, b: str) -> bool:
        ops = [self.history.operations[n] for n in self.anomaly.witness]
        given = {(m, n) for o in ops for m, n in zip(o.ids(), o.seqs or [], strict=False)}
        return a != b and {(a, int(number)), (b, int(number))} <= given

    def numbered_rows(self, read: str, a: str, i: str, b: str, j: str) -> bool:
        ops = [self.history.operations[n] for n in self.anomaly.witness]
        given = {(m, n) for o in ops for m, n in zip(o.ids(), o.seqs or [], strict=False)}
        return (
            self._before(self.row(read), a, b)
            and int(i) > int(j)
            and {(a, int(i)), (b, int(j))} <= given
        )

    def smaller(self, append: str, i: str, other: str, j: str) -> bool:
        one, two = self.op(append, "append"), self.op(other, "append")
        tries = [
            o for o in self.history.sessions[two.session].appends if o.ids() == two.ids() and o.seqs
        ]
        return (
            one.completed_ns < two.invoked_ns
            and int(i) in (one.seqs or [])
            and int(i) > int(j)
            and any(int(j) in (o.seqs or []) for o in tries)
        )

    def outlived(
        self, read: str, message: str, extra: str, kind: str, began: str, seconds: str, append: str
    ) -> bool:
        row = self.row(read)
        since = self.history.operations[int(began)]
        first = self.op(append, "append")
        fits = extra in row and extra in since.ids() if kind == "append" else began == read
        return (
            message in row
            and message in first.ids()
            and fits
            and (f"{(since.invoked_ns - first.invoked_ns) / 1e9:.3f}" == seconds)
        )


_S = rf"({_SIGHT})"
_IT = rf"{_M} was {_S} before read (\d+) began and is missing from it"
_NOT_IT = rf"{_M} was {_S} before append (\d+) of {_M} began, and read (\d+) shows {_M} without it"
_ABOUT = rf"^{_M} was .*?read (\d+) (?:began and is missing from it|shows '[^']*' without it)"
_CLAUSES: tuple[tuple[str, str, Callable[..., bool]], ...] = (
    ("known and missing", rf"^{_IT}", _Look.missing_from_it),
    ("known and left out", rf"^{_NOT_IT}", _Look.shows_without_it),
    (
        "no later read",
        rf"{_ABOUT}, and no read that ended after read \2 began",
        _Look.no_later_read,
    ),
    (
        "no read that began later",
        rf"{_ABOUT}, and no read that began after read \2 ended",
        _Look.no_read_begun_later,
    ),
    ("nothing as old", rf": read (\d+) shows nothing as old as {_M},", _Look.nothing_as_old),
    ("shows nothing", r"(?:began|ended) shows it: read (\d+) shows nothing,", _Look.shows_nothing),
    ("a forget after", r"; forget (\d+) ended after read (\d+) began", _Look.forget_after),
    (
        "a forget that may be after",
        r"; forget (\d+) was not acknowledged and may have taken effect after read (\d+) began",
        _Look.open_forget_after,
    ),
    ("again", rf"{_ABOUT}, but (the later )?read (\d+) shows it", _Look.again),
    ("stale by", rf"^{_IT}.*: ([\d.]+) ms stale(?:, read by (.*))?$", _Look.stale_ms),
    (
        "asked for",
        r"read (\d+) (?:began and is missing from it|shows '[^']*' without it), which asked for the newest (\d+)",
        _Look.asked_for,
    ),
    (
        "cut by its limit",
        r"^read (\d+) shows \d+ of the \d+ messages .*, and asked for the newest (\d+)$",
        _Look.asked_for,
    ),
    (
        "also shows",
        rf"read (\d+) (?:began and is missing from it|shows '[^']*' without it), which asked for the newest \d+ and shows {_M}",
        _Look.also_shows,
    ),
    (
        "same append",
        rf"{_ABOUT}, which asked for the newest \d+ and shows {_M} of the same append",
        _Look.same_append,
    ),
    (
        "older",
        rf"and shows {_M}, which was {_S} before append (\d+) of {_M} began$",
        _Look.known_before_append,
    ),
    (
        "half forgotten",
        rf"^{_M} was {_S} and {_M} was {_S} before forget (\d+) began, and read (\d+) shows {_M} without {_M}$",
        _Look.half_forgotten,
    ),
    (
        "taken apart",
        rf"^read (\d+) shows {_M} and {_M} while forget (\d+) may take effect, and read (\d+) shows {_M} without {_M}$",
        _Look.taken_apart,
    ),
    (
        "resurrected",
        rf"^forget (\d+) began after (?:{_M} was {_S}|a fault ended append (\d+) of {_M}) and ended before read (\d+) began, which shows it again",
        _Look.resurrected,
    ),
    (
        "gone again",
        rf"^forget \d+ began after .*?{_M}.* read (\d+) began, which .* later read (\d+) does not$",
        _Look.gone_again,
    ),
    (
        "misplaced",
        rf"^(?:{_M} was {_S}|append (\d+) of {_M} was ended by a fault) before append (\d+) of {_M} began, yet read (\d+) shows {_M} after {_M}$",
        _Look.misplaced,
    ),
    ("disagree", rf"^read (\d+) shows {_M} before {_M}, read (\d+) after it$", _Look.disagree),
    ("too many", r"^read (\d+) asked for the newest (\d+) and got (\d+)$", _Look.too_many),
    ("twice", rf"^read (\d+) shows {_M} more than once, and (.*)$", _Look.twice),
    (
        "before it began",
        rf"^read (\d+) ended before append (\d+) of {_M} began$",
        _Look.before_it_began,
    ),
    (
        "leak",
        rf"^read (\d+) of session {_M} shows {_M}, which append (\d+) wrote to session {_M}$",
        _Look.leak,
    ),
    ("failed", rf"^append (\d+) of {_M} definitely failed, yet read (\d+) shows it$", _Look.failed),
    ("nobody", rf"^read (\d+) shows {_M}, which nobody ever appended$", _Look.nobody),
    (
        "torn",
        rf"^read (\d+) shows (\d+) of the (\d+) messages of append (\d+), and not {_M}(?:, and asked for the newest \d+)?$",
        _Look.torn,
    ),
    ("among", rf"^read (\d+) shows {_M} among the messages of append (\d+)$", _Look.among),
    (
        "other order",
        r"^read (\d+) shows the messages of append (\d+) in another order$",
        _Look.other_order,
    ),
    ("lacks", rf"explains them all: read (\d+) lacks {_M}$", _Look.lacks),
    ("shows", rf"explains them all: read (\d+) shows {_M}$", _Look.also_shows),
    ("shows without", rf"explains them all: read (\d+) shows {_M} without {_M}$", _Look.shows_but),
    ("shows before", rf"explains them all: read (\d+) shows {_M} before {_M}$", _Look.shows_before),
    ("wrote", rf"explains them all: append (\d+) wrote {_M}$", _Look.wrote),
    (
        "numbers differ",
        rf"^{_M} has number (\d+) in operation (\d+) and (\d+) in operation (\d+)$",
        _Look.numbers_differ,
    ),
    ("given to", rf"^number (\d+) was given to {_M} and to {_M}$", _Look.given_to),
    (
        "numbered",
        rf"^read (\d+) shows {_M}, number (\d+), before {_M}, number (\d+)$",
        _Look.numbered_rows,
    ),
    (
        "smaller",
        r"^append (\d+) was acknowledged with number (\d+) before append (\d+) began, which got the smaller number (\d+)$",
        _Look.smaller,
    ),
    (
        "outlived",
        rf"^read (\d+) shows {_M}(?: and {_M})?; (read|append) (\d+) began ([\d.]+) s after append (\d+) of it did",
        _Look.outlived,
    ),
)
