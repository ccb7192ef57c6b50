"""Sessions of Google's ADK, from the tables of its own services into `HoldfastSessionService`.

A session comes over as that service would have written it: that it was created, then its events, of which
the last one carries the whole state. What an app and its users have in common are logs of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from holdfast import codec, operations
from holdfast.connection import connect
from holdfast.contract import Store
from holdfast.errors import Conflict, HoldfastError, UsageError
from holdfast.integrations import adk_records, framework_operations
from holdfast.integrations.adk_records import APP, USER, Place, Values
from holdfast.integrations.agent_forms import from_adk, to_adk
from holdfast.integrations.forms import ADK
from holdfast.integrations.framework_operations import StepRunner
from holdfast.integrations.migration.found import GONE, Difference, LeftOut, Moved
from holdfast.integrations.migration.sql import Questions, time_of
from holdfast.model import Durability, History, Message

RECORDS_AT_ONCE: Final = 1000
MIGRATED: Final = "migrated"
"""Marks a change of a shared state that was brought over: what an app wrote itself is never overruled."""


UNREADABLE: Final = (HoldfastError, ValueError, TypeError, AttributeError, RecursionError)
"""What a row that is damaged, or too large for a store of ours, ends in."""


class Found(NamedTuple):
    """A session of the source."""

    place: Place
    created: float
    state: Values
    events: list[Values]

    def records(self) -> list[Message]:
        """As the service would have written them, the last one with the whole state."""
        made = [adk_records.created(self.created, {}), *(from_adk(event) for event in self.events)]
        made[-1] = replace(made[-1], extra={ADK: {**made[-1].extra[ADK], "state": self.state}})
        return made


def migrate_adk(
    source: str, target: str, *, namespace: str, require: Durability, dry_run: bool
) -> Moved:
    """Bring every session and shared state over, then read all of it back."""
    moved = Moved(unit="event")
    _check(source)
    if dry_run:
        for found in _sessions(source, moved):
            moved.sessions += 1
            moved.messages += len(found.events)
        return moved
    more: dict[str, Any] = {"namespace": namespace, "require": require}
    with connect(target, background_indexing=False, **more) as store:
        for log, state in _shared(source, moved):
            _bring_state(store, log, state)
        for found in _sessions(source, moved):
            _bring(store, found, moved)
    with connect(target, background_indexing=False, **more) as store:
        for found in _sessions(source, Moved()):
            _verify(store, found, moved)
        for log, state in _shared(source, Moved()):
            if adk_records.folded(store.history(log)) != state:
                moved.differences.append(Difference(log, "the state is another one there"))
    return moved


def _check(source: str) -> None:
    asked = Questions(source)
    try:
        columns = asked.columns("events")
    finally:
        asked.close()
    if "event_data" not in columns:
        hint = " (of an earlier ADK: `adk migrate session` first)" if columns else ""
        raise UsageError(f"{asked.place} has no events of ADK as JSON{hint}")


def _sessions(source: str, moved: Moved) -> Iterator[Found]:
    asked = Questions(source)
    try:
        query = "SELECT app_name, user_id, id, state, create_time FROM sessions ORDER BY 1, 2, 3"
        for app, user, name, state, at in asked.ask(query):
            place = Place(app, user, name)
            rows = asked.ask(
                "SELECT event_data FROM events WHERE app_name = ? AND user_id = ? "
                "AND session_id = ? ORDER BY timestamp, id",
                *place,
            )
            try:
                found = Found(
                    place, _seconds(at), _object(state), [_object(one) for (one,) in rows]
                )
                operations.session_bytes(place.log)
                for record in found.records():
                    codec.encode(record)
            except UNREADABLE as error:
                reason = f"{type(error).__name__}: {error}"
                moved.left_out.append(LeftOut(place.log, None, reason))
            else:
                yield found
    finally:
        asked.close()


def _shared(source: str, moved: Moved) -> Iterator[tuple[str, Values]]:
    """The states of apps and users, by the log that holds them."""
    asked = Questions(source)
    try:
        apps = asked.ask("SELECT app_name, state FROM app_states ORDER BY 1")
        users = asked.ask("SELECT app_name, user_id, state FROM user_states ORDER BY 1, 2")
        stored = [(Place(app, "", "").app_log, state) for app, state in apps]
        stored += [(Place(app, user, "").user_log, state) for app, user, state in users]
        for log, state in stored:
            try:
                found = _object(state)
                operations.session_bytes(log)
                codec.encode(_change(found))
            except UNREADABLE as error:
                moved.left_out.append(LeftOut(log, None, f"{type(error).__name__}: {error}"))
            else:
                yield log, found
    finally:
        asked.close()


def _object(stored: Any) -> Values:
    value = json.loads(stored) if isinstance(stored, str | bytes) else stored
    if not isinstance(value, dict):
        raise TypeError("no JSON object")
    return value


def _seconds(at: Any) -> float:
    if isinstance(at, int | float):
        return float(at)
    found = at if isinstance(at, datetime) else time_of(at)
    return found.timestamp() if found is not None else 0.0


def _bring_state(store: Store, log: str, state: Values) -> None:
    """Add what is new, unless an app has written there itself: then the reading back says so."""
    found = store.history(log)
    if found.state in GONE or not all(_is_migrated(one) for one in found):
        return
    have = adk_records.folded(found)
    delta = {name: value for name, value in state.items() if (name, value) not in have.items()}
    if delta:
        store.append(log, _change(delta), expect=found.last, retention=None)


def _is_migrated(record: Message) -> bool:
    about = record.extra.get(ADK)
    return isinstance(about, dict) and MIGRATED in about


def _change(delta: Values) -> Message:
    return Message(ADK, None, extra={ADK: {"delta": delta, MIGRATED: True}})


def _bring(store: Store, found: Found, moved: Moved) -> None:
    log = found.place.log
    have = store.history(log)
    if have.state in GONE:
        moved.gone.append(log)
        return
    there = _events(have)
    if have.damaged or there != found.events[: len(there)]:
        return  # it went on in the target, or is another one: the reading back says so
    moved.present += len(there)
    records = found.records()
    rest = records[1 + len(there) :] if have else records
    api, key = StepRunner(store), framework_operations.key_of_ids
    ends_at = have.last
    for begin in range(0, len(rest), RECORDS_AT_ONCE):
        some = rest[begin : begin + RECORDS_AT_ONCE]
        named = key("adk-sql", [log, str(ends_at), *(codec.encode(one).hex() for one in some)])
        try:
            ack = api.run(
                framework_operations.add(log, some, named, expect=ends_at, retention=None)
            )
        except Conflict:
            return  # a client writes there at this moment
        ends_at = ack.last if ack else ends_at
    # The service carries what the newest event says for its app and its user over, once, by this key.
    settled = adk_records.settled_key(log, ends_at, records[-1])
    for scope, shared in ((APP, found.place.app_log), (USER, found.place.user_log)):
        if adk_records.of_scope(adk_records.delta_of(records[-1]), scope):
            api.run(framework_operations.add(shared, [_change({})], settled, retention=None))
    moved.sessions += bool(rest)
    moved.messages += len(found.events) - len(there)


def _events(have: History) -> list[Values]:
    return [to_adk(record) for record in have if adk_records.is_event(record)]


def _verify(store: Store, found: Found, moved: Moved) -> None:
    log = found.place.log
    if log in moved.gone:
        return
    have = store.history(log)
    there = _events(have)
    if have.damaged or there[: len(found.events)] != found.events:
        reason = "its events are not those of the source. Bring it into a namespace of its own"
        moved.differences.append(Difference(log, reason))
    elif len(there) == len(found.events) and adk_records.state_of(have) != found.state:
        moved.differences.append(Difference(log, "its state is another one there"))
    else:
        moved.verified += len(found.events)
