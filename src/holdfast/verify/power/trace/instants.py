"""When to let the power go in a recorded run: pure, and the same for the same seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.verify.power.trace.disk_model import Loss
from holdfast.verify.power.trace.inode_operations import Names, Operation, Sync, Write

_LOSSES: Final = (Loss.DROPPED, Loss.PAGES, Loss.TORN, Loss.NAMES)
_DOUBTFUL_FIRST: Final = 4
_LARGE_FIRST: Final = 3
_LARGE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A crash to visit."""

    at_ns: int
    loss: Loss
    why: str
    """What had just happened, or was about to."""


def choose(
    operations: Sequence[Operation], acks_ns: Iterable[int], *, seed: object
) -> Iterator[Instant]:
    """Every instant worth a visit, the most telling first, each with one kind of loss.

    In turns: after an ack at which most is in doubt, with all that was not synced dropped; after any
    ack, after a write that no sync followed yet, and around a change of names; from the first ack
    on, since before it nothing was promised. What is above 64 KiB is torn early.
    """
    acks = sorted(acks_ns)
    if not acks:
        return
    chance = random.Random(f"instants/{seed}")  # noqa: S311 - a plan, not a secret
    kinds = {
        "after an ack": acks,
        "before a sync has ended": [o.at_ns - 1 for o in operations if isinstance(o, Sync)],
        "after a change of names": [o.at_ns for o in operations if isinstance(o, Names)],
        "after a write": [o.at_ns for o in operations if isinstance(o, Write)],
    }
    turns = []
    for why, times in kinds.items():
        late = sorted({at for at in times if at >= acks[0]})
        chance.shuffle(late)
        turns.append([(at, why) for at in late])
    # Every round shifts by one, so that each kind of instant meets each kind of loss.
    doubtful = (Instant(at, Loss.DROPPED, "after an ack") for at in in_doubt(operations, acks))
    yield from itertools.islice(doubtful, _DOUBTFUL_FIRST)
    large = [at for at in before_large_syncs(operations) if at >= acks[0]]
    chance.shuffle(large)
    for at in large[:_LARGE_FIRST]:
        yield Instant(at, Loss.TORN, "inside a large batch")
    for number, round_ in enumerate(itertools.zip_longest(*turns)):
        yield from itertools.islice(doubtful, 1)
        for place, found in enumerate(round_):
            if found is not None:
                at_ns, why = found
                yield Instant(at_ns, _LOSSES[(number + place) % len(_LOSSES)], why)


def before_large_syncs(operations: Sequence[Operation]) -> list[int]:
    """When more than 64 KiB of a file had been written, and its sync had not ended."""
    waiting: dict[int, int] = {}
    found = []
    for done in sorted(operations, key=lambda each: each.at_ns):
        if isinstance(done, Write) and not done.synced:
            waiting[done.inode] = waiting.get(done.inode, 0) + len(done.data)
        elif isinstance(done, Sync):
            covered = list(waiting) if done.inode is None else [done.inode]
            if any(waiting.pop(inode, 0) > _LARGE_BYTES for inode in covered):
                found.append(done.at_ns - 1)
    return found


def in_doubt(operations: Sequence[Operation], acks: Iterable[int]) -> list[int]:
    """The acks at which a file that is synced at other times had the oldest unsynced write, first.

    What another client is about to sync is young; what was acknowledged and left to the kernel gets
    older with every ack. Of those with the same oldest write only the last one counts.
    """
    synced = {done.inode for done in operations if isinstance(done, Sync)}
    waiting: dict[int, list[int]] = {}
    last_ack: dict[int, int] = {}
    events: list[Operation | int] = [*operations, *acks]
    for event in sorted(events, key=lambda e: e if isinstance(e, int) else e.at_ns):
        if isinstance(event, int):
            oldest = min((times[0] for times in waiting.values() if times), default=None)
            if oldest is not None:
                last_ack[oldest] = event
        elif isinstance(event, Write) and event.inode in synced and not event.synced:
            waiting.setdefault(event.inode, []).append(event.at_ns)
        elif isinstance(event, Sync):
            for inode in list(waiting) if event.inode is None else [event.inode]:
                waiting[inode] = [at for at in waiting.get(inode, []) if at > event.began_ns]
    found = sorted(last_ack.items(), key=lambda pair: pair[0] - pair[1])
    return [ack for _, ack in found]
