"""Real exports, spoilt at random, loaded beside others: no effect outside, no error outside the tree."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Conflict, Damaged, FormatTooNew, UsageError
from tests.contract.harness import AnyStore, Opener, say, texts
from tests.exports import FUTURE_MS, NUMBER_MAX, PAST_MS

EXAMPLES = 25
NUMBERS = [0, -1, 1, 2, 3, 2**31, NUMBER_MAX, 2**32, 2**32 + 1, 2**40, 2**53 + 1, 2**63, 10**400]
OTHERS: list[Any] = [
    None,
    True,
    1.5,
    "",
    "1",
    "x",
    "live",
    "forgotten",
    "\ud800",
    [],
    {},
    [[]],
    [["", 1, 1]],
]
VALUES = [*NUMBERS, *OTHERS, PAST_MS, FUTURE_MS, 1e308]
LINES = ["", "{}", "[]", "0", "{", '"\\ud800"', '{"end":true,"sessions":1}', '{"seq":1}', "\x00"]

MUTATION = st.one_of(
    st.tuples(st.just("value"), st.integers(0, 99), st.integers(0, 99), st.sampled_from(VALUES)),
    st.tuples(st.just("drop"), st.integers(0, 99), st.integers(0, 99), st.none()),
    st.tuples(st.just("swap"), st.integers(0, 99), st.integers(0, 99), st.none()),
    st.tuples(st.just("twice"), st.integers(0, 99), st.integers(0, 99), st.none()),
    st.tuples(st.just("cut"), st.integers(0, 99), st.integers(0, 99), st.none()),
    st.tuples(st.just("line"), st.integers(0, 99), st.integers(0, 99), st.sampled_from(LINES)),
)


def paths(value: Any, upto: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # fmt: skip
    return [path for key, one in inside for path in ((*upto, key), *paths(one, (*upto, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def spoilt(lines: list[str], mutations: list[Any]) -> list[str]:
    lines = list(lines)
    for what, line, other, new in mutations:
        at, to = line % len(lines), other % len(lines)
        if what == "value" and lines[at].startswith('{"'):
            try:
                value = json.loads(lines[at])
            except ValueError:
                continue
            places = paths(value)
            put(value, places[other % len(places)], new)
            lines[at] = json.dumps(value)
        elif what == "drop" and len(lines) > 1:
            del lines[at]
        elif what == "swap":
            lines[at], lines[to] = lines[to], lines[at]
        elif what == "twice":
            lines.insert(to, lines[at])
        elif what == "cut":
            lines[at] = lines[at][: other * len(lines[at]) // 100]
        elif what == "line":
            lines.insert(at, new)
    return lines


def source(store: AnyStore) -> list[str]:
    """Every kind of session that there is."""
    store.append("a", [say("a1"), say("a2")], key="k")
    store.append("brief", say("x"), ttl_s=3600, key="k")
    store.append("rewritten", [say("r1"), say("r2")])
    store.rewrite("rewritten", say("r3"))
    store.rewrite("emptied", [])
    store.append("gone", say("g"), key="k")
    store.forget("gone")
    store.append("\ud800 odd", say("\ud800"))
    return list(store.export())


def names(lines: list[str]) -> list[str]:
    return [json.dumps(line[key]) for one in lines for line in [json.loads(one)]
            for key in ("session", "session_b64") if key in line]  # fmt: skip


def session_lines(lines: list[str]) -> list[str]:
    return [line for line in lines if '"messages"' in line]


def check_loaded(store: AnyStore, where: str) -> None:
    """Whatever was let in is a session like any other."""
    for name in store.sessions():
        history = store.history(name)
        numbers = sorted([m.seq or 0 for m in history] + [d.seq for d in history.damaged])
        assert numbers == list(range(history.last - len(numbers) + 1, history.last + 1)), where
        if store.stat(name).last < NUMBER_MAX:
            assert store.append(name, say("more")).first == store.stat(name).last
            assert texts(store.history(name))[-1] == "more"


def said_by(error: Exception) -> int:
    """How many sessions are loaded, in the words of an error."""
    found = re.search(r"(\d+) whole session\(s\) before it", str(error))
    assert found, f"does not say what is loaded: {error}"
    return int(found[1])


def test_a_spoilt_export_touches_nothing_else_and_says_what_it_wrote(open_store: Opener):
    lines = source(open_store(namespace="source"))
    canary = open_store(namespace="canary")
    canary.append("a", [say("c1"), say("c2")], key="k", ttl_s=3600)
    canary.append("gone", say("c3"))
    before = list(canary.export())
    numbers = itertools.count()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(MUTATION, min_size=1, max_size=3))
    def one(mutations: list[Any]) -> None:
        file = spoilt(lines, mutations)
        with open_store(namespace=f"guest{next(numbers)}") as guest:
            guest.append("own", [say("o1"), say("o2")], key="k")
            own = list(guest.export(prefix="own"))
            try:
                loaded = guest.load(file)
                said = loaded.sessions + loaded.present
            except (UsageError, Damaged, FormatTooNew, Conflict) as error:
                said = said_by(error)
            written = len(names(list(guest.export()))) - 1
            again = session_lines(file)
            assert written == said or (written < said and len(again) > len(set(again))), file
            assert list(guest.export(prefix="own")) == own
            check_loaded(guest, str(file))
        assert list(canary.export()) == before

    one()
    assert canary.append("a", say("c4")).first == 3
    assert canary.append("new", say("n")).first == 1
