"""Our store as the session service of Google's ADK: `Runner(session_service=…)`.

A session is one log: a record that it was created, then its events, in the engine's order. Its state is
what their deltas make of it. What an app and a user have in common are logs of their own. An event is
written first, then those: its number is used by nobody before both are done, so only the newest record of
a session can be ahead of them, and the next one to load the session carries that over, once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
import uuid
import weakref
from typing import Any, Final

from holdfast import turns as whole_turns
from holdfast.contract import AsyncStore, Store
from holdfast.errors import Conflict, Damaged, HoldfastError, LimitExceeded
from holdfast.integrations import adk_records, framework_operations
from holdfast.integrations.adk_records import APP, STATE_EVERY, USER, Place, Values
from holdfast.integrations.agent_forms import from_adk, to_adk
from holdfast.integrations.forms import ADK
from holdfast.integrations.framework_operations import AT_ONCE, StepRunner
from holdfast.model import Ack, History, Message
from holdfast.runner import Steps
from holdfast.turns import Turns

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event, EventActions
    from google.adk.sessions import BaseSessionService, Session
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[adk]'") from error

SHARED_RECORDS_MAX: Final = 64
"""With more changes than that, the state of an app or a user is written as one."""
SETTLED_MAX: Final = 10_000
"""Sessions of which this service remembers that nothing of them has to be carried over."""
_MARK: Final = "holdfast:"
_STALE: Final = (
    "The session has been modified in storage since it was loaded. Nothing was written. "
    "Load it again before appending more events."
)


class HoldfastSessionService(BaseSessionService):
    """Sessions of ADK in a store. An event and its state are there when `append_event` returns.

    The store may be a `Store` (it is called in a thread) or an `AsyncStore`. An event is appended only
    if nobody has appended another since the session was loaded: otherwise `StaleSessionError`, and
    nothing is written. `turns` says what `get_session` shows of function calls without response (see
    `Store.history`); calls of long-running tools are always shown. An app that is resumed in the
    middle of a call needs `turns="all"`.
    """

    def __init__(self, store: Store | AsyncStore, *, turns: Turns = "whole") -> None:
        whole_turns.check_turns(turns)
        self._runner = StepRunner(store)
        self._turns: Turns = turns
        self._settled: dict[str, str] = {}
        self._locks: weakref.WeakValueDictionary[tuple[int, str], asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """A new session; `AlreadyExistsError` if there is one of that id, also by a race."""
        place = Place(app_name, user_id, session_id or str(uuid.uuid4()))
        record = adk_records.created(time.time(), _json(state or {}))
        try:
            await self._runner.wait(self._append(place, record, 0))
        except Conflict as error:
            why = f"Session with id {place.session_id} already exists."
            raise AlreadyExistsError(why) from error
        session = await self._runner.wait(self._get(place, GetSessionConfig()))
        if session is None:
            raise SessionNotFoundError(f"Session {place.session_id} was deleted at once.")
        return session

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """The session at one instant; None where there is none.

        `events.damaged` names the records that cannot be read. Of a long session only its end is read
        where `config` asks for no more.
        """
        place = Place(app_name, user_id, session_id)
        return await self._runner.wait(self._get(place, config or GetSessionConfig()))

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """All sessions of an app, or of one of its users, with state and without events.

        The one that was used last comes last.
        """
        sessions = await self._runner.wait(_list(app_name, user_id))
        sessions.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session for good. What it told its user's and its app's state stays there."""
        place = Place(app_name, user_id, session_id)
        await self._runner.wait(framework_operations.forget(place.log))

    async def forget_user(self, *, app_name: str, user_id: str) -> None:
        """Erase all sessions of a user in this app, and the user's state, for good."""
        for name in await self._runner.wait(_names(app_name, user_id)):
            await self._runner.wait(framework_operations.forget(name))
        user_log = Place(app_name, user_id, "").user_log
        await self._runner.wait(framework_operations.forget(user_log))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """What all sessions of a user have in common, without the prefix `user:`."""
        return await self._runner.wait(_shared(Place(app_name, user_id, "").user_log))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, unless the session went on without the caller: `StaleSessionError`.

        The same event again, after a lost reply, is not added twice. If it cannot be stored, `session`
        stays as it was.
        """
        if event.partial:
            return event
        place = Place(session.app_name, session.user_id, session.id)
        async with self._lock(place.log):
            ack = await self._runner.wait(self._append_event(place, _form(event), session))
            _note(session, max(ack.last, _number(session) or 0))
            if ack.repeated and any(one.id == event.id for one in session.events):
                return event
            session.last_update_time = event.timestamp
            return await super().append_event(session, event)

    def _lock(self, log: str) -> asyncio.Lock:
        """Tasks that share a session object append one after another: each needs the last number."""
        key = (id(asyncio.get_running_loop()), log)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def _append_event(self, place: Place, form: Values, session: Session) -> Steps[Ack]:
        expect = _number(session)
        if expect is None:
            expect = yield from self._number_of_others(place, session)
        key = framework_operations.key_of_ids("adk", [json.dumps(form, sort_keys=True)])
        record = from_adk(form)
        try:
            if (expect + 1) % STATE_EVERY == 0:
                whole = yield from _with_state(place, record)
                try:
                    return (yield from self._append(place, whole, expect, key))
                except LimitExceeded:  # the state is too large for one record: it is read from all
                    pass
            return (yield from self._append(place, record, expect, key))
        except Conflict as error:
            found = yield from framework_operations.read(place.log, 1)
            if not found and not found.damaged:
                raise SessionNotFoundError(f"Session {place.session_id} not found.") from error
            raise StaleSessionError(_STALE) from error

    def _number_of_others(self, place: Place, session: Session) -> Steps[int]:
        """Where a session ends that this service did not load, if the caller has seen all of it."""
        found = yield from framework_operations.read(place.log, 1)
        if not found:
            raise SessionNotFoundError(f"Session {place.session_id} not found.")
        yield from self._settle(place, found[-1])
        seen = session.events[-1].id if session.events else None
        newer = adk_records.time_of(found[-1]) > session.last_update_time
        if newer and adk_records.event_id(found[-1]) != seen:
            raise StaleSessionError(_STALE)
        return found.last

    def _append(
        self, place: Place, record: Message, expect: int, key: str | None = None
    ) -> Steps[Ack]:
        """One record, and what it changes for others. Nothing is cut off: old deltas make the state."""
        steps = framework_operations.add(place.log, [record], key, expect=expect, retention=None)
        ack = yield from steps
        assert ack is not None  # noqa: S101 - there is a message
        yield from self._settle(place, record, ack.last)
        return ack

    def _settle(self, place: Place, record: Message, number: int | None = None) -> Steps[None]:
        """Carry over what a record says for its app and its user, unless that is done; once, by a key."""
        number = (record.seq or 0) if number is None else number
        key = adk_records.settled_key(place.log, number, record)
        if self._settled.get(place.log) == key:
            return
        for scope, log in ((APP, place.app_log), (USER, place.user_log)):
            if delta := adk_records.of_scope(adk_records.delta_of(record), scope):
                change = adk_records.shared_change(delta)
                yield from framework_operations.add(log, [change], key, retention=None)
                yield from _fold(log)
        if len(self._settled) >= SETTLED_MAX:
            self._settled.clear()
        self._settled[place.log] = key

    def _get(self, place: Place, config: GetSessionConfig) -> Steps[Session | None]:
        some = config.num_recent_events
        found = yield from _end_of(place.log, None if config.after_timestamp else some)
        if not found:
            return None
        yield from self._settle(place, found[-1])
        app = yield from _shared(place.app_log)
        user = yield from _shared(place.user_log)
        session = _made(place, found, app, user)
        since = config.after_timestamp or float("-inf")
        events = [one for one in found if adk_records.is_event(one)]
        events = [one for one in events if adk_records.time_of(one) >= since]
        shown = whole_turns.shown(tuple(events), self._turns)
        if some is not None:
            shown = whole_turns.shown(shown[len(shown) - min(some, len(shown)) :], self._turns)
        kept = History(shown, found.damaged)
        session.events = framework_operations.rendered(place.log, kept, theirs)
        return session


def theirs(message: Message) -> Event:
    """A message of ours as an event of ADK, by any writer."""
    return Event.model_validate(to_adk(message))


def _number(session: Session) -> int | None:
    """Where a session ended when this service loaded it; None if it did not."""
    mark = session._storage_update_marker  # noqa: SLF001 - ADK has it there for services
    if mark is None or not mark.startswith(_MARK):
        return None
    return int(mark.removeprefix(_MARK))


def _note(session: Session, number: int) -> None:
    session._storage_update_marker = f"{_MARK}{number}"  # noqa: SLF001 - as above


def _json(state: Values) -> Values:
    """State as ADK makes JSON of it."""
    form = _form(Event(author=ADK, actions=EventActions(state_delta=state)))
    delta: Values = form["actions"].get("state_delta", {})
    return delta


def _form(event: Event) -> Values:
    form: Values = framework_operations.dumped(
        lambda: event.model_dump(mode="json", exclude_none=True)
    )
    if delta := form.get("actions", {}).get("state_delta"):
        form["actions"]["state_delta"] = adk_records.without_temp(delta)
    return form


def _with_state(place: Place, record: Message) -> Steps[Message]:
    """The record with the whole state after it, unless a damaged one hides a part of that."""
    found = yield from _end_of(place.log, 0)
    if found.damaged:
        return record
    state = adk_records.state_of([*found, record])
    return dataclasses.replace(record, extra={ADK: {**record.extra[ADK], "state": state}})


def _end_of(log: str, limit: int | None) -> Steps[History]:
    """So many of the newest, and as many as the state needs; None: all."""
    some = None if limit is None else max(limit, STATE_EVERY + 1)
    found = yield from framework_operations.read(log, some)
    if some is not None and found.last and not adk_records.has_state(found):
        found = yield from framework_operations.read(log)
    if found.damaged and not found:
        raise Damaged(f"no record of {log!r} can be read: {found.damaged[0]}")
    return found


def _shared(log: str) -> Steps[Values]:
    found = yield from framework_operations.read(log)
    for damage in found.damaged:
        framework_operations.log.warning("%r: record %d cannot be read", log, damage.seq)
    return adk_records.folded(found)


def _fold(log: str) -> Steps[None]:
    """One record instead of many. If another client writes meanwhile, it is left to that one."""
    newest = yield from framework_operations.read(log, 1)
    if newest.last - newest.first_kept < SHARED_RECORDS_MAX:
        return
    found = yield from framework_operations.read(log)
    if found.damaged:
        return
    whole = adk_records.shared_change(adk_records.folded(found))
    try:
        yield lambda store: store.rewrite(log, [whole], expect=found.last)
    except HoldfastError as error:  # the change itself is written; it is tried again with the next
        framework_operations.log.debug("%r is not folded: %s", log, error)


def _made(place: Place, found: History, app: Values, user: Values) -> Session:
    """A session without its events."""
    state = adk_records.state_of(found)
    state |= {f"{APP}{name}": value for name, value in app.items()}
    state |= {f"{USER}{name}": value for name, value in user.items()}
    session = Session(
        app_name=place.app_name,
        user_id=place.user_id,
        id=place.session_id,
        state=state,
        last_update_time=adk_records.time_of(found[-1]),
    )
    _note(session, found.last)
    return session


def _names(app_name: str, user_id: str | None) -> Steps[list[str]]:
    of_user = () if user_id is None else (user_id,)
    return framework_operations.names(adk_records.name_of("session", app_name, *of_user, ""))


def _list(app_name: str, user_id: str | None) -> Steps[list[Session]]:
    names = yield from _names(app_name, user_id)
    app = yield from _shared(adk_records.name_of("app", app_name))
    sessions: list[Session] = []
    users: dict[str, Values] = {}
    for at in range(0, len(names), AT_ONCE):
        some = names[at : at + AT_ONCE]
        for name, end in (yield from framework_operations.ends(some, STATE_EVERY + 1)):
            place = adk_records.place_of(name)
            if place.user_id not in users:
                users[place.user_id] = yield from _shared(place.user_log)
            found = end if adk_records.has_state(end) else (yield from _end_of(name, 0))
            if found:
                sessions.append(_made(place, found, app, users[place.user_id]))
    return sessions
