"""The file that LlamaIndex's `SimpleChatStore` persists: every session in one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.integrations.migration.found import Found, Row


class PersistedFile:
    """A document that was read once."""

    def __init__(self, url: str) -> None:
        path = Path(url.removeprefix("file://"))
        try:
            document: Any = json.loads(path.read_text("utf-8"))
            if isinstance(document, str):  # an earlier release wrote JSON inside of JSON
                document = json.loads(document)
            self._sessions: dict[str, list[Any]] = dict(document["store"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} is no file that SimpleChatStore.persist wrote "
                f"({type(error).__name__}: {error})"
            ) from error

    def names(self) -> Iterator[str]:
        """As they stand there."""
        yield from self._sessions

    def read(self, name: str) -> Found:
        """One of them."""
        found = self._sessions.get(name, [])
        return Found([Row(place, json.dumps(each)) for place, each in enumerate(found)])

    def close(self) -> None:
        """Nothing is open."""
