"""A finding as one line that a person can follow: `A appends a0 a1 · power cut · B reads []`. Pure.

Clients are letters in the order in which they appear, messages are named after their writer. What
a read shows besides is `…`: only the messages of the finding have names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from string import ascii_uppercase
from typing import Any, Final

_FAULTS: Final = {
    "power": "power cut",
    "power-explore": "power cut",
    "kill": "SIGKILL",
    "crash-at-line": "SIGKILL",
    "lost-ack": "the reply is lost",
    "disk": "the disk is full or fails",
    "network": "network cut",
    "connections": "no connection left",
    "power over": "power is back",
    "network over": "network is back",
}
_ENDS: Final = {"ok": "", "fail": " (refused)", "info": " (no answer)"}
_STRUCK: Final = {
    "crash-at-line": "SIGKILL",
    "power-at-line": "power cut",
    "engine-at-line": "the engine killed",
}
"""What these do to an operation, which is no fault of its own in the history."""
_REST: Final = "…"
_BEFORE_CHARS: Final = 24
_SHOWN_CHARS: Final = 90
_OPERATION: Final = re.compile(r"\b(append|read|forget|rewrite) (\d+)\b")
_QUOTED: Final = re.compile(r"'([^']+)'")
_Event = tuple[int, str, Mapping[str, Any]]
"""When it began, in words, and the operation; nothing where it is a fault."""


def story(anomaly: Mapping[str, Any]) -> str:
    """The operations of a finding in the order in which they began, faults between them."""
    operations = sorted(anomaly.get("operations") or (), key=lambda one: one["invoked_ns"])
    if not operations:
        return ""
    names = _Names(anomaly.get("message"))
    struck = _STRUCK.get(anomaly.get("scenario", ""), "")
    if struck:
        place = str(anomaly.get("at", "")).partition(" ")[0]
        struck = f", {struck} {f'at {place}' if place else 'in the middle'}"
    last_ns = operations[-1]["invoked_ns"]
    events = [(one["invoked_ns"], _words(one, names, struck), one) for one in operations]
    events += [
        (fault["time_ns"], _FAULTS.get(fault["name"], fault["name"]), {})
        for fault in anomaly.get("faults") or ()
        if fault["time_ns"] <= last_ns or not fault["name"].endswith(" over")
    ]
    line = ""
    ended_ns: int | None = None
    for began_ns, words, one in _counted(sorted(events, key=lambda event: event[0])):
        overlaps = ended_ns is not None and began_ns < ended_ns
        line += (" · meanwhile " if overlaps else " · ") + words if line else words
        if one and one["status"] != "info":
            ended_ns = max(ended_ns or 0, one.get("completed_ns") or began_ns)
    return line


def story_of(one: Mapping[str, Any]) -> str:
    """Of all that is said of a broken promise the shortest story; of odd content what came back."""
    roots = [each for each in one["anomalies"] if each.get("follows_from") is None]
    # Only the first of a kind are told with their faults.
    whole = [each for each in roots if "faults" in each] or roots
    if stories := [words for root in whole if (words := story(root))]:
        return min(stories, key=len)
    for said in one["evidence"].get("scenarios", {}).values():
        for example in said.get("examples", ()):
            if example.get("sent") != example.get("seen"):
                return _came_back(example)
    return ""


def example_of(promise: str, one: Mapping[str, Any], less: Mapping[str, Any] | None) -> str:
    """The story of a broken promise: of the smallest plan (`less`), where that is about it."""
    return (less["story"] if less and less["promise"] == promise else "") or story_of(one)


def named(anomaly: Mapping[str, Any]) -> dict[str, Any]:
    """The same finding in the names of its story: clients are letters, messages `a0`."""
    names = _Names(None)
    operations = sorted(anomaly.get("operations") or (), key=lambda one: one["invoked_ns"])
    called: dict[int, str] = {}
    for one in operations:
        client = names.of_client(one["process"])
        if one["f"] in ("append", "rewrite"):
            for message in one.get("messages") or ():
                names.add(client, message)
        called[one["op"]] = f"{client}'s"

    def operation(found: re.Match[str]) -> str:
        verb, number = found[1], int(found[2])
        return f"{called[number]} {verb}" if number in called else found[0]

    def quoted(found: re.Match[str]) -> str:
        return names.of_message(found[1]) or found[0]

    because = _OPERATION.sub(operation, _QUOTED.sub(quoted, anomaly["because"]))
    shown = [
        {
            **one,
            "process": names.of_client(one["process"]),
            "messages": [names.of_message(each) or each for each in one.get("messages") or ()],
        }
        for one in operations
    ]
    about = names.of_message(anomaly.get("message") or "") or anomaly.get("message")
    return {**anomaly, "operations": shown, "message": about, "because": because}


def _came_back(example: Mapping[str, Any]) -> str:
    """What was sent and what was read, from shortly before they differ."""
    sent, seen = str(example.get("sent")), str(example.get("seen"))
    pairs = enumerate(zip(sent, seen, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(sent), len(seen)))
    sent, seen = (_cut(text, max(same - _BEFORE_CHARS, 0)) for text in (sent, seen))
    return f"{example.get('what', 'a message')}: A appends {sent} · A reads {seen}"


def _cut(text: str, begin: int) -> str:
    shown = text[begin : begin + _SHOWN_CHARS]
    before, after = (_REST if cut else "" for cut in (begin, len(text) > begin + _SHOWN_CHARS))
    return f"{before}{shown}{after}"


def _counted(events: list[_Event]) -> Iterator[_Event]:
    """A fault that struck several times in a row is told once."""
    for (words, is_fault), same in groupby(events, key=lambda event: (event[1], not event[2])):
        alike = list(same)
        if is_fault and len(alike) > 1:
            yield alike[0][0], f"{words} ({len(alike)} times)", {}
        else:
            yield from alike


class _Names:
    """Letters for clients, and names for the messages that they appended."""

    def __init__(self, about: str | None) -> None:
        self._about = about
        self._clients: dict[str, str] = {}
        self._messages: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def of_client(self, process: str) -> str:
        turn, letter = divmod(len(self._clients), len(ascii_uppercase))
        return self._clients.setdefault(process, ascii_uppercase[letter] + str(turn or ""))

    def of_message(self, message: str) -> str | None:
        return self._messages.get(message)

    def knows(self, messages: Sequence[str]) -> bool:
        """Whether each was appended before."""
        return bool(messages) and all(message in self._messages for message in messages)

    def add(self, client: str, message: str) -> str:
        number = self._count.get(client, 0)
        if message not in self._messages:
            self._count[client] = number + 1
        return self._messages.setdefault(message, f"{client.lower()}{number}")

    def shown(self, messages: list[str]) -> str:
        """Those of a read that have a name; a run of others is one `…`. Then what is missed, if any is."""
        found: list[str] = []
        for message in messages:
            name = self._messages.get(message, _REST)
            if name != _REST or found[-1:] != [_REST]:
                found.append(name)
        lacks = self._messages.get(self._about or "")
        return f"[{' '.join(found)}]" + (
            f" without {lacks}" if lacks and found and lacks not in found else ""
        )


def _words(one: Mapping[str, Any], names: _Names, struck: str) -> str:
    """One operation. `struck`: what ended those that were never answered."""
    client, messages = names.of_client(one["process"]), one.get("messages")
    end = struck if struck and one["status"] == "info" else _ENDS.get(one["status"], "")
    if one["f"] in ("append", "rewrite"):
        verb = "retries" if names.knows(messages or ()) else f"{one['f']}s"
        said = " ".join(names.add(client, message) for message in messages or ())
        return f"{client} {verb} {said}{end}"
    if one["f"] == "history":
        limit = "" if one.get("limit") is None else f" the newest {one['limit']}:"
        shown = "nothing" if messages is None else names.shown(messages)
        return f"{client} reads{limit} {shown}{end}"
    return f"{client} {one['f']}s{end}"
