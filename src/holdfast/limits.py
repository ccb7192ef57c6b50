"""Every bound of the store, in one place, each with its unit in its name.

They are the same for every backend, so that what one engine took, any other can take.
"""

from __future__ import annotations

from typing import Final

SESSION_BYTES_MAX: Final = 1024
"""A session id, as UTF-8."""

NAMESPACE_BYTES_MAX: Final = 256
"""A namespace, as UTF-8."""

KEY_BYTES_MAX: Final = 1024
"""An idempotency key, as UTF-8."""

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""One message in its stored form."""

BATCH_MESSAGES_MAX: Final = 10_000
"""Messages in one append or rewrite."""

BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""All messages of one append or rewrite, in their stored form."""

JSON_DEPTH_MAX: Final = 100
"""Lists and objects inside one another in a message."""

INTEGER_BITS_MAX: Final = 14_000
"""An integer in a message; Python refuses to read much longer ones from text."""

PAGE_SESSIONS_MAX: Final = 10_000
"""Sessions in one page of a listing."""

TTL_S_MAX: Final = 100 * 366 * 24 * 3600
"""A session's time to live: about a century."""

NUMBER_MAX: Final = 2**32 - 1
"""The last number that a session can give."""

TTL_MS_MAX: Final = TTL_S_MAX * 1000
"""The same as engines count it."""

EXPIRES_MS_MAX: Final = 253_402_300_799_999
"""When a session may expire, since 1970: the end of the year 9999, which is as far as dates go."""

RECORD_BYTES_MAX: Final = MESSAGE_BYTES_MAX + 1024
"""One message with what is stored around it."""

EXPORT_LINE_CHARS_MAX: Final = 1024 * 1024 * 1024
"""A line of an export. One that names a session has some 60 for each key that was used."""

EXPORT_DEPTH_MAX: Final = JSON_DEPTH_MAX + 4
"""Lists and objects inside one another in a line of an export: those around a message, and its own."""

EXPORT_PAGE_SESSIONS: Final = 1000
"""Session names that an export reads at a time."""

KEYS_KEPT_S: Final = 90 * 24 * 3600
"""How long a used key and a tombstone are kept at least, unless `connect` is told otherwise."""

RECALL_FILTERED_MAX: Final = 1000
"""Candidates that are looked at when a recall is filtered or bounded in time."""
