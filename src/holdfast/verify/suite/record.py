"""Clients that write down what they do, and what the judge makes of it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.history import Event, Header, event_json, header_json, parse_history
from holdfast.verify.judge import JudgeResult, judge
from holdfast.verify.target import Target

OPERATIONS_MAX: Final = 1_000_000
"""So many one client may make: the numbers of the next begin there."""

LATE_S: Final = 0.1
"""A session that expires so much later or earlier than told is still on time."""


class Recorded:
    """A client whose every call is an event. No call raises for what the store does.

    Each returns whether the store said that it was done; `errors` are the other answers, in
    words. An error is `info` (nobody knows) unless the target declared it definite.
    """

    def __init__(self, client: Client, process: int, sink: Callable[[Event], object]) -> None:
        self._client = client
        self._process = process
        self._sink = sink
        self._made = 0
        self.errors: list[str] = []

    def append(
        self, session: str, ids: Sequence[str], *, key: str | None = None, padding: str = ""
    ) -> bool:
        """Append one batch of messages with these ids."""
        messages = [turn(name, name + padding) for name in ids]
        invoke = Event("invoke", 0, f="append", session=session, messages=tuple(ids), key=key)

        def call() -> Event:
            seqs = self._client.append(session, messages, key=key)
            return Event("ok", 0, seqs=seqs)

        return self._make(invoke, call).type == "ok"

    def read(self, session: str, limit: int | None = None) -> list[str] | None:
        """The ids that it shows; None where it raised."""

        def call() -> Event:
            seen = self._client.history(session, limit=limit)
            return Event("ok", 0, messages=tuple(seen.ids()), seqs=seen.seqs)

        answer = self._make(
            Event("invoke", 0, f="history", session=session, limit=limit), call
        ).messages
        return None if answer is None else list(answer)

    def forget(self, session: str) -> bool:
        """Forget a session."""

        def call() -> Event:
            self._client.forget(session)
            return Event("ok", 0)

        return self._make(Event("invoke", 0, f="forget", session=session), call).type == "ok"

    def recall(self, scope: str, query: str) -> None:
        """Have it recall, so that an index that follows does so; it is no event of a history."""
        with contextlib.suppress(Exception):  # whether it finds anything is asked elsewhere
            self._client.recall(scope, query, k=1)

    def _make(self, invoke: Event, call: Callable[[], Event]) -> Event:
        op = self._process * OPERATIONS_MAX + self._made
        self._made += 1
        self._sink(_at_now(invoke, op, self._process))
        try:
            answer = call()
        except Exception as error:  # noqa: BLE001 - whatever a user's store raises is an answer
            self.errors.append(f"{type(error).__name__}: {error}")
            answer = Event("fail" if self._client.is_definite(error) else "info", 0)
        answer = _at_now(answer, op, self._process)
        self._sink(answer)
        return answer


def turn(name: str, content: object = None) -> dict[str, object]:
    """A message with that id; it says the same where nothing else is wanted."""
    return {"role": "user", "content": name if content is None else content, "id": name}


def _at_now(event: Event, op: int, process: int) -> Event:
    values = {name: getattr(event, name) for name in Event.__slots__}
    return Event(**values | {"time_ns": time.monotonic_ns(), "op": op, "process": process})


def verdict(target: Target, events: Iterable[Event]) -> JudgeResult:
    """What the judge says of these events, in the order of their time."""
    header = Header(
        target=target.name or "target",
        ttl_s=target.ttl_s if target.claims.of("expiring") is True else None,
        clock_error_s=LATE_S,
        claims=tuple(target.claims.claimed()),
        kept_last=None if target.retention is None else target.retention.last,
        kept_age_s=None if target.retention is None else target.retention.age_s,
    )
    ordered = sorted(events, key=lambda event: event.time_ns)
    lines = [header_json(header), *(event_json(event) for event in ordered)]
    return judge(parse_history(json.dumps(line).encode() + b"\n" for line in lines))
