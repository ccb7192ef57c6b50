"""What strace wrote, as calls in the order in which they count. Pure.

A line is `SECONDS.NANOSECONDS name(arguments) = result <SECONDS>`. The tracer takes the first
time before it lets the call go, and the length after the call has ended and before the process
goes on: a client that knows that a call ended learned it later than `end_ns`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

NS_PER_S: Final = 1_000_000_000
NEVER_NS: Final = 2**63 - 1
"""When a call ended that was under way when its process was killed."""

_LINE: Final = re.compile(
    rb"(\d+)\.(\d{9}) (\w+)\((.*)\) += (\?|0x[0-9a-f]+|-?\d+)(?:<([^>]*)>)?(.*)$", re.DOTALL
)
_TOOK: Final = re.compile(rb"<(\d+)\.(\d{9})>$")
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_ARGUMENT: Final = re.compile(
    rb"(" + _STRING + rb"(?:\.\.\.)?|"
    rb"\[(?:[^\]\"]|" + _STRING + rb")*\](?: => \[[^\]]*\])?|"
    rb"\{(?:[^}\"]|" + _STRING + rb")*\}|"
    rb"(?:[^,<\"\[{]|<[^>]*>)+)(?:, |$)",
    re.DOTALL,
)
_BUFFER: Final = re.compile(rb"iov_base=(" + _STRING + rb")(\.\.\.)?")
_DESCRIPTOR: Final = re.compile(rb"(-?\d+|AT_FDCWD)(?:<([^>]*)>)?(\(deleted\))?$")
_AT_ITS_START: Final = frozenset(
    {"close", "close_range", "clone", "clone3", "fork", "vfork", "execve", "execveat"}
)
"""The number that `close` frees is used by others before it returns; a child runs before `clone`
returns in its parent; what `execve` closes is closed before the new program does anything."""


@dataclass(frozen=True, slots=True)
class Call:
    """One system call of one thread. `result` is None where nobody knows whether it was done."""

    thread: tuple[int, int]
    """Which tracer saw it, and the thread's id."""
    name: str
    arguments: bytes
    result: int | None
    path: str | None
    """What the descriptor that it returned leads to."""
    start_ns: int
    end_ns: int

    @property
    def counts_ns(self) -> int:
        """Where it stands in the order of all calls."""
        return self.start_ns if self.name in _AT_ITS_START else self.end_ns

    def words(self) -> list[bytes]:
        """Its arguments, each as it was written."""
        return [found[1] for found in _ARGUMENT.finditer(self.arguments)]

    def first(self) -> bytes:
        """Its first argument, without a look at the rest, which may be megabytes."""
        found = _ARGUMENT.match(self.arguments)
        return found[1] if found else b""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor as an argument: its number (None is the working directory) and its path."""

    number: int | None
    path: str | None
    deleted: bool = False


def parse(lines: Iterable[bytes], thread: tuple[int, int], offset_ns: int = 0) -> Iterator[Call]:
    """The calls of one thread, in its own order; signals and failed calls are left out.

    `offset_ns` is how far the tracer's clock is ahead of the one that is wanted.
    """
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        seconds, fraction, name, arguments, result, path, rest = found.groups()
        start_ns = int(seconds) * NS_PER_S + int(fraction) - offset_ns
        took = _TOOK.search(rest)
        value = None if result == b"?" else int(result, 0)
        if (value is None and b"ERESTART" in rest) or (value is not None and value < 0):
            continue
        end_ns = NEVER_NS
        if value is not None:
            end_ns = start_ns + (int(took[1]) * NS_PER_S + int(took[2]) if took else 0)
        where = None if path is None else text(path)
        yield Call(thread, name.decode(), arguments, value, where, start_ns, end_ns)


def in_order(calls: Iterable[Call]) -> list[Call]:
    """All calls of all threads as they count: by their end, and some by their start.

    If one call was known to have ended before another began, it stands before it.
    """
    return sorted(calls, key=lambda call: call.counts_ns)


def descriptor(word: bytes) -> Descriptor:
    """A descriptor, annotated with its path by `strace -y`."""
    found = _DESCRIPTOR.match(word)
    if found is None:
        return Descriptor(int(word, 0), None)  # a call that is shown raw
    number = None if found[1] == b"AT_FDCWD" else int(found[1])
    return Descriptor(number, None if found[2] is None else text(found[2]), found[3] is not None)


def content(word: bytes) -> bytes | None:
    """The bytes of a string argument; None where strace cut it short."""
    if not word.endswith(b'"'):
        return None
    return _unescape(word[1:-1])


def buffers(word: bytes) -> bytes | None:
    """The bytes of a list of buffers, joined; None where strace cut one short."""
    found = list(_BUFFER.finditer(word))
    if any(one[2] for one in found) or word.endswith(b"...]"):
        return None
    return b"".join(_unescape(one[1][1:-1]) for one in found)


def text(word: bytes) -> str:
    """A path, without its quotes; bytes that are not UTF-8 survive as `os.fsdecode` has them."""
    return _unescape(word.strip(b'"')).decode("utf-8", "surrogateescape")


def _unescape(word: bytes) -> bytes:
    return word if b"\\" not in word else word.decode("unicode_escape").encode("latin-1")
