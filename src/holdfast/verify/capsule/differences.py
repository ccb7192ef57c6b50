"""What differs between what was kept and what is read today, message by message. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_SHOWN_CHARS_MAX: Final = 120
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

    session: str
    place: str
    """`message 3`, or the session itself where empty."""
    what: str

    def __str__(self) -> str:
        where = f"{self.session!r}, {self.place}" if self.place else repr(self.session)
        return f"{where}: {self.what}"


def compare(kept: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """Every difference of one session, in the order of its messages."""
    session = kept["session"]
    if "error" in found:
        if found.get("error") != kept.get("error"):
            yield Difference(session, "", f"cannot be read: {found['error']}")
        return
    for name in ("state", "last", "ttl_s"):
        if kept.get(name) != found.get(name):
            yield Difference(session, "", _changed(name, kept.get(name), found.get(name)))
    yield from _messages(session, kept, found)
    yield from _damages(session, kept, found)


def _messages(
    session: str, kept: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[Difference]:
    before, after = _by_place(kept), _by_place(found)
    for place, message in before.items():
        if place in after:
            yield from _fields(session, place, message, after[place])
        else:
            why = "cannot be read" if place in _damaged(found) else "is missing"
            yield Difference(session, place, f"{why}; it was {_shown(message)}")
    for place, message in after.items():
        if place not in before:
            yield Difference(session, place, f"was not there: {_shown(message)}")


def _damages(
    session: str, kept: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[Difference]:
    """A damaged record is named, then as now; one that became so is a message that is gone."""
    for place in sorted(_damaged(kept) - _damaged(found) - set(_by_place(found))):
        yield Difference(session, place, "was named as damaged, and is left out silently")
    for place in sorted(_damaged(found) - _damaged(kept) - set(_by_place(kept))):
        yield Difference(session, place, "is named as damaged, and was not")


def _fields(
    session: str, place: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    for name in dict.fromkeys((*before, *after)):
        was, now = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if _exact(was) != _exact(now):
            yield Difference(session, place, _changed(name, was, now))


def _by_place(session: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By number where the store gives one, otherwise by position."""
    return {
        f"message {message.get('seq', number)}": message
        for number, message in enumerate(session.get("messages", ()), 1)
    }


def _damaged(session: Mapping[str, Any]) -> set[str]:
    return {f"message {number}" for number in session.get("damaged", ())}


def _changed(name: str, was: object, now: object) -> str:
    return f"{name} was {_shown(was)}, is {_shown(now)}"


def _exact(value: object) -> str:
    """So that 1, 1.0 and True differ, and absence from null."""
    return "" if value is _ABSENT else json.dumps(value, sort_keys=True, default=repr)


def _shown(value: object) -> str:
    text = "nothing" if value is _ABSENT else json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"
