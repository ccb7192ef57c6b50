"""What a session of ADK is in our log: names, records, and the state that they make. Pure; needs no ADK."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from holdfast.integrations import framework_operations
from holdfast.integrations.forms import ADK
from holdfast.model import History, Message

APP: Final = "app:"
USER: Final = "user:"
TEMP: Final = "temp:"
"""How ADK begins the names of what an app, a user, and nobody after this moment shall know."""
ROOT: Final = "adk"
"""How the ids of all its sessions in the store begin."""
STATE_EVERY: Final = 32
"""The record of each such number carries the whole state, so that nobody reads a long session for it."""

Values = dict[str, Any]


class Place(NamedTuple):
    """Where a session is, as ADK names it."""

    app_name: str
    user_id: str
    session_id: str

    @property
    def log(self) -> str:
        """The session of the store that holds it."""
        return name_of("session", *self)

    @property
    def app_log(self) -> str:
        """Where the state of the app is."""
        return name_of("app", self.app_name)

    @property
    def user_log(self) -> str:
        """Where the state of the user is."""
        return name_of("user", self.app_name, self.user_id)


def name_of(kind: str, *names: str) -> str:
    """The id of a log; no two places have the same."""
    escaped = (one.replace("%", "%25").replace("/", "%2F") for one in names)
    return "/".join((ROOT, kind, *escaped))


def place_of(log: str) -> Place:
    """Of which session this is the log."""
    return Place(*(one.replace("%2F", "/").replace("%25", "%") for one in log.split("/")[2:]))


def settled_key(log: str, number: int, record: Message) -> str:
    """The key by which what a record says for its app and its user is carried over once.

    A session that is made again under its old name has the numbers again, at another time.
    """
    key = framework_operations.key_of_ids("adk", [log, str(number), str(time_of(record))])
    assert key is not None  # noqa: S101 - each of them is a text
    return key


def created(at: float, delta: Values) -> Message:
    """The first record of a session."""
    about = {"created": at, "delta": delta, "state": of_scope(delta, "")}
    return Message(ADK, None, extra={ADK: about})


def shared_change(delta: Values) -> Message:
    """A record of the state of an app or a user."""
    return Message(ADK, None, extra={ADK: {"delta": delta}})


def is_event(record: Message) -> bool:
    """Whether it is more than the note that a session was created."""
    return "created" not in _about(record)


def event_id(record: Message) -> str | None:
    """The id that ADK gave an event."""
    name = _event(record).get("id")
    return name if isinstance(name, str) else None


def time_of(record: Message) -> float:
    """When it was made, in seconds, as ADK says it."""
    said = _event(record).get("timestamp") or _about(record).get("created")
    if isinstance(said, int | float):
        return float(said)
    return record.created_at.timestamp() if record.created_at else 0.0


def delta_of(record: Message) -> Values:
    """What a record changes of the states, with the prefixes of their scopes."""
    actions = _event(record).get("actions")
    delta = _about(record).get("delta") or (
        actions.get("state_delta") if isinstance(actions, dict) else None
    )
    return delta if isinstance(delta, dict) else {}


def without_temp(delta: Values) -> Values:
    """What is to be stored of a delta."""
    return {name: value for name, value in delta.items() if not name.startswith(TEMP)}


def of_scope(delta: Values, scope: str) -> Values:
    """What a delta says for one scope, without its prefix; `""` is the session's own."""
    if not scope:
        return {
            name: value for name, value in delta.items() if not name.startswith((APP, USER, TEMP))
        }
    return {
        name.removeprefix(scope): value for name, value in delta.items() if name.startswith(scope)
    }


def has_state(found: Iterable[Message]) -> bool:
    """Whether the state after these records is known from them alone."""
    return any(isinstance(_about(one).get("state"), dict) for one in found)


def state_of(found: Iterable[Message]) -> Values:
    """The state after these records: the newest that is whole, and what came after it."""
    state: Values = {}
    for record in found:
        whole = _about(record).get("state")
        if isinstance(whole, dict):
            state = dict(whole)
        else:
            state |= of_scope(delta_of(record), "")
    return state


def folded(found: History) -> Values:
    """The state of an app or a user after all of its changes."""
    state: Values = {}
    for record in found:
        state |= delta_of(record)
    return state


def _about(record: Message) -> Values:
    kept = record.extra.get(ADK)
    return kept if isinstance(kept, dict) else {}


def _event(record: Message) -> Values:
    event = _about(record).get("event")
    return event if isinstance(event, dict) else {}
