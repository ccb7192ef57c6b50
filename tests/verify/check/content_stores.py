"""Stores on SQLite that change or drop what a short test with small, different texts never shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from holdfast.verify import Target
from holdfast.verify.engines import Engine
from tests.verify.check.stores import KEEPS, Sound, Turns

Turn = dict[str, Any]


class Capped(Sound):
    """Nobody needs more than the last thousand, and the table stays small."""

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        super().append(session, messages, key)
        newest = "SELECT n FROM messages WHERE session = ? ORDER BY n DESC LIMIT 1000"
        drop = f"DELETE FROM messages WHERE session = ? AND n NOT IN ({newest})"
        self.db.execute(drop, (session, session))


ROUND_TRIP_S = 0.02
"""So a reader is in the middle of its pages when it is held, on a fast machine too."""


class Pages(Sound):
    """A long history is read two hundred at a time, each by a query of its own, over a network."""

    def history(self, session: str, limit: int | None) -> list[Turn]:
        if limit is not None:
            return super().history(session, limit)
        query = "SELECT body FROM messages WHERE session = ? ORDER BY n LIMIT 200 OFFSET ?"
        bodies: list[str] = []
        while page := self.db.execute(query, (session, len(bodies))).fetchall():
            bodies += [body for (body,) in page]
            time.sleep(ROUND_TRIP_S)
        return Turns(bodies)


class SaidOnce(Sound):
    """A double click must not write twice, so what was said before is not said again."""

    def _insert(self, session: str, body: str) -> None:
        text = json.loads(body)["content"]
        bodies = "SELECT body FROM messages WHERE session = ?"
        if all(json.loads(b)["content"] != text for (b,) in self.db.execute(bodies, (session,))):
            super()._insert(session, body)


class Doubles(Sound):
    """Every number is a double on its way, as in JavaScript and in Lua."""

    def encode(self, message: Turn) -> str:
        return json.dumps(json.loads(json.dumps(message), parse_int=_double))


class Truncates(Sound):
    """A column of eight megabytes, and a mode in which the engine does not mind."""

    def encode(self, message: Turn) -> str:
        text = message["content"]
        return super().encode({**message, "content": text[: 8 << 20] if text else text})


def _double(digits: str) -> int:
    return int(float(digits))


def _file(kind: type[Sound]) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        path = engine.url.removeprefix("sqlite:///")
        return Target(open=lambda: kind(path), engine=engine, claims=KEEPS, name=kind.__name__)

    return target


capped = _file(Capped)
pages = _file(Pages)
said_once = _file(SaidOnce)
doubles = _file(Doubles)
truncates = _file(Truncates)
