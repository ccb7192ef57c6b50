"""The program that a container's command starts, also where a shell starts it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

SHELLS: Final = frozenset({"sh", "ash", "bash", "dash"})
SERVERS: Final = frozenset({"redis-server", "valkey-server", "postgres", "chroma", "keydb-server"})
CLIENTS: Final = frozenset(
    {"redis-sentinel", "valkey-sentinel", "redis-cli", "valkey-cli", "psql", "pg_basebackup"}
)
"""Programs of the same images that keep no conversations."""
_ENDS: Final = frozenset({";", "&", "&&", "|", "||", "(", ")", "{", "}"})
_BEFORE: Final = frozenset({"exec", "docker-entrypoint.sh", "env", "nohup"})


def program_words(words: Sequence[str]) -> list[str] | None:
    """The words of the engine's own program; None where a shell starts something unknown.

    Of a script the last server counts, or where there is none the last client: `until redis-cli ping;
    do sleep 1; done; exec redis-server --appendonly yes` starts a server.
    """
    if not words or PurePosixPath(words[0]).name not in SHELLS:
        return list(words)
    flags = [at for at, word in enumerate(words) if word[:1] == "-" and word.endswith("c")]
    if not flags or flags[0] + 1 >= len(words):
        return None
    statements = [list(one) for one in _statements(words[flags[0] + 1])]
    for wanted in (SERVERS, CLIENTS):
        found = [one for one in statements if PurePosixPath(one[0]).name in wanted]
        if found:
            return found[-1]
    return None


def is_client(words: Sequence[str]) -> bool:
    """Whether that is a program which keeps no conversations: a sentinel, a command-line client."""
    started = [word for word in words if word not in _BEFORE]
    return bool(started) and (PurePosixPath(started[0]).name in CLIENTS or "--sentinel" in started)


def _statements(script: str) -> Iterator[list[str]]:
    """Each command of a script, without what only hands over to it; a line with open quotes is left out."""
    for line in script.replace("$$", "$").replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            tokens = list(lexer)
        except ValueError:
            continue
        statement: list[str] = []
        for token in (*tokens, ";"):
            if token not in _ENDS:
                if statement or token not in _BEFORE:
                    statement.append(token)
                continue
            if statement:
                yield statement
            statement = []
