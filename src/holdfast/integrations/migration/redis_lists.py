"""Histories in Redis: one list for each session. Only SCAN, TYPE, LRANGE and PTTL are sent."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from holdfast.connection import scheme_of
from holdfast.errors import EngineUnreachable, UsageError
from holdfast.integrations.migration.found import Found, Row
from holdfast.secrets import SecretUrl

SCHEMES: Final = ("redis", "rediss", "unix", "valkey", "valkeys")
WAIT_S: Final = 30
SCAN_COUNT: Final = 500


class Lists:
    """Lists whose keys are a prefix, the session's id and a suffix."""

    def __init__(
        self, url: str, prefix: str, suffix: str, *, newest_first: bool, encoded: str = ""
    ) -> None:
        """`encoded`: what begins an id that is written in base32."""
        if scheme_of(url) not in SCHEMES:
            raise UsageError(f"this source is a Redis: redis://host:6379/0, not {SecretUrl(url)}")
        try:
            import redis  # noqa: PLC0415 - only who brings something over from Redis needs it
        except ImportError as error:
            raise UsageError(f"{error}. To have it: pip install 'holdfast[redis]'") from error
        self._prefix, self._suffix, self._newest_first = prefix, suffix, newest_first
        self._encoded, self._written = encoded, dict[str, str]()
        self._place = SecretUrl(url)
        self._error: type[Exception] = redis.RedisError
        address = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
        self._client: Any = redis.Redis.from_url(
            address, socket_timeout=WAIT_S, socket_connect_timeout=WAIT_S
        )

    def names(self) -> Iterator[str]:
        """Found by SCAN, which may show a key twice."""
        seen: set[bytes] = set()
        cursor: int | None = None
        pattern = f"{_literal(self._prefix)}*{_literal(self._suffix)}"
        while cursor != 0:
            with self._asking():
                cursor, keys = self._client.scan(
                    cursor or 0, match=pattern, count=SCAN_COUNT, _type="list"
                )
            for key in keys:
                if key not in seen:
                    seen.add(key)
                    yield self._name(key)

    def read(self, name: str) -> Found:
        """All of a list, which one command reads at one instant."""
        written = self._written.get(name, name)
        key = f"{self._prefix}{written}{self._suffix}".encode("utf-8", "surrogateescape")
        with self._asking():
            items: list[bytes] = self._client.lrange(key, 0, -1)
            left_ms = int(self._client.pttl(key))
        if self._newest_first:
            items.reverse()
        rows = [Row(place, item) for place, item in enumerate(items)]
        return Found(rows, left_ms / 1000 if left_ms > 0 else None)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _name(self, key: bytes) -> str:
        text = key.decode("utf-8", "surrogateescape")
        name = text[len(self._prefix) : len(text) - len(self._suffix)]
        if self._encoded and name.startswith(self._encoded):
            packed = name.removeprefix(self._encoded).upper()
            try:
                plain = base64.b32decode(packed + "=" * (-len(packed) % 8)).decode()
            except ValueError:  # a digest of a long one: nobody knows it any more
                return name
            self._written[plain] = name
            return plain
        return name

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise EngineUnreachable(
                f"the source {self._place} cannot be read ({type(error).__name__}: {error}). "
                "It was not changed; run this again to go on",
                operation="migrate",
            ) from error


def _literal(text: str) -> str:
    """A text as a pattern that only it matches."""
    return "".join(f"\\{char}" if char in "*?[]^-\\" else char for char in text)
