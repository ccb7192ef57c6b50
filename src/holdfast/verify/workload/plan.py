"""What each client is going to do: pure, endless, and the same for the same seed."""

from __future__ import annotations

import itertools
import random
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LIMITS: Final = (1, 2, 5, 20)
BATCH_MAX: Final = 5
THINK_MS_MAX: Final = 8
"""A model that generates an answer takes seconds; what matters is that others write meanwhile."""
REMEMBERED: Final = 6
"""How many of its own appends a client may still retry."""
LARGE_BATCH: Final = 40
LARGE_CHARACTERS: Final = 2_000
"""A batch of so many messages of this size, above 64 KiB, is more than one write to a disk."""
LARGE_AT: Final = 3
_LARGE: Final = "large"
_SAID: Final = (
    ("My name is Xiao Li.", "Nice to meet you, Xiao Li."),
    ("I take my tea without sugar.", "Noted: no sugar."),
    ("My flight is on Tuesday.", "Tuesday it is."),
    ("I am allergic to peanuts.", "I will keep peanuts out of every recipe."),
    ("Which one? The blue one, please.", "The blue one it is."),
    ("Mein Bruder heißt Åke.", "Grüße an Åke!"),
    ("我住在上海。", "上海很好。"),
    ("Let us meet at noon. 🙂", "Noon it is."),
)
"""What people tell a model that has a memory, and what it answers."""
OPERATIONS: Final = {
    "append": "append:N", "retry": "retry", "read": "read or read:N", "forget": "forget",
}  # fmt: skip
"""What a client of a small plan may do; `retry` is its first append once more, with its key."""
MANY_MAX: Final = 40
MEET_MS: Final = 25
MEETING: Final = "@"
"""Stands for the session in which clients meet now."""
CALL: Final = "call"
"""How the name of a message ends that calls a tool for each of `RESULTS`."""
RESULTS: Final = ("result1", "result2")
"""How the names of their results end."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a client does.

    `think` waits, as for a model's answer, and `wait` for another `go` of the parent; `meet` for
    the next instant at which all go on, in a session of its own; `clock` says what time it is on
    the client's clock.
    """

    f: str
    session: str = ""
    messages: tuple[str, ...] = ()
    limit: int | None = None
    key: str | None = None
    think_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """For the wire to a client process."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Step:
        """The other end of that wire."""
        return cls(**{**value, "messages": tuple(value["messages"])})


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of load: how many sessions are shared, for how long, and what may be used."""

    name: str
    sessions: int = 3
    steps_per_session: int = 60
    """After so many steps a client moves on to new sessions, so that reads stay small."""
    keyed: bool = True
    forgets: bool = True
    appends_only: bool = False
    """One turn after another, as fast as the store takes them."""
    large_by: str = ""
    """The client that appends a large batch early on."""
    operations: tuple[str, ...] = ()
    """All that a client does in one session, such as `append:2` and `read`; then in the next."""
    clients: int = 1
    """So many meet in each of these sessions."""


def steps(seed: int, client: str, shape: Shape) -> Iterator[Step]:
    """The endless plan of one client."""
    if shape.operations:
        return _small(client, shape)
    return _Planner(random.Random(f"{seed}/{shape.name}/{client}"), client, shape).steps()  # noqa: S311


def message(name: str) -> dict[str, Any]:
    """The message with this id, the same in every process. Ids count up within a batch."""
    batch, _, part = name.rpartition(".")
    number = int(part) if part.isdecimal() else 0
    turn = zlib.crc32(batch.encode("utf-8", "surrogatepass")) + number // 2
    answers = number % 2
    more = "." * LARGE_CHARACTERS if batch.endswith(_LARGE) else ""
    return {
        "id": name,
        "role": "assistant" if answers else "user",
        "content": f"{name} {_SAID[turn % len(_SAID)][answers]}{more}",
        **_of_a_tool(batch, part),
    }


def _of_a_tool(batch: str, part: str) -> dict[str, Any]:
    """What a message that calls tools has besides, or one that is a tool's result."""
    if part == CALL:
        function = {"name": "look_up", "arguments": "{}"}
        ids = [f"{batch}.{result}" for result in RESULTS]
        calls = [{"id": one, "type": "function", "function": function} for one in ids]
        return {"role": "assistant", "tool_calls": calls}
    return {"role": "tool", "tool_call_id": f"{batch}.{part}"} if part in RESULTS else {}


