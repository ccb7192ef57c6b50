"""Group commit: writes that arrive together share one exchange with the engine, and one sync.

A write that finds room leads: it is carried out at once, by its own thread or task. One that
finds none waits, and is either taken along by a leader or made one. Who leaves and who arrives
decide under one lock, so they cannot miss each other; and a waiting caller looks up now and then, so
a leader that was interrupted (Ctrl-C, a signal's exception) holds nobody up.

Interrupts. CPython runs signal handlers when a function begins and after a call of C code has
returned. So what must be given back is registered under an object that exists before the `try`,
and is taken back by one C call (`dict.pop`) that stands first behind it: nothing comes between.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from holdfast.backends.writes import TaskWrite, ThreadWrite, Write, wake_each
from holdfast.errors import EngineUnreachable, OutcomeUnknown, StoreClosed

LOOK_S: Final = 0.1
"""How often a waiting caller looks whether its leader is still there."""
LOOK_S_MAX: Final = 1.0
"""The same in a crowd."""
CROWD: Final = 100
LEAD_S: Final = 0.005
"""How long a thread writes for others: waking the next costs more than a fast exchange."""
GROUP_MAX: Final = 256


class Group:
    """Writes that are carried out together, by the one of them that leads or has led before."""

    __slots__ = ("begun_s", "leader", "members", "sent", "sessions")

    def __init__(self, leader: Write, members: list[Write]) -> None:
        self.leader, self.members = leader, members
        for write in members:
            write.group = self
        self.sessions = {write.session for write in members}
        self.begun_s = time.monotonic()
        self.sent = False
        """Whether anything of it may have reached the engine."""


class GroupCommit:
    """Who goes now, who waits, and who takes whom along.

    `carry` is given the writes of one group and settles each, or marks it to go again.
    """

    def __init__(
        self,
        *,
        backend: str,
        under_way_max: int,
        bytes_max: int,
        size: Callable[[Any], int],
        queue_timeout_s: float,
        outcome_timeout_s: float,
        slow_s: float | None = None,
        by_session: bool = False,
        wake: Callable[[Iterable[Write]], None] | None = None,
    ) -> None:
        self._backend = backend
        self._under_way_max = under_way_max
        self._bytes_max, self._size = bytes_max, size
        self._queue_timeout_s, self._outcome_timeout_s = queue_timeout_s, outcome_timeout_s
        self._slow_s = slow_s
        """A group that takes longer waits for something else than the disk: it is not counted."""
        self._by_session = by_session
        self._wake = wake or wake_each
        self._waiting: deque[Write] = deque()
        self._under_way: dict[Write, Group] = {}
        self._changing = threading.Lock()
        self._closed = False
        self._looked_s = 0.0

    def run(self, write: ThreadWrite, carry: Callable[[Sequence[Write]], None]) -> Any:
        """Settle one write, in step with those of other threads."""
        try:
            group = self.enter(write)
            while True:
                if group is not None:
                    self.lead(write, group, carry, until_s=time.monotonic() + LEAD_S)
                elif write.settled:
                    return write.result()
                else:
                    write.wait(self.look_s())
                group = self.look_after(write)
        except BaseException:
            write.abandoned = True  # a waiting caller sees it, should another interrupt come now
            self.pass_on(write)
            raise

    async def run_async(
        self, write: TaskWrite, carry: Callable[[Sequence[Write]], Awaitable[None]]
    ) -> Any:
        """The same for the tasks of one event loop."""
        try:
            if (group := self.enter(write)) is not None:
                await write.next_turn()  # tasks that were woken together come together
                group = self.gather(write, group)
            while True:
                if group is not None:
                    try:
                        await carry(group.members)
                    except Exception as error:  # noqa: BLE001 - told to all whose write it was
                        self._unforeseen(group, error)
                    self.leave(write)
                elif write.settled:
                    return write.result()
                else:
                    await write.wait(self.look_s())
                group = self.look_after(write)
        except BaseException:
            write.abandoned = True  # a waiting caller sees it, should another interrupt come now
            self.pass_on(write)
            raise

    def lead(
        self,
        write: Write,
        group: Group | None,
        carry: Callable[[Sequence[Write]], None],
        *,
        until_s: float,
    ) -> None:
        """Carry out a group, and what queues up meanwhile, until a time comes or nothing waits."""
        while group is not None:
            try:
                carry(group.members)
            except Exception as error:  # noqa: BLE001 - told to all whose write it was
                self._unforeseen(group, error)
            group = self.leave(write, stay=time.monotonic() < until_s)

    def enter(self, write: Write) -> Group | None:
        """The group to carry out now, or None: it waits to be woken."""
        write.since_s = time.monotonic()
        with self._changing:
            if self._closed:
                raise StoreClosed("this store is closed; nothing was sent. Connect again")
            if write.may_lead and self._has_room() and self._may_go(write):
                return self._begin(write, Group(write, [write]))
            self._waiting.append(write)
        return None

    def serve(self, worker: Write, carry: Callable[[Sequence[Write]], None]) -> None:
        """As the only one who leads: carry out what waits, until nothing does."""
        self.lead(worker, self.leave(worker, stay=True), carry, until_s=math.inf)

    def gather(self, write: Write, group: Group) -> Group:
        """The group with those who have queued up since."""
        with self._changing:
            return self._begin(write, self._take(write, group.members) or group)

    def leave(self, write: Write, *, stay: bool = False) -> Group | None:
        """A group is back: wake those who have an outcome, and send those who wait on their way.

        With `stay` the leader gets the next group itself, if one waits; those who were woken and
        write again may be in it.
        """
        mine = None
        with self._changing:
            group = self._under_way.pop(write, None)
            done = [] if group is None else self._finish(group)
        self._wake(done)
        with self._changing:
            if stay and self._has_room() and (mine := self._take(write)):
                self._begin(write, mine)
            leaders = self._send()
        self._wake(leaders)
        return mine

    def look_after(self, write: Write) -> Group | None:
        """The group that it is to lead, if any. Nobody waits for a leader that has gone."""
        if write.settled and write.leads is None:
            return None
        now_s = time.monotonic()
        leaders: list[Write] = []
        with self._changing:
            if write.leads is not None:
                return self._begin(write, write.leads)
            self._rescue(write)
            self._give_up(write, now_s)
            if now_s - self._looked_s > LOOK_S:  # one of many that wait does it for all
                self._looked_s = now_s
                for leader in [one for one in list(self._under_way) if one.abandoned]:
                    self._under_way.pop(leader, None)
                leaders = self._send()
        self._wake(leaders)
        return None

    def look_s(self) -> float:
        """How long to wait for a wake-up: of thousands, each looks more seldom."""
        return min(LOOK_S * (1 + len(self._waiting) / CROWD), LOOK_S_MAX)

    def give_up(self) -> list[Write]:
        """Those that have an outcome; who has waited too long for the one who serves has one now."""
        with self._changing:
            groups = list(self._under_way.values())
            writes = [*self._waiting, *(one for group in groups for one in group.members)]
            for write in writes:
                self._give_up(write, time.monotonic())
        return [write for write in writes if write.settled]

    def close(self) -> None:
        """What comes from now on is refused; what waits is still carried out."""
        with self._changing:
            self._closed = True

    def is_idle(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
        with self._changing:  # otherwise what is on its way from one to the other is in neither
            return not self._under_way and not self._waiting

    def _begin(self, write: Write, group: Group) -> Group:
        """From now on its writes may reach the engine; those that have left it do not go along."""
        if len(group.members) > 1:
            group.members = [m for m in group.members if m.group is group and not m.abandoned]
        write.leads = None
        group.sent = True
        self._under_way[write] = group
        return group

    def _finish(self, group: Group) -> list[Write]:
        """Those that have an outcome now; a write that is to go again queues in front."""
        again = [one for one in group.members if one.again and not one.settled]
        for one in reversed(again):
            one.again, one.alone, one.since_s = False, True, time.monotonic()
            self._waiting.appendleft(one)
            one.group = None
        done = [one for one in group.members if one not in again] if again else group.members
        for one in done:
            if not one.settled:
                one.settle(error=self._unknown(one))
        return done

    def pass_on(self, write: Write) -> None:
        """Its caller was interrupted: others go on without it."""
        with self._changing:
            group = self._under_way.pop(write, None) or write.leads
            write.leads = None
            self._withdraw(write)
            left = [] if group is None else [one for one in group.members if one is not write]
            for one in reversed(left):
                self._rescue(one)
            leaders = self._send()
        self._wake(left)
        self._wake(leaders)

    def _rescue(self, write: Write) -> None:
        """If its leader has gone, it waits again, or is unknown if it may have been written."""
        group = write.group
        if write.settled or group is None or self._under_way.get(group.leader) is group:
            return
        if write.leads is not None or write in self._waiting:
            return
        if group.sent and not write.again:
            write.settle(error=self._unknown(write))
        else:
            self._waiting.appendleft(write)
            write.again, write.group = False, None

    def _give_up(self, write: Write, now_s: float) -> None:
        waited_s = now_s - write.since_s
        if waited_s <= self._queue_timeout_s:
            return
        if self._withdraw(write):
            write.settle(
                error=EngineUnreachable(
                    f"earlier writes took longer than {self._queue_timeout_s:g} s, so this one was "
                    "not sent. Nothing was written. Try again",
                    operation=_operation(write),
                    backend=self._backend,
                )
            )
        elif waited_s > self._queue_timeout_s + self._outcome_timeout_s:
            write.settle(error=self._unknown(write))

    def _withdraw(self, write: Write) -> bool:
        """Whether it still waited; now it does not."""
        try:
            self._waiting.remove(write)
        except ValueError:
            return False
        return True

    def _unforeseen(self, group: Group, cause: Exception) -> None:
        for one in group.members:
            if not one.settled:
                error = self._unknown(one)
                error.__cause__ = cause
                one.settle(error=error)

    def _unknown(self, write: Write) -> OutcomeUnknown:
        return OutcomeUnknown(
            "the exchange with the engine was interrupted, or its answer did not come in time. The "
            "write may or may not have happened: retry it with the same key",
            operation=_operation(write),
            backend=self._backend,
        )

    def _has_room(self) -> bool:
        if len(self._under_way) < self._under_way_max:
            return True
        if self._slow_s is None:
            return False
        recent_s = time.monotonic() - self._slow_s
        groups = list(self._under_way.values())
        return sum(group.begun_s > recent_s for group in groups) < self._under_way_max

    def _may_go(self, write: Write) -> bool:
        """Whether it may go before those who wait: where it matters, if nobody writes to its session."""
        if not self._by_session:
            return not self._waiting
        return not any(write.session in group.sessions for group in list(self._under_way.values()))

    def _send(self) -> list[Write]:
        """Make leaders of those who wait, while there is room."""
        leaders = []
        while self._has_room() and (group := self._take()):
            # In this order, so that an interrupt leaves nobody in a group that nobody leads.
            group.leader.leads = group
            self._under_way[group.leader] = group
            leaders.append(group.leader)
        return leaders

    def _take(self, leader: Write | None = None, first: Sequence[Write] = ()) -> Group | None:
        """Of those who wait, all that one exchange should carry; the first leads, or who asks."""
        if not self._waiting or not (leader or self._waiting[0]).may_lead:
            return None
        members = [*first]
        stay: deque[Write] = deque()
        size = sum(self._size(write.payload) for write in first)
        groups = list(self._under_way.values()) if self._by_session else ()
        others = (group.sessions for group in groups if group.leader is not leader)
        busy: set[bytes] = set().union(*others)
        for write in self._waiting:
            grown = size + self._size(write.payload)
            if write.session in busy or (members and not self._fits(members, write, grown)):
                stay.append(write)
            elif not write.abandoned:
                members.append(write)
                size = grown
        if self._by_session:
            members.sort(key=lambda write: write.session)
        group = Group(leader or members[0], members) if members else None
        self._waiting = stay
        return group

    def _fits(self, members: list[Write], write: Write, grown: int) -> bool:
        """Whether it may go along. One that is alone goes with its own session only."""
        if len(members) >= GROUP_MAX or grown > self._bytes_max:
            return False
        if write.alone or members[0].alone:
            return write.session == members[0].session
        return True


def _operation(write: Write) -> str:
    name: str = write.payload.operation
    return name
