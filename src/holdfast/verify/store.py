"""Any store as one small surface: ours or a stranger's, sync or async, as the clients need it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.contract import AsyncStore, Store
from holdfast.errors import NotApplied, UsageError
from holdfast.model import Message
from holdfast.verify.target import Target

_OWN_FIELDS: Final = ("id", "role", "content")
_UNNAMED: Final = "?"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one read returned, oldest first: messages as dictionaries, numbers where given."""

    messages: list[dict[str, Any]]
    seqs: list[int] | None = None
    damaged: int = 0

    def ids(self) -> list[str]:
        """Which message each one is; one that cannot be recognised is named by its words."""
        return [message_id(message) for message in self.messages]


class Surface:
    """An opened store with three operations that wait. Close it; closing closes the store."""

    def __init__(self, target: Target) -> None:
        """Open the target's store; whatever `open()` raises is raised here."""
        self._loop: asyncio.Runner | None = None
        self._definite = target.definite
        self._store = self._now(target.open())
        self._ours = isinstance(self._store, Store | AsyncStore)
        self.keyed = _takes_key(self._store)

    @property
    def level(self) -> str:
        """What an ack says that it survives; DISK where the store names none."""
        return self._store.durability.name if self._ours else "DISK"

    def append(
        self, session: str, messages: list[dict[str, Any]], key: str | None = None
    ) -> list[int] | None:
        """Append as one batch; its numbers where the store gives them."""
        named = {"key": key} if key is not None and self.keyed else {}
        if not self._ours:
            self._now(self._store.append(session, messages, **named))
            return None
        ack = self._now(self._store.append(session, [_to_ours(m) for m in messages], **named))
        return list(range(ack.first, ack.last + 1))

    def history(self, session: str, limit: int | None = None) -> Seen:
        """The newest `limit` messages, or all."""
        if not self._ours:
            found = self._now(self._store.history(session, limit))
            return Seen([_as_dict(message) for message in found or ()])
        found = self._now(self._store.history(session, limit=limit))
        seqs = [message.seq for message in found]
        return Seen([_from_ours(message) for message in found], seqs, len(found.damaged))

    def forget(self, session: str) -> None:
        """Erase a session."""
        self._now(self._store.forget(session))

    def certain(self, error: BaseException) -> bool:
        """Whether an error means that nothing was written; a stranger's only if declared so."""
        if self._ours:
            return isinstance(error, UsageError | NotApplied)
        return bool(self._definite) and isinstance(error, self._definite)

    def close(self) -> None:
        """Close the store, if it can be closed, and its event loop."""
        try:
            close = getattr(self._store, "close", None) or getattr(self._store, "aclose", None)
            if close is not None:
                self._now(close())
        finally:
            if self._loop is not None:
                self._loop.close()
                self._loop = None

    def _now(self, value: Any) -> Any:
        """The value, awaited on the loop of this surface where it must be."""
        if not inspect.isawaitable(value):
            return value
        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop.run(_awaited(value))


async def _awaited(value: Any) -> Any:
    return await value


def message_id(message: Mapping[str, Any]) -> str:
    """The id of a message, or the first word of its content where a store drops ids."""
    found = message.get("id")
    if isinstance(found, str) and found:
        return found
    content = message.get("content")
    words = content.split(maxsplit=1) if isinstance(content, str) else []
    return words[0] if words else _UNNAMED


def _takes_key(store: Any) -> bool:
    try:
        parameters = inspect.signature(store.append).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "key" or p.kind is p.VAR_KEYWORD for p in parameters)


def _to_ours(message: Mapping[str, Any]) -> Message:
    extra = {name: value for name, value in message.items() if name not in _OWN_FIELDS}
    return Message(message["role"], message["content"], id=message["id"], extra=extra)


def _from_ours(message: Message) -> dict[str, Any]:
    return {"id": message.id, "role": message.role, "content": message.content, **message.extra}


def _as_dict(message: Any) -> dict[str, Any]:
    """A stranger's message: a mapping, or an object with those attributes."""
    if isinstance(message, Mapping):
        return dict(message)
    fields: Iterable[str] = getattr(message, "__dict__", {}) or _OWN_FIELDS
    return {name: getattr(message, name, None) for name in fields}
