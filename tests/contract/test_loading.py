"""What a load may do: whole and sound sessions or nothing, and never anything beside them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Conflict, Damaged, FormatTooNew, SessionState, UsageError
from holdfast.commands import Command, Copy, Facts, ImportSession
from tests.contract.harness import AnyStore, AsyncApi, Opener, say, texts
from tests.exports import FUTURE_MS, NUMBER_MAX, PAST_MS, export, head, session, wrong_files
from tests.waiting import wait_until

REFUSALS = (UsageError, Damaged, FormatTooNew)


class Canaries:
    """Sessions of others in the same engine, before and after the one that is loaded."""

    def __init__(self, open_store: Opener) -> None:
        self.stores = [open_store(namespace="bank"), open_store(namespace="guest")]
        for store in self.stores:
            for name in ("alice", "bob"):
                store.append(name, [say(f"{name} 1"), say(f"{name} 2")], key="k", ttl_s=3600)
                store.append(name, say(f"{name} 3"))
        self.before = self._look()

    def _look(self) -> list[list[str]]:
        return [
            line
            for store in self.stores
            for name in ("alice", "bob")
            for line in [list(store.export(prefix=name))]
        ]

    def check(self, what: str) -> None:
        assert self._look() == self.before, what

    def check_writable(self) -> None:
        """New sessions begin, and what is there goes on."""
        for store in self.stores:
            for at in range(3):
                name = f"new {at}"
                assert store.append(name, [say("x"), say("y")]).first == 1
                assert texts(store.history(name)) == ["x", "y"]
                store.forget(name)
            assert store.append("alice", say("alice 4")).first == 4
            assert texts(store.history("alice")) == [f"alice {n}" for n in (1, 2, 3, 4)]


def test_no_wrong_number_is_loaded_and_nobody_else_is_touched(open_store: Opener):
    canaries = Canaries(open_store)
    guest = canaries.stores[1]
    wrong: list[str] = []
    for what, lines in wrong_files().items():
        try:
            guest.load(lines)
            wrong.append(f"{what}: loaded")
        except REFUSALS as error:
            if "line" not in str(error) or "loaded" not in str(error):
                wrong.append(f"{what}: says neither where nor what is loaded: {error}")
        except Exception as error:  # noqa: BLE001 - that is the finding
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:100]}")
        if guest.stat("evil").state is not SessionState.NEVER or guest.sessions(prefix="after"):
            wrong.append(f"{what}: something of it was written")
            guest.forget("evil")
    assert not wrong, "\n".join(wrong)
    canaries.check("one of them touched what belongs to others")
    assert texts(guest.history("before")) == ["b1", "b2"]
    canaries.check_writable()


def test_numbers_at_their_borders_are_loaded(store: AnyStore):
    digest = "ab" * 16
    lines = export(
        session("top", ["x", "y"], last=NUMBER_MAX, keys=[[digest, NUMBER_MAX, NUMBER_MAX]]),
        session("high floor", ["z"], last=2**31),
        [head("empty top", 0, last=NUMBER_MAX)],
        [head("gone", 0, last=NUMBER_MAX, state="forgotten", keys=[[digest, 1, NUMBER_MAX]])],
        [head("nothing", 0)],
        [head("over", 0, last=7, state="expired", ttl_s=0.001)],
        session("long", ["w"], ttl_s=100 * 366 * 24 * 3600, expires_at_ms=FUTURE_MS),
    )
    assert store.load(lines).sessions == 7
    assert [(m.seq, m.content) for m in store.history("top")] == [
        (NUMBER_MAX - 1, "x"),
        (NUMBER_MAX, "y"),
    ]
    assert store.append("high floor", say("more")).first == 2**31 + 1
    assert store.append("over", say("more")).first == 8
    assert store.append("nothing", say("more")).first == 1
    stat = store.stat("long")
    assert stat.expires_at is not None
    assert stat.expires_at.year == 3000
    again = store.load([*lines[:4], '{"end":true,"sessions":1}'])
    assert (again.sessions, again.present) == (0, 1)


def execute(store: AnyStore, command: Command[Any]) -> Any:
    """Past every check of ours, to the engine."""
    if isinstance(store, AsyncApi):
        backend = store.store._backend

        async def wait() -> Any:
            return await backend.execute(command)

        return store._run(wait())
    return store._backend.execute(command)


LIVE, EXPIRED = SessionState.LIVE, SessionState.EXPIRED
RAW = b'{"role":"user","content":"forged"}'
KEY = b"0123456789abcdef"


def copy(last: int, *numbers: int, **more: Any) -> Copy:
    rows = [(number, RAW) for number in numbers]
    keys = more.pop("keys", ())
    facts = Facts(more.pop("state", LIVE), last, len(rows), len(rows) * len(RAW), **more)
    return Copy(facts, rows, keys)


UNFIT = {
    "number 0": copy(0, 0),
    "number -1": copy(-1, -1),
    "number 2**32+1": copy(2**32 + 1, 2**32 + 1),
    "number 2**63": copy(2**63, 2**63),
    "numbers beyond the last": copy(NUMBER_MAX + 1, NUMBER_MAX, NUMBER_MAX + 1),
    "a gap": copy(3, 1, 3),
    "a gap that last hides": copy(2, 1, 3),
    "disorder": copy(2, 2, 1),
    "last 2**32": copy(2**32),
    "last 2**40": copy(2**40, expires_ms=PAST_MS, ttl_ms=1000),
    "last 2**63": copy(2**63),
    "last -1": copy(-1),
    "last after the final message": copy(5, 1, 2),
    "expired with messages": copy(1, 1, state=EXPIRED),
    "forgotten with messages": copy(1, 1, state=SessionState.FORGOTTEN),
    "forgotten with a time to live": copy(1, state=SessionState.FORGOTTEN, ttl_ms=5),
    "forgotten with an expiry": copy(1, state=SessionState.FORGOTTEN, expires_ms=PAST_MS),
    "never": copy(1, state=SessionState.NEVER),
    "key from 0": copy(1, 1, keys=[(KEY, 0, 1)]),
    "key backwards": copy(2, 1, 2, keys=[(KEY, 2, 1)]),
    "key beyond the session": copy(1, 1, keys=[(KEY, 1, 2)]),
    "key 2**63": copy(1, 1, keys=[(KEY, 1, 2**63)]),
    "key beyond an expired session": copy(1, state=EXPIRED, keys=[(KEY, 1, 2)]),
    "digest of 15 bytes": copy(1, 1, keys=[(KEY[1:], 1, 1)]),
    "digest of 17 bytes": copy(1, 1, keys=[(KEY + b"0", 1, 1)]),
    "digest twice": copy(2, 1, 2, keys=[(KEY, 1, 1), (KEY, 2, 2)]),
    "ttl 0": copy(1, 1, ttl_ms=0),
    "ttl -1": copy(1, 1, ttl_ms=-1),
    "ttl of a thousand years": copy(1, 1, ttl_ms=1000 * 366 * 24 * 3600 * 1000),
    "ttl 2**63": copy(1, 1, ttl_ms=2**63),
    "expiry -1": copy(1, 1, ttl_ms=5, expires_ms=-1),
    "expiry after the year 9999": copy(1, 1, ttl_ms=5, expires_ms=2**53),
    "expiry 2**63": copy(1, 1, ttl_ms=5, expires_ms=2**63),
}


def test_engines_themselves_refuse_what_no_session_can_be(open_store: Opener):
    canaries = Canaries(open_store)
    guest = canaries.stores[1]
    wrong: list[str] = []
    for what, unfit in UNFIT.items():
        try:
            execute(guest, ImportSession(b"evil", unfit))
            wrong.append(f"{what}: written")
        except UsageError as error:
            if "nothing was written" not in str(error):
                wrong.append(f"{what}: does not say that nothing was written: {error}")
        except Exception as error:  # noqa: BLE001 - that is the finding
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:100]}")
        if guest.stat("evil").state is not SessionState.NEVER:
            wrong.append(f"{what}: something of it was written")
            guest.forget("evil")
    assert not wrong, "\n".join(wrong)
    canaries.check("one of them touched what belongs to others")
    assert "evil" not in "".join(guest.export())
    canaries.check_writable()


def test_a_refused_put_does_not_take_others_in_its_group_with_it(open_store: Opener):
    """Writes that arrive together may share a transaction."""
    store = open_store()
    unfit = copy(1, 1, keys=[(KEY[1:], 1, 1)])  # on SQLite the one that a constraint refuses
    if isinstance(store, AsyncApi):
        inner = store.store

        async def both() -> list[Any]:
            puts = (inner._backend.execute(ImportSession(b"evil", unfit)) for _ in range(5))
            appends = (inner.append(f"s{n}", say("x")) for n in range(20))
            return list(await asyncio.gather(*puts, *appends, return_exceptions=True))

        outcomes = store._run(both())
    else:
        outcomes = _in_threads(
            [lambda: execute(store, ImportSession(b"evil", unfit))] * 5
            + [lambda n=n: store.append(f"s{n}", say("x")) for n in range(20)]
        )
    assert all(isinstance(one, UsageError) for one in outcomes[:5]), outcomes[:5]
    assert [one.first for one in outcomes[5:]] == [1] * 20
    assert store.stat("evil").state is SessionState.NEVER


def _in_threads(calls: list[Any]) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    def call(one: Any) -> Any:
        try:
            return one()
        except Exception as error:  # noqa: BLE001 - it is the outcome
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


# What has expired.


def test_what_has_expired_meanwhile_is_loaded_as_expired(open_store: Opener):
    store = open_store()
    lines = export(
        session("over", ["SECRET one", "SECRET two"], ttl_s=60, expires_at_ms=PAST_MS),
        session("rewritten", ["SECRET three"], last=9, ttl_s=60, expires_at_ms=PAST_MS),
        session("still", ["kept"]),
    )
    assert store.load(lines).sessions == 3
    for name, last in (("over", 2), ("rewritten", 9)):
        history = store.history(name)
        assert (history.state, texts(history)) == (SessionState.EXPIRED, [])
        stat = store.stat(name)
        assert (stat.last, stat.count, stat.bytes, stat.ttl_s) == (last, 0, 0, 60)
    for _ in range(4):  # each write of a store that was just opened sweeps
        with open_store() as other:
            other.append("busy", say("x"))
    assert not [line for line in store.export() if "SECRET" in line]
    if open_store.harness.scrubs:
        assert open_store.harness.leftovers(b"SECRET") == []
    assert store.append("over", say("new")).first == 3
    assert texts(store.history("over")) == ["new"]
    assert store.append("rewritten", say("new")).first == 10
    assert texts(store.history("rewritten")) == ["new"]
    assert texts(store.history("still")) == ["kept"]


def test_keys_of_what_was_loaded_expired_stay_used(store: AnyStore, open_store: Opener):
    source = open_store(namespace="source")
    source.append("over", say("old"), key="k", ttl_s=3600)
    lines = _expired(list(source.export()), "over")
    store.load(lines)
    again = store.append("over", say("old"), key="k")
    assert (again.repeated, again.first, again.last) == (True, 1, 1)
    assert texts(store.history("over")) == []


def _expired(lines: list[str], name: str) -> list[str]:
    """The same backup, years later."""
    changed = [json.loads(line) for line in lines]
    for line in changed:
        if line.get("session") == name:
            line["expires_at_ms"] = PAST_MS
    return [json.dumps(line) for line in changed]


# Loads that are repeated.


def test_a_load_goes_on_after_a_session_has_expired(open_store: Opener):
    source, store = open_store(namespace="source"), open_store()
    source.append("a", say("x"), key="k")
    source.append("b", [say("y"), say("z")], ttl_s=0.5, key="k")
    source.append("c", say("w"))
    lines = list(source.export())
    assert texts(source.history("b")) == ["y", "z"], "too slow: it expired before it was exported"
    half = lines[:6]
    with pytest.raises(Damaged, match="cut short"):
        store.load(half)
    wait_until(lambda: store.stat("b").state is SessionState.EXPIRED)
    loaded = store.load(lines)
    assert (loaded.sessions, loaded.present) == (1, 2)
    assert texts(store.history("c")) == ["w"]
    with open_store() as other:  # it sweeps
        other.append("busy", say("x"))
    again = store.load(lines)
    assert (again.sessions, again.present) == (0, 3)
    assert texts(store.history("b")) == []


def test_a_load_can_be_interrupted_at_any_line_and_repeated(open_store: Opener):
    class Cut(Exception):
        pass

    def cut(lines: list[str], at: int) -> Iterator[str]:
        yield from lines[:at]
        raise Cut

    over = {"ttl_s": 60, "expires_at_ms": PAST_MS}
    lines = export(
        session("a", ["a1", "a2"]),
        session("b", ["b1"], **over),
        [head("c", 0, last=3, state="expired", ttl_s=60)],
        [head("d", 0, last=3, state="forgotten")],
        session("e", ["e1"], last=5),
    )
    for at in range(len(lines) + 1):
        store = open_store(namespace=f"cut{at}")
        with pytest.raises(Cut):
            store.load(cut(lines, at))
        loaded = store.load(lines)
        assert loaded.sessions + loaded.present == 5, at
        assert (texts(store.history("a")), texts(store.history("e"))) == (["a1", "a2"], ["e1"])
        assert store.load(lines).present == 5


def test_a_session_that_really_differs_is_a_conflict_that_says_what_was_loaded(open_store: Opener):
    for change in ("text", "key", "ttl", "forgotten", "more", "no expiry"):
        with open_store(namespace=change) as store:
            _differs(store, change)


def _differs(store: AnyStore, change: str) -> None:
    key = ["ab" * 16, 1, 1]
    timed = {"ttl_s": 3600, "expires_at_ms": FUTURE_MS, "keys": [key]}
    there = {
        "text": session("b", ["other"], **timed),
        "key": session("b", ["b1"], **{**timed, "keys": []}),
        "ttl": session("b", ["b1"], **{**timed, "ttl_s": 60}),
        "forgotten": [head("b", 0, last=1, state="forgotten", keys=[key])],
        "more": session("b", ["b1", "b2"], **timed),
        "no expiry": [head("b", 0, last=1, state="expired", ttl_s=60, keys=[key])],
    }[change]
    if change == "no expiry":
        timed["expires_at_ms"] = None
    store.load(export(there))
    before = list(store.export(prefix="b"))
    lines = export(session("a", ["a1"]), session("b", ["b1"], **timed), session("c", ["c1"]))
    with pytest.raises(Conflict) as caught:
        store.load(lines)
    words = str(caught.value)
    assert "'b'" in words
    assert "differs" in words
    assert "1 whole session(s) before it" in words
    assert "'a'" in words
    assert "nothing of the rest" in words
    assert texts(store.history("a")) == ["a1"]
    assert list(store.export(prefix="b")) == before
    assert store.stat("c").state is SessionState.NEVER


def test_what_the_file_is_not_is_said_as_an_error_of_ours(store: AnyStore):
    def broken() -> Iterator[str]:
        yield from export(session("a", ["x"]))[:3]
        b"\xff".decode()

    with pytest.raises(UsageError, match="UTF-8.*1 whole session"):
        store.load(broken())


def test_a_closed_store_says_what_was_loaded(open_store: Opener):
    store = open_store()

    def lines() -> Iterator[str]:
        file = export(session("a", ["x"]), session("b", ["y"]))
        yield from file[:3]
        inner = store.store if isinstance(store, AsyncApi) else store
        inner._closed = True
        yield from file[3:]

    with pytest.raises(UsageError, match=r"closed.*1 whole session\(s\) before it"):
        store.load(lines())
