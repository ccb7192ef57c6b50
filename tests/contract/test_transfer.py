"""Export and load: JSON Lines, exact, any backend to any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Conflict, Damaged, FormatTooNew, SessionState, UsageError
from tests.contract.harness import AnyStore, Harness, Opener, say, texts
from tests.contract.test_faithful import CONTENTS
from tests.contract.test_isolated import ODD_IDS


def fill(store: AnyStore) -> None:
    store.append("all", [holdfast.Message("user", content) for content in CONTENTS[:15]])
    for odd in ODD_IDS:
        store.append(odd, say(odd), key="k")
    store.append("brief", say("x"), ttl_s=3600)
    store.append("rewritten", [say("a"), say("b")])
    store.rewrite("rewritten", say("c"))
    store.append("gone", say("secret"), key="k")
    store.forget("gone")


def test_everything_moves_exactly(open_store: Opener):
    one, two = open_store(), open_store(namespace="copy")
    fill(one)
    lines = list(one.export())
    loaded = two.load(lines)
    assert loaded.sessions == len(ODD_IDS) + 4
    assert list(two.export()) == lines
    for name in [*ODD_IDS, "all", "brief", "rewritten"]:
        before, after = one.history(name), two.history(name)
        assert after == before
        assert [message.seq for message in after] == [message.seq for message in before]
        assert one.stat(name) == two.stat(name)


def test_what_was_forgotten_stays_forgotten_after_a_move(open_store: Opener):
    one, two = open_store(), open_store(namespace="copy")
    fill(one)
    two.load(one.export())
    assert two.history("gone").state is SessionState.FORGOTTEN
    assert two.append("gone", say("secret"), key="k").repeated
    assert texts(two.history("gone")) == []
    assert two.append("foo", say("foo"), key="k").repeated
    assert two.append("rewritten", say("d")).first == 4


def test_every_line_is_valid_utf8_json(store: AnyStore):
    fill(store)
    for line in store.export():
        assert json.loads(line.encode("utf-8").decode("utf-8"))


def test_damaged_records_move_as_they_are(open_store: Opener):
    one = open_store()
    one.append("s", [say("a"), say("b"), say("c")])
    open_store.harness.tamper("s", 2, b"\xff not a record")
    lines = list(one.export())
    two = open_store(namespace="copy")
    two.load(lines)
    assert texts(two.history("s")) == ["a", "c"]
    assert two.history("s").damaged == one.history("s").damaged


def test_a_load_can_be_repeated_and_refuses_what_differs(open_store: Opener):
    one, two = open_store(), open_store(namespace="copy")
    one.append("a", say("x"))
    one.append("b", say("y"))
    lines = list(one.export())
    assert two.load(lines).sessions == 2
    again = two.load(lines)
    assert (again.sessions, again.present) == (0, 2)
    two.append("b", say("more"))
    with pytest.raises(Conflict, match="differs"):
        two.load(lines)
    assert texts(two.history("b")) == ["y", "more"]


SPOILT: list[tuple[Callable[[list[str]], list[str]], type[Exception], str]] = [
    (lambda lines: lines[1:], UsageError, "line 1 "),
    (lambda lines: [*lines[:2], "not json"], UsageError, "line 3 "),
    (lambda lines: lines[:-1], Damaged, "cut short"),
    (lambda lines: [*lines[:2], *lines[3:]], UsageError, "line 3 .*must be 1, not 2"),
    (lambda lines: lines[:3] + lines[-1:], Damaged, "missing"),
    (lambda _: [], Damaged, "cut short"),
    (lambda _: ['{"holdfast_export":9}'], FormatTooNew, "Upgrade"),
    (lambda lines: [lines[0], lines[2]], UsageError, "record of no session"),
]


def test_a_spoilt_export_is_named_by_line_and_loads_no_half_session(open_store: Opener):
    one = open_store()
    one.append("a", [say("x"), say("y")])
    one.append("b", [say("z")])
    for number, (spoil, error, words) in enumerate(SPOILT):
        with open_store(namespace=f"copy{number}") as two:
            with pytest.raises(error, match=words):
                two.load(spoil(list(one.export())))
            assert texts(two.history("a")) in ([], ["x", "y"])
            assert texts(two.history("b")) in ([], ["z"])


def test_only_what_begins_with_a_prefix(open_store: Opener):
    one, two = open_store(), open_store(namespace="copy")
    for name in ("user-1", "user-2", "admin"):
        one.append(name, say(name))
    assert two.load(one.export(prefix="user-")).sessions == 2
    assert two.sessions() == ["user-1", "user-2"]


def test_an_async_export_can_be_loaded_as_it_comes(harness: Harness):
    async def scenario() -> None:
        async with (
            await holdfast.connect_async(harness.url) as one,
            await holdfast.connect_async(harness.url, namespace="copy") as two,
        ):
            await one.append("s", [say("a"), say("b")])
            assert (await two.load(one.export())).messages == 2
            assert texts(await two.history("s")) == ["a", "b"]

    asyncio.run(scenario())
