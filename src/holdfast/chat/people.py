"""Who is who: a person is a secret in a cookie, and everything of theirs is named after its hash.

Names of sessions are no secrets. Knowing one does not let you read it: a request names only
the conversation, and the person's part of the name is made from the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from holdfast.errors import UsageError

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_CONVERSATION: Final = re.compile(r"[A-Za-z0-9_-]{8,64}\Z")
NAME: Final = re.compile(r"u/([0-9a-f]{32})/(?:(memory|memories)|s/([A-Za-z0-9_-]{8,64}))\Z")
"""A name in the store: the person, then the scope of the memories or the conversation."""
PEOPLE: Final = "u/"
OLD_MEMORY: Final = "/memory"
"""The end of the name of a session in which an earlier release kept memories."""


def new_token() -> str:
    """A secret that nobody can guess: 256 bits."""
    return secrets.token_urlsafe(32)


def is_token(text: str | None) -> bool:
    """Whether a text has the shape of one of our secrets."""
    return text is not None and _TOKEN.match(text) is not None


def is_conversation(text: object) -> bool:
    """Whether this is an id that a conversation can have."""
    return isinstance(text, str) and _CONVERSATION.match(text) is not None


@dataclass(frozen=True, slots=True)
class Person:
    """The names in the store of all that belongs to one person."""

    id: str

    @classmethod
    def of(cls, token: str) -> Person:
        """Who holds this secret. The store never sees the secret itself."""
        return cls(hashlib.sha256(b"holdfast chat\0" + token.encode()).hexdigest()[:32])

    @property
    def prefix(self) -> str:
        """What every session of this person begins with, and no other."""
        return f"{PEOPLE}{self.id}/"

    @property
    def memories(self) -> str:
        """The scope of what is remembered of this person."""
        return f"{self.prefix}memories"

    @property
    def conversations(self) -> str:
        """What every conversation of this person begins with."""
        return f"{self.prefix}s/"

    def session(self, conversation: str) -> str:
        """The session of a conversation; `UsageError` for what is no id of one."""
        if not is_conversation(conversation):
            raise UsageError(
                "the id of a conversation is 8 to 64 letters, digits, - and _; nothing was sent"
            )
        return f"{self.conversations}{conversation}"

    def begun(self, conversation: str) -> str:
        """The session of an answer that is being made; it is none of the conversations."""
        return f"{self.prefix}begun/{conversation}"


class Access:
    """The token that a service asks for when others than this machine can reach it."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    @property
    def open(self) -> bool:
        """Whether no token is asked for."""
        return self._token is None

    def pass_for(self, token: str) -> str | None:
        """What a browser keeps instead of the token; None for a wrong one."""
        if self._token is None or not hmac.compare_digest(self._token, token.encode()):
            return None
        return self._pass()

    def admits(self, kept: str | None) -> bool:
        """Whether a request with this cookie may enter; nobody can guess one."""
        if self._token is None:
            return True
        return kept is not None and hmac.compare_digest(self._pass().encode(), kept.encode())

    def _pass(self) -> str:
        return hmac.new(self._token or b"", b"holdfast chat pass", hashlib.sha256).hexdigest()
