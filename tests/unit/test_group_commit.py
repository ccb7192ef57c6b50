"""Group commit by itself: who leaves and who arrives cannot miss each other, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from holdfast import EngineUnreachable, OutcomeUnknown, StoreClosed, limits
from holdfast.backends import group_commit
from holdfast.backends.group_commit import GroupCommit
from holdfast.backends.slots import Slots
from holdfast.backends.writes import TaskWrite, ThreadWrite, Write
from holdfast.commands import Append
from tests.waiting import wait_until

BYTES_MAX = 4 * 1024 * 1024
OURS = ("backends/group_commit.py", "backends/slots.py", "backends/writes.py")


class Interrupted(BaseException):
    """What a signal's handler raises."""


def commit(
    *,
    under_way_max: int = 1,
    by_session: bool = False,
    kind: type[GroupCommit] = GroupCommit,
    **settings: Any,
) -> GroupCommit:
    bounds = {"queue_timeout_s": 30.0, "outcome_timeout_s": 30.0, **settings}
    return kind(
        backend="test",
        under_way_max=under_way_max,
        bytes_max=BYTES_MAX,
        size=lambda append: sum(map(len, append.records)),
        by_session=by_session,
        **bounds,
    )


def write(session: str = "s", size: int = 1) -> Write:
    return Write(Append(session.encode(), [b"x" * size]), session.encode())


def thread_write(session: str = "s") -> ThreadWrite:
    return ThreadWrite(Append(session.encode(), [b"x"]), session.encode())


def settle(writes: Sequence[Write]) -> None:
    for one in writes:
        one.settle("done")


def as_sent(one: Write) -> list[str]:
    assert one.leads is not None
    return [member.session.decode() for member in one.leads.members]


def queued(*waiting: Write) -> list[list[str]]:
    """What went, group by group, after these had come while three others were under way."""
    group = commit(under_way_max=3, by_session=True)
    blockers = [write(f"blocker {n}") for n in range(3)]
    assert all(group.enter(one) for one in blockers)
    assert not any(group.enter(one) for one in waiting)
    sent: list[list[str]] = []
    for blocker in blockers:
        group.leave(blocker)
    while leader := next((one for one in waiting if one.leads), None):
        sent.append(as_sent(leader))
        assert group.look_after(leader)
        group.leave(leader)
    return sent


def test_those_who_wait_go_together_sorted_by_session():
    assert queued(*(write(name) for name in "cabca")) == [["a", "a", "b", "c", "c"]]


