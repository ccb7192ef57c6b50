"""When to let the power go in a recorded run: pure, and the same for the same seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.verify.power.trace.disk import Loss
from holdfast.verify.power.trace.operations import Names, Operation, Sync, Write

_LOSSES: Final = (Loss.DROPPED, Loss.PAGES, Loss.TORN, Loss.NAMES)


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

    In turns: just after an ack, after a write that no sync followed yet, and around a change of
    names; from the first ack on, since before it nothing was promised.
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
    for number, round_ in enumerate(itertools.zip_longest(*turns)):
        for place, found in enumerate(round_):
            if found is not None:
                at_ns, why = found
                yield Instant(at_ns, _LOSSES[(number + place) % len(_LOSSES)], why)
