"""11 loud: every failure is an error that says done, not done or unknown."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from typing import Any

import pytest

import holdfast
from holdfast import AsyncStore, Message, Store, StoreClosed, UsageError
from tests.contract.harness import AnyStore, Harness, Opener, say, texts


def test_a_closed_store_says_so_and_writes_nothing(open_store: Opener):
    store = open_store()
    store.append("s", say("a"))
    store.close()
    if isinstance(store, Store):
        for use in (
            lambda: store.append("s", say("b")),
            lambda: store.history("s"),
            lambda: store.forget("s"),
            lambda: store.stat("s"),
            store.sessions,
            lambda: list(store.export()),
            lambda: store.rewrite("s", []),
        ):
            with pytest.raises(StoreClosed, match="Connect again"):
                use()
    store.close()
    assert texts(open_store().history("s")) == ["a"]


@pytest.mark.parametrize("url", ["", "memory.db", "mysql://localhost/x", "sqlit:///x", 7, None])
def test_an_unknown_url_is_refused_with_the_known_ones(url: object):
    with pytest.raises(UsageError, match="sqlite:///memory.db"):
        holdfast.connect(url)  # type: ignore[arg-type]


def test_require_must_be_a_level(open_store: Opener):
    with pytest.raises(UsageError, match=r"Durability\.DISK"):
        open_store(require=2)


def test_an_append_of_nothing_is_refused(store: AnyStore):
    with pytest.raises(UsageError, match="at least one message"):
        store.append("s", [])


def test_an_expectation_must_be_a_number(store: AnyStore):
    wrongs: list[Any] = [-1, 1.0, "1", True]
    for expect in wrongs:
        with pytest.raises(UsageError, match="expect"):
            store.append("s", say("x"), expect=expect)


def test_errors_cross_a_process_boundary_with_their_cause():
    try:
        try:
            raise OSError(28, "No space left on device")
        except OSError as cause:
            raise holdfast.EngineFull("full", operation="append", backend="x") from cause
    except holdfast.EngineFull as error:
        back = pickle.loads(pickle.dumps(error))
    assert type(back) is holdfast.EngineFull
    assert (str(back), back.operation, back.backend) == ("full", "append", "x")
    assert isinstance(back.__cause__, OSError)


def test_a_cause_that_cannot_be_pickled_leaves_its_words():
    class Local(Exception):
        pass

    error = holdfast.OutcomeUnknown("?")
    error.__cause__ = Local("the reason")
    back = pickle.loads(pickle.dumps(error))
    assert str(back.__cause__) == "Local: the reason"


def test_both_apis_have_the_same_surface():
    def surface(kind: type) -> dict[str, str]:
        return {
            name: str(inspect.signature(member)).split(" -> ")[0]
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    ours, theirs = surface(Store), surface(AsyncStore)
    theirs["load"] = theirs["load"].replace(" | AsyncIterable[str]", "")
    assert ours == theirs


def test_cancelling_an_append_never_leaves_it_half_known(harness: Harness):
    async def scenario() -> None:
        async with await holdfast.connect_async(harness.url) as store:
            for turn in range(30):
                task = asyncio.create_task(store.append("s", Message("user", str(turn))))
                for _ in range(turn % 4):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await task
                    done = True
                except asyncio.CancelledError as cancelled:
                    notes = getattr(cancelled, "__notes__", [])
                    done = any(note.startswith("append: done") for note in notes)
                there = texts(await store.history("s"))
                assert (str(turn) in there) is done, "the outcome told is not the outcome"

    asyncio.run(scenario())


def test_many_tasks_share_one_store(harness: Harness):
    async def scenario() -> None:
        async with await holdfast.connect_async(harness.url) as store:

            async def turn(number: int) -> None:
                await store.append(f"s{number % 5}", [say(f"{number}?"), say(f"{number}!")])
                assert f"{number}!" in texts(await store.history(f"s{number % 5}"))

            await asyncio.gather(*(turn(number) for number in range(100)))
            for session in range(5):
                history = texts(await store.history(f"s{session}"))
                assert len(history) == 40
                assert [text[:-1] for text in history[0::2]] == [
                    text[:-1] for text in history[1::2]
                ]

    asyncio.run(scenario())
