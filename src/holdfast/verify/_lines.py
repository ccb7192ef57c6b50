"""One line of a history file, decoded and with the type of every field checked.

`msgspec` does this in C, and hands over the list of message ids as the bytes that stand in the
file, so that tens of millions of ids are never built. Without it the `json` of the standard
library gives the same lines, only slower.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from holdfast.errors import NotAHistory

try:
    import msgspec

    _FAST = True
except ImportError:  # the `verify` extra is not installed
    _FAST = False


class Line(Protocol):
    """What every decoder gives. `messages` is the JSON text of the list, empty where absent."""

    type: str
    time_ns: int
    op: int | None
    process: int | str | None
    f: str | None
    session: str | None
    messages: Any
    limit: int | None
    seqs: list[int] | None
    key: str | None
    name: str | None
    closes: list[int]
    landed: bool


class Decoder(Protocol):
    """Turns whole lines into `Line`s. A line that is not one raises `ValueError`."""

    def one(self, text: bytes) -> Line:
        """The line in `text`."""
        ...

    def many(self, text: bytes) -> list[Line]:
        """Every line in `text`, in order."""
        ...

    def ids(self, text: bytes) -> list[str]:
        """The message ids in the JSON list `text`."""
        ...


@dataclass(slots=True)
class _PlainLine:
    type: str
    time_ns: int
    op: int | None = None
    process: int | str | None = None
    f: str | None = None
    session: str | None = None
    messages: bytes = b""
    limit: int | None = None
    seqs: list[int] | None = None
    key: str | None = None
    name: str | None = None
    closes: list[int] = field(default_factory=list)
    landed: bool = True


_OPTIONAL: dict[str, tuple[type, ...]] = {
    "op": (int,),
    "process": (int, str),
    "f": (str,),
    "session": (str,),
    "limit": (int,),
    "key": (str,),
    "name": (str,),
}
_KINDS = {"type": (str,), "time_ns": (int,), "landed": (bool,), **_OPTIONAL}
_AS_BYTES = "surrogateescape"
_DIGITS_MAX = 4300
"""What `int` reads by default."""


class PlainDecoder:
    """The standard library's `json`, with the same checks that `msgspec` makes."""

    def one(self, text: bytes) -> Line:
        """The line in `text`."""
        value = _loads(text)
        if not isinstance(value, _Object):
            raise ValueError("expected an object")  # noqa: TRY004 - every decoder's one error
        return _plain_line(value)

    def many(self, text: bytes) -> list[Line]:
        """Every line in `text`, in order."""
        return [self.one(line) for line in text.splitlines()]

    def ids(self, text: bytes) -> list[str]:
        """The message ids in the JSON list `text`."""
        value = json.loads(text.decode())
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("expected a list of strings")
        return value


class _Object(dict[str, Any]):
    """An object of which every field counts, also one that stands there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _loads(text: bytes) -> Any:
    """The value, as strict as `msgspec` and no stricter: it skips what a field it ignores holds."""
    value = json.loads(
        text.decode(errors=_AS_BYTES),
        object_pairs_hook=_Object,
        parse_constant=_refuse_constant,
        parse_int=lambda digits: int(digits) if len(digits) <= _DIGITS_MAX else float("inf"),
    )
    if b"\\u" in text:
        json.dumps(value, ensure_ascii=False).encode(errors=_AS_BYTES)  # half a character is none
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _plain_line(value: _Object) -> _PlainLine:
    if "type" not in value or "time_ns" not in value:
        raise ValueError("`type` and `time_ns` are needed")
    line = _PlainLine("", 0)
    for name, item in value.pairs:
        if item is None and (name in _OPTIONAL or name == "seqs"):
            setattr(line, name, None)
        elif name in _KINDS:
            setattr(line, name, _typed(name, item, _KINDS[name]))
        elif name in ("seqs", "closes"):
            setattr(line, name, _integers(name, item))
        elif name == "messages":
            text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
            line.messages = text.encode(errors=_AS_BYTES)
    return line


def _typed(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
    # JSON's true is no number, though Python's True is an int.
    if type(value) not in kinds:
        raise ValueError(f"`{name}` has the wrong type")
    if isinstance(value, str):
        value.encode()  # half a character is none
    return value


def _integers(name: str, numbers: Any) -> list[int]:
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        raise ValueError(f"`{name}` must be a list of integers")
    return numbers


class _FastDecoder:
    """The methods are those of `msgspec` themselves: nothing stands between."""

    def __init__(
        self,
        one: Callable[[bytes], Line],
        many: Callable[[bytes], Any],
        ids: Callable[[bytes], list[str]],
    ) -> None:
        self.one = one
        self.many = many
        self.ids = ids


def _fast_decoder() -> Decoder:
    class FastLine(msgspec.Struct, gc=False):
        type: str
        time_ns: int
        op: int | None = None
        process: int | str | None = None
        f: str | None = None
        session: str | None = None
        messages: msgspec.Raw = msgspec.Raw()
        limit: int | None = None
        seqs: list[int] | None = None
        key: str | None = None
        name: str | None = None
        closes: list[int] = msgspec.field(default_factory=list)
        landed: bool = True

    lines = msgspec.json.Decoder(FastLine)
    ids = msgspec.json.Decoder(list[str])

    return _FastDecoder(lines.decode, lines.decode_lines, ids.decode)


def decoder() -> Decoder:
    """The fastest decoder that is installed."""
    return _fast_decoder() if _FAST else PlainDecoder()


def numbered(blocks: Iterator[tuple[int, bytes]], decode: Decoder) -> Iterator[tuple[int, Line]]:
    """Every line with its number, in order; `NotAHistory` names the first that is none."""
    for first, block in blocks:
        try:
            lines = decode.many(block)
        except (ValueError, RecursionError):
            lines = []
        whole = len(lines) == block.count(b"\n") and block.endswith(b"\n")
        # A bad line, an empty one, or two values on one: only one by one tells which.
        yield from enumerate(lines if whole else _one_by_one(first, block, decode), first)


def _one_by_one(first: int, block: bytes, decode: Decoder) -> Iterator[Line]:
    """Each line as it is asked for: the caller may refuse one before the bad one is reached."""
    texts = block.split(b"\n")
    finished = texts[-1] == b""
    for number, text in enumerate(texts[:-1] if finished else texts, first):
        try:
            line = decode.one(text)
        except (ValueError, RecursionError) as error:
            half = not finished and number == first + len(texts) - 1
            what = "half written, its end is missing" if half else "not an event of a history"
            raise NotAHistory(f"{what}: {error}", line=number) from error
        yield line


@contextmanager
def unchanged(file: BinaryIO) -> Iterator[None]:
    """Refuses a file that is written to inside: half of one history is no history."""
    before = os.fstat(file.fileno())
    try:
        yield
    finally:
        after = os.fstat(file.fileno())
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise NotAHistory("changed while it was read; judge it when its writer has ended")