def test_a_group_is_bounded_by_bytes_and_by_count():
    halves = queued(*(write(f"s{n}", BYTES_MAX // 2) for n in range(5)))
    assert [len(group) for group in halves] == [2, 2, 1]
    assert queued(write("large", limits.BATCH_BYTES_MAX), write("small")) == [["large"], ["small"]]
    assert [len(group) for group in queued(*(write(f"s{n:03}") for n in range(300)))] == [256, 44]


def test_one_that_was_held_goes_alone_the_next_time():
    group = commit(under_way_max=3, by_session=True)
    first, second, third = write("a"), write("b"), write("b")
    blockers = [write(f"blocker {n}") for n in range(3)]
    assert all(group.enter(one) for one in blockers)
    assert not any(group.enter(one) for one in (first, second, third))
    group.leave(blockers[0])
    assert group.look_after(first)
    first.settle("done")
    second.again = third.again = True
    waits = write("c")
    assert not group.enter(waits)
    group.leave(first)
    assert as_sent(second) == ["b", "b"], "together with its own session, and no other"
    group.leave(blockers[1])
    assert as_sent(waits) == ["c"]


def test_of_two_groups_at_once_no_two_write_to_one_session():
    group = commit(under_way_max=2, by_session=True)
    first, other, same, free = write("a"), write("b"), write("a"), write("c")
    assert group.enter(first)
    assert group.enter(other)
    assert not group.enter(same)
    assert not group.enter(free)
    group.leave(other)
    assert as_sent(free) == ["c"], "the other one waits for the session that somebody writes to"
    assert same.leads is None


def test_who_has_gone_before_its_group_begins_is_not_sent():
    group = commit()
    running, leader, gone = write(), write(), write()
    assert group.enter(running)
    assert not group.enter(leader)
    assert not group.enter(gone)
    group.leave(running)
    gone.abandoned = True  # as an interrupt leaves it: noted, and not yet taken out
    begun = group.look_after(leader)
    assert begun is not None
    assert begun.members == [leader]


def test_a_leader_that_was_interrupted_before_it_began_leaves_its_group_to_the_next():
    group = commit()
    running, gone, after = write(), thread_write(), write()
    assert group.enter(running)

    class Waits(ThreadWrite):
        def wait(self, _timeout_s: float) -> bool:
            """It waits, is made the leader of a group, and Ctrl-C comes before it can begin."""
            assert not group.enter(after)
            group.leave(running)
            assert as_sent(self) == ["s", "s"]
            raise Interrupted

    gone = Waits(Append(b"s", [b"x"]), b"s")
    with pytest.raises(Interrupted):
        group.run(gone, settle)
    assert as_sent(after) == ["s"], "the lead went on to the next, without the one that has gone"
    assert group.look_after(after)
    group.leave(after)
    assert group.is_idle()


def test_a_leader_that_was_interrupted_in_flight_leaves_the_others_unknown_and_the_way_free():
    group = commit()
    behind = write()

    def carry(writes: Sequence[Write]) -> None:
        if behind in writes:
            raise Interrupted
        assert not group.enter(behind)
        settle(writes)

    with pytest.raises(Interrupted):
        group.run(thread_write(), carry)
    with pytest.raises(OutcomeUnknown):
        behind.result()
    assert group.is_idle()
    assert group.run(thread_write(), settle) == "done"


def test_an_unforeseen_error_is_told_to_everybody_whose_write_it_was():
    group = commit()
    behind = write()

    def carry(writes: Sequence[Write]) -> None:
        if behind not in writes:
            assert not group.enter(behind)
        raise ZeroDivisionError

    with pytest.raises(OutcomeUnknown) as caught:
        group.run(thread_write(), carry)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(OutcomeUnknown):
        behind.result()
    assert group.is_idle()


def test_what_nobody_leads_for_long_is_given_up_as_not_sent_then_as_unknown():
    group = commit(queue_timeout_s=0.0, outcome_timeout_s=0.0)
    stuck = write()
    assert group.enter(stuck)
    with pytest.raises(EngineUnreachable, match="Nothing was written"):
        group.run(thread_write(), settle)
    taken = thread_write()
    slow = commit(queue_timeout_s=0.0, outcome_timeout_s=0.0)

    def carry(writes: Sequence[Write]) -> None:
        if taken not in writes:
            assert not slow.enter(taken)
        else:
            slow.look_after(taken)
        settle(writes)

    slow.run(thread_write(), carry)
    with pytest.raises(OutcomeUnknown):
        taken.result()


def test_after_closing_what_waits_is_finished_and_what_comes_is_refused():
    group = commit()
    one, two = write(), write()
    assert group.enter(one)
    assert not group.enter(two)
    group.close()
    with pytest.raises(StoreClosed):
        group.run(thread_write(), settle)
    settle([one])
    group.leave(one)
    assert group.look_after(two)
    settle([two])
    group.leave(two)
    assert group.is_idle()


def test_an_outcome_that_comes_as_the_bound_ends_is_one_of_the_two_and_no_mixture():
    """A leader settles in its thread while the caller's own gives up: forced at every step."""

    def settled_at(step: int) -> Write:
        one, seen = write(), 0

        def strike(frame: Any, event: str, _argument: Any) -> Any:
            nonlocal seen
            frame.f_trace_opcodes = True
            seen += event == "opcode"
            if seen == step and event == "opcode":
                sys.settrace(None)
                frame.f_trace = None
                one.settle(error=OutcomeUnknown("too late"))
                return None
            return strike

        sys.settrace(strike)
        try:
            one.settle("done")
        finally:
            sys.settrace(None)
        return one

    for step in range(1, 40):
        one = settled_at(step)
        try:
            assert one.result() == "done", f"step {step}: an ack of nothing"
        except OutcomeUnknown:
            continue


# Every place where a signal can come in, one after the other.


def points(call: Callable[[], object], at: int) -> bool:
    """Make a call, interrupted at the point of that number; whether there was one."""
    seen = -1

    def strike(frame: Any, event: str, _argument: Any) -> None:
        nonlocal seen
        ours = frame.f_code.co_filename.endswith(OURS)
        if event in {"call", "c_return"} and ours:
            seen += 1
            if seen == at:
                raise Interrupted

    sys.setprofile(strike)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


def every_point(call: Callable[[], object]) -> Iterator[int]:
    at = 0
    while points(call, at):
        yield at
        at += 1
    assert at >= 5, "it was hardly interrupted at all"


@pytest.mark.parametrize("behind", [0, 2])
def test_wherever_a_signal_comes_the_next_write_goes_at_once(behind: int):
    """The interrupted one leads, alone or with others behind it: they are answered within a look."""
    group = commit()
    others: list[threading.Thread] = []

    def carry(writes: Sequence[Write]) -> None:
        if len(others) < behind:
            others.extend(threading.Thread(target=_answered, args=(group,)) for _ in range(behind))
            for thread in others:
                thread.start()
            wait_until(lambda: len(group._waiting) == behind)
        settle(writes)

    for at in every_point(lambda: group.run(thread_write(), carry)):
        for thread in others:
            thread.join(5)
            assert not thread.is_alive(), f"interrupted at {at}: somebody still waits"
        others.clear()
        assert group.run(thread_write(), settle) == "done", at
        assert group.is_idle(), at
    for thread in others:
        thread.join(5)


def _answered(group: GroupCommit) -> None:
    try:
        group.run(thread_write(), settle)
    except OutcomeUnknown:
        return


def test_wherever_a_signal_comes_no_place_is_lost():
    slots = Slots(1)

    def use() -> None:
        holder = object()
        try:
            assert slots.take(holder, 5)
        finally:
            slots.held.pop(holder, None)
            slots.wake_next()

    for at in every_point(use):
        assert not slots.held, at
        use()


def test_whoever_waits_for_a_place_gets_it_although_nobody_wakes_it():
    slots = Slots(1)
    slots.held[self := object()] = None
    took: list[bool] = []
    thread = threading.Thread(target=lambda: took.append(slots.take(object(), 10)))
    thread.start()
    wait_until(lambda: len(slots._waiting) == 1)
    slots.held.pop(self)
    thread.join(5)
    assert took == [True]
    assert slots.take(object(), 0.01) is False


# Tasks.


def test_an_append_that_comes_while_the_last_worker_leaves_is_not_left_waiting():
    """Two tasks could miss each other: one saw the queue empty, the other enough workers."""

    async def rounds() -> None:
        group = commit()

        async def carry(writes: Sequence[Write]) -> None:
            await asyncio.sleep(0)
            settle(writes)

        for steps in range(200):

            async def later(steps: int = steps) -> None:
                for _ in range(steps % 7):
                    await asyncio.sleep(0)
                assert await group.run_async(TaskWrite(Append(b"s", [b"x"])), carry) == "done"

            async with asyncio.timeout(10):
                await asyncio.gather(*(later() for _ in range(2)), later(steps + 1))
            assert group.is_idle()

    asyncio.run(rounds())


@pytest.mark.parametrize("by_session", [False, True])
@pytest.mark.parametrize("sessions", [1, 16])
def test_tasks_that_write_at_once_share_one_exchange(by_session: bool, sessions: int):
    """Sixteen that were woken together come together again: one exchange, not one and fifteen."""
    sizes: list[int] = []

    async def turns() -> None:
        group = commit(by_session=by_session)

        async def carry(writes: Sequence[Write]) -> None:
            sizes.append(len(writes))
            await asyncio.sleep(0.001)
            settle(writes)

        async def task(number: int) -> None:
            session = b"%d" % (number % sessions)
            for _ in range(5):
                one = TaskWrite(Append(session, [b"x"]), session)
                assert await group.run_async(one, carry) == "done"

        async with asyncio.timeout(10):
            await asyncio.gather(*map(task, range(16)))
        assert group.is_idle()

    asyncio.run(turns())
    assert sizes == [16] * 5


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is looked at is no event
            await asyncio.sleep(0)


def test_thousands_that_wait_do_not_keep_the_event_loop_busy_with_looking():
    looks, crowd = 0, 4000

    class Counted(GroupCommit):
        def look_after(self, write: Write) -> Any:
            nonlocal looks
            looks += 1
            return super().look_after(write)

    async def wait_together() -> None:
        group = commit(kind=Counted)
        begun, end = asyncio.Event(), asyncio.Event()

        async def carry(writes: Sequence[Write]) -> None:
            begun.set()
            await end.wait()
            settle(writes)

        def run() -> asyncio.Task[Any]:
            return asyncio.ensure_future(group.run_async(TaskWrite(Append(b"s", [b"x"])), carry))

        first = run()
        await _until(begun.is_set)
        rest = [run() for _ in range(crowd)]
        await asyncio.sleep(10 * group_commit.LOOK_S)
        seen = looks
        end.set()
        async with asyncio.timeout(30):
            assert await asyncio.gather(first, *rest) == ["done"] * (crowd + 1)
        assert seen <= 2 * crowd, f"{seen} looks of {crowd} that wait for ten looks of one"

    asyncio.run(wait_together())


def test_an_event_loop_that_was_closed_under_its_tasks_leaves_no_errors(
    monkeypatch: pytest.MonkeyPatch,
):
    errors: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: errors.append(told.exc_value))
    group, loop = commit(), asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending"

    begun: list[Sequence[Write]] = []

    async def never(writes: Sequence[Write]) -> None:
        begun.append(writes)
        await asyncio.sleep(60)

    async def begin() -> list[asyncio.Task[Any]]:
        def run() -> asyncio.Task[Any]:
            return asyncio.ensure_future(group.run_async(TaskWrite(Append(b"s", [b"x"])), never))

        tasks = [run()]
        await _until(lambda: bool(begun))
        tasks += [run(), run()]
        await _until(lambda: len(group._waiting) == 2)
        return tasks

    tasks = loop.run_until_complete(begin())
    loop.close()
    tasks.clear()
    gc.collect()
    assert not errors


def test_a_cancelled_leader_leaves_the_way_free():
    async def cancel_at(steps: int) -> bool:
        group = commit()

        async def carry(writes: Sequence[Write]) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            settle(writes)

        def run() -> asyncio.Task[Any]:
            return asyncio.ensure_future(group.run_async(TaskWrite(Append(b"s", [b"x"])), carry))

        first, second = run(), run()
        for _ in range(steps):
            await asyncio.sleep(0)
        cancelled = first.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(first, second, return_exceptions=True)
            assert await run() == "done"
        assert group.is_idle()
        return cancelled

    steps = 0
    while asyncio.run(cancel_at(steps)):
        steps += 1
    assert steps > 3


def test_the_bound_of_a_look_is_far_below_what_a_person_notices():
    assert group_commit.LOOK_S <= 0.2


def test_what_is_on_its_way_from_the_queue_to_the_engine_is_not_idle(
    monkeypatch: pytest.MonkeyPatch,
):
    """Otherwise `close` would close the engine under it."""
    group, first = commit(), write()
    group.enter(first)
    group.enter(write())
    begin, taken, looked = group._begin, threading.Event(), threading.Event()
    said: list[bool] = []

    def paused(leader: Write, mine: group_commit.Group) -> group_commit.Group:
        taken.set()
        looked.wait(0.2)  # that it is over is right: who looks has to wait
        return begin(leader, mine)

    def look() -> None:
        assert taken.wait(10)
        said.append(group.is_idle())
        looked.set()

    monkeypatch.setattr(group, "_begin", paused)
    looking = threading.Thread(target=look)
    looking.start()
    group.leave(first, stay=True)
    looking.join(10)
    assert said == [False]
