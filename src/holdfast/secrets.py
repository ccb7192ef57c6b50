"""URLs with passwords: a value that shows none, so that no word, log or `repr` can repeat one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

_NAMED: Final = re.compile(r"((?:pass|pwd|secret|token)\w*\s*=).*", re.IGNORECASE | re.DOTALL)
"""A password by its name, as in `host=h password=p`; where it ends is not known."""


class SecretUrl:
    """A URL, or what was given in place of one. Only `reveal` gives its password away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """As it was given: for the driver that connects, and for no words."""
        return self._text

    def __str__(self) -> str:
        """As it may be shown: nothing of a user name, a password or an option is left.

        A password with a slash in it looks like a path, so all before the last @ goes.
        """
        scheme, mark, rest = self._text.partition("://")
        if not mark:  # no URL, or one that is written wrong
            _, at, place = self._text.rpartition("@")
            return _NAMED.sub(r"\1…", f"…@{place}" if at else self._text)
        if scheme in ("sqlite", "chroma") and rest.startswith("/"):  # a file's name may hold an @
            return _NAMED.sub(r"\1…", self._text)
        place = rest.partition("?")[0].partition("#")[0].rpartition("@")[2]
        return f"{scheme}{mark}{place}"

    def __repr__(self) -> str:
        return f"SecretUrl({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretUrl) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def without_passwords(words: str, given: Sequence[str]) -> str:
    """Words that may quote the arguments of a command: what looks like a URL loses its password."""
    for one in given:
        text = one.partition("=")[2] if one.startswith("-") else one
        if ":" in text or _NAMED.search(text):
            for quoted in (text, repr(text)[1:-1], str(PurePath(text))):  # as files are named
                words = words.replace(quoted, str(SecretUrl(text)))
    return words
