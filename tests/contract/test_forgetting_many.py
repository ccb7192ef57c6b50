"""Forgetting all that begin alike, or were not written to for long: a receipt, in pages, to be repeated."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Conflict, Forgotten, Message, SessionState, UsageError, erasure
from holdfast.commands import Facts, Forget, Names, Removed, StatSession
from holdfast.runner import run
from tests.contract.harness import AnyStore, AsyncApi, Opener, say, texts
from tests.recall.models import Letters


@pytest.fixture
def store(open_store: Opener) -> AnyStore:
    return open_store(embedder=Letters())


def test_one_person_is_forgotten_everywhere_and_nobody_else(store: AnyStore):
    for session in ("u/1/a", "u/1/b", "u/10/a", "u/2"):
        store.append(session, [say(f"{session} 1"), say(f"{session} 2")], key="k")
    store.remember("u/1/a", "tea without sugar")
    store.remember("u/1/only", "a scope without a session")
    store.forget("u/1/b")
    store.append("u/1/b", say("again"))
    receipt = store.forget(prefix="u/1/")
    assert isinstance(receipt, Forgotten)
    assert receipt.sessions == ("u/1/a", "u/1/b", "u/1/only")
    assert (receipt.messages, receipt.memories, receipt.kept, receipt.before) == (3, 2, 0, 0)
    assert receipt.bytes > 0
    for gone in ("u/1/a", "u/1/b"):
        assert store.stat(gone).state is SessionState.FORGOTTEN
        assert store.append(gone, say("late"), key="k").repeated
    assert [list(store.memories(scope)) for scope in ("u/1/a", "u/1/only")] == [[], []]
    assert list(store.recall("u/1/a", "sugar")) == []
    assert texts(store.history("u/10/a")) == ["u/10/a 1", "u/10/a 2"]
    assert store.sessions() == ["u/10/a", "u/2"]
    again = store.forget(prefix="u/1/")
    assert (again.sessions, again.messages, again.before) == ((), 0, 3)


def passed() -> datetime:
    """An instant between two writes: engines count milliseconds."""
    instant = datetime.now(UTC) + timedelta(milliseconds=5)
    while datetime.now(UTC) < instant + timedelta(milliseconds=5):
        time.sleep(0.002)
    return instant


def test_what_was_not_written_to_for_long_goes_and_what_was_stays(store: AnyStore):
    for session in ("old/1", "old/2", "new"):
        store.append(session, say("hello"))
    store.remember("old/2", "noted later")
    marked = passed()
    store.append("new", Message("user", "with an old date", created_at=None))
    store.remember("old/2", "and again")
    receipt = store.forget(older_than=marked)
    assert (receipt.sessions, receipt.kept) == (("old/1",), 2)
    assert store.forget(prefix="old/", older_than=3600).kept == 1
    assert store.forget(prefix="old/", older_than=timedelta(hours=1)).sessions == ()
    passed()
    assert store.forget(older_than=0).sessions == ("new", "old/2")
    assert store.sessions() == []


def test_what_is_written_to_after_it_was_looked_at_stays(store: AnyStore):
    store.append("s", say("1"))
    store.remember("s", "a")

    def try_forget(lasts: tuple[int, int]) -> None:
        command = Forget(b"s", lasts=lasts)
        if isinstance(store, AsyncApi):
            store._run(_awaited(store.store._backend, command))
        else:
            store._backend.execute(command)

    for stale in ((0, 1), (1, 0), (2, 1)):
        with pytest.raises(Conflict):
            try_forget(stale)
        assert texts(store.history("s")) == ["1"]
    try_forget((1, 1))
    assert store.stat("s").state is SessionState.FORGOTTEN


async def _awaited(backend: Any, command: Forget) -> Any:
    return await backend.execute(command)


def test_pages_report_progress_and_a_call_that_was_broken_off_goes_on(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.erasure.PAGE", 2)
    store = open_store()
    for number in range(5):
        store.append(f"p/{number}", say("x"))
    store.append("q", say("x"))

    def stop_after_two(receipt: Forgotten) -> None:
        if len(receipt.sessions) >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.forget(prefix="p/", progress=stop_after_two)
    assert store.sessions() == ["p/2", "p/3", "p/4", "q"]
    seen: list[Forgotten] = []
    receipt = store.forget(prefix="p/", progress=seen.append)
    assert receipt.sessions == ("p/2", "p/3", "p/4")
    assert receipt.before == 2
    assert [len(one.sessions) for one in seen] == [0, 2, 3]
    assert store.sessions() == ["q"]


@pytest.mark.parametrize(
    "wrong",
    [{}, {"session": "s", "prefix": ""}, {"session": "s", "older_than": 1}, {"prefix": 5},
     {"older_than": -1}, {"older_than": "1d"}, {"older_than": True}, {"prefix": "", "now": "soon"},
     {"older_than": timedelta(seconds=-1)}, {"older_than": datetime(2026, 1, 1)}],  # noqa: DTZ001 - that is the mistake
)  # fmt: skip
def test_what_makes_no_sense_is_refused(store: AnyStore, wrong: dict[str, Any]):
    store.append("s", say("stays"))
    with pytest.raises(UsageError):
        store.forget(**wrong)
    assert store.sessions() == ["s"]


def test_the_receipt_of_four_times_as_many_takes_about_four_times_as_long():
    """Of the steps alone: names and facts as any engine gives them, without one."""
    took = [min(_receipt_s(count) for _ in range(2)) for count in (5_000, 20_000)]
    assert took[1] < 9 * took[0]  # 16 times, if every name were copied for each


def _receipt_s(count: int) -> float:
    names = [b"%06d" % number for number in range(count)]

    def reply(asked: Any) -> Any:
        if isinstance(asked, Names):
            at = 0 if asked.after is None else int(asked.after) + 1
            return [] if asked.prefix else names[at : at + erasure.PAGE]
        live = Facts(SessionState.LIVE, 1, 1, 1)
        return live if isinstance(asked, StatSession) else Removed(1, 1)

    began = time.process_time()
    receipt = run(erasure._forget(None, False, "", None, None, apart=False), reply)
    took_s = time.process_time() - began
    assert isinstance(receipt, Forgotten)
    assert len(receipt.sessions) == receipt.messages == count
    return took_s