def name_of(message: Mapping[str, Any]) -> str:
    """The id of such a message, or the first word of its content where a store drops ids.

    A user's store may give back anything; a history is UTF-8, so half a character is spelled
    out.
    """
    found = message.get("id")
    if not (isinstance(found, str) and found):
        content = message.get("content")
        words = content.split(maxsplit=1) if isinstance(content, str) else []
        found = words[0] if words else "?"
    return found.encode("utf-8", "backslashreplace").decode()


def ensure_operations(words: Sequence[str]) -> None:
    """`ValueError` for what is no operation of a small plan: `append:N`, `read`, `read:N`, …"""
    for word in words:
        name, colon, many = word.partition(":")
        counted = {"append": many, "read": many or "1"}.get(name, "" if colon else "1")
        number = int(counted) if counted.isdecimal() and counted.isascii() else 0
        if name not in OPERATIONS or not 0 < number <= MANY_MAX:
            raise ValueError(f"{word!r}: {', '.join(OPERATIONS.values())}, N from 1 to {MANY_MAX}")
    if words and not any(word.startswith("append") for word in words):
        raise ValueError("nothing is appended, so nothing could be seen")


def _small(client: str, shape: Shape) -> Iterator[Step]:
    """The same few operations in one session after another.

    Where several clients meet in a session, it is that of the moment (`meet`), so that one which
    was slow does not stay behind for ever.
    """
    own = f"{shape.name}-{client.rpartition('.')[2]}"
    for number in itertools.count():
        session = f"{own}-{number}" if shape.clients == 1 else MEETING
        if session == MEETING:
            yield Step("meet", shape.name, think_ms=MEET_MS)
        appended: list[Step] = []
        for at, word in enumerate(shape.operations):
            name, _, many = word.partition(":")
            if name == "append":
                batch = f"{client}.{number}-{at}"
                ids = tuple(f"{batch}.{part}" for part in range(int(many)))
                appended.append(Step("append", session, ids, key=batch if shape.keyed else None))
                yield appended[-1]
            elif name == "retry":
                yield from appended[:1] if shape.keyed else ()
            elif name == "read":
                yield Step("history", session, limit=int(many) if many else None)
            else:
                yield Step("forget", session)


class _Planner:
    def __init__(self, chance: random.Random, client: str, shape: Shape) -> None:
        self._chance = chance
        self._client = client
        self._shape = shape
        self._numbers = itertools.count(1)
        self._own: deque[Step] = deque(maxlen=REMEMBERED)
        self._kinds = (
            {
                "pair": 1,
            }
            if shape.appends_only
            else {
                "single": 26,
                "batch": 26,
                "turn": 10,
                "read": 14,
                "window": 14,
                "retry": 8 if shape.keyed else 0,
                "forget": 2 if shape.forgets else 0,
            }
        )

    def steps(self) -> Iterator[Step]:
        names, weights = list(self._kinds), list(self._kinds.values())
        for number in itertools.count():
            epoch = number // self._shape.steps_per_session
            if number == LARGE_AT and self._client == self._shape.large_by:
                yield self._append(f"{self._shape.name}-{epoch}-1", LARGE_BATCH, _LARGE)
            kind = self._chance.choices(names, weights)[0]
            yield from self._step(kind, f"{self._shape.name}-{epoch}")

    def _step(self, kind: str, epoch: str) -> Iterator[Step]:
        session = f"{epoch}-{self._chance.randrange(self._shape.sessions)}"
        if kind == "single":
            yield self._append(session, 1)
        elif kind == "batch":
            yield self._append(session, self._chance.randint(2, BATCH_MAX))
        elif kind == "pair":
            yield self._append(session, 2)
        elif kind == "turn":  # as an agent does: read, generate, write question and answer
            yield Step("history", session)
            yield Step("think", think_ms=self._chance.randint(1, THINK_MS_MAX))
            yield self._append(session, 2)
        elif kind == "read":
            yield Step("history", session)
        elif kind == "window":
            yield Step("history", session, limit=self._chance.choice(LIMITS))
        elif kind == "retry":
            yield self._chance.choice(self._own) if self._own else self._append(session, 1)
        else:  # forget only one session of each round, so that the others grow
            yield Step("forget", f"{epoch}-0")

    def _append(self, session: str, count: int, word: str = "") -> Step:
        number = f"{next(self._numbers)}{word}"
        names = tuple(f"{self._client}.{number}.{part}" for part in range(count))
        key = f"{self._client}.{number}" if self._shape.keyed else None
        step = Step("append", session, names, key=key)
        self._own.append(step)
        return step
