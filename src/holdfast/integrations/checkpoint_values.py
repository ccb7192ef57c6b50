"""Values of a graph's state as JSON carries them: packed, compressed, in parts. Pure."""

from __future__ import annotations

import base64
import functools
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from holdfast import codec
from holdfast.errors import Damaged

BASE: Final = 8
PART_ITEMS_MAX: Final = BASE**3
SQUEEZED_BYTES_MIN: Final = 256
DIGEST_BYTES: Final = 12
INFLATED_BYTES_MAX: Final = 1024 * 1024 * 1024

Packed = list[str]
"""A value of the graph: how it was serialized, that as base64, and "z" if it is compressed."""


class Part:
    """A part of a value as it was serialized; what is made of it is made once."""

    def __init__(self, kind: str, data: bytes) -> None:
        self.kind, self.data = kind, data

    @functools.cached_property
    def digest(self) -> str:
        """By which it is known again."""
        return digest_of(self.kind, self.data)

    @functools.cached_property
    def packed(self) -> Packed:
        """As a record carries it."""
        return pack(self.kind, self.data)


class ReadPart:
    """A part as it was read. From the third time on its value is a copy, which is faster."""

    __slots__ = ("_kept", "data", "digest", "kind")

    def __init__(self, kind: str, data: bytes) -> None:
        self.kind, self.data, self.digest = kind, data, digest_of(kind, data)
        self._kept: tuple[Any, bool, Any] = (None, False, None)

    def value(self, serde: Any) -> Any:
        """The value, another one each time: its reader may change it."""
        reader, is_kept, kept = self._kept
        if reader is serde and is_kept:
            return copied(kept)
        value = serde.loads_typed((self.kind, self.data))
        if reader is not serde:
            self._kept = serde, False, None
        elif kept is None:  # looked at once: whether a copy is exactly what was read
            is_same = self._is_same(value, serde)
            self._kept = (serde, True, copied(value)) if is_same else (serde, False, self)
        return value

    def _is_same(self, value: Any, serde: Any) -> bool:
        try:
            return bool(serde.dumps_typed(copied(value)) == (self.kind, self.data))
        except Exception:  # noqa: BLE001 - of any class that is in a graph's state
            return False


_PLAIN: Final = frozenset((str, int, float, bool, bytes, type(None)))


def copied(value: Any) -> Any:
    """A copy that shares nothing that can change; `TypeError` for a class that is not known."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [copied(one) for one in value]
    if kind is dict:
        return {
            name if type(name) is str else copied(name): (
                one if type(one) in _PLAIN else copied(one)
            )
            for name, one in value.items()
        }
    if getattr(value, "__pydantic_private__", kind) is not None:
        raise TypeError(kind)  # no model of pydantic, or one with more in it than is serialized
    made = kind.__new__(kind)  # as pydantic's own copy does it, in a third of the time
    object.__setattr__(made, "__dict__", copied(value.__dict__))
    object.__setattr__(made, "__pydantic_extra__", copied(value.__pydantic_extra__))
    object.__setattr__(made, "__pydantic_fields_set__", set(value.__pydantic_fields_set__))
    object.__setattr__(made, "__pydantic_private__", None)
    return made


Dumped = tuple[str, list[Part], Packed | None]
"""A value's parts, how they make it up, and all of it where it is small."""


def spans(count: int) -> Iterator[tuple[int, int]]:
    """(begin, size) of the parts of a list: the larger first, each a power of `BASE`."""
    begin, size = 0, PART_ITEMS_MAX
    while size:
        while count - begin >= size:
            yield begin, size
            begin += size
        size //= BASE


def form(dumped: Dumped, held: Mapping[str, Any], add: Callable[[Packed], int]) -> dict[str, Any]:
    """How the checkpoint has a value: in full, or by parts, of which the new ones are added."""
    how, made, whole = dumped
    if whole is not None:
        return {"in": whole}
    known = {digest: seq for seq, digest in held.get("one", held.get("list", ()))}
    refs = []
    for part in made:
        if part.digest not in known:
            known[part.digest] = add(part.packed)
        refs.append([known[part.digest], part.digest])
    return {how: refs}


def digest_of(kind: str, data: bytes) -> str:
    """By which a part is known again."""
    made = hashlib.sha256(kind.encode())  # with the processor's help it is the fastest
    made.update(b"\0")
    made.update(data)
    return base64.b64encode(made.digest()[:DIGEST_BYTES]).decode("ascii")


def pack(kind: str, data: bytes) -> Packed:
    """A serialized value as JSON can carry it, compressed where that helps."""
    if len(data) >= SQUEEZED_BYTES_MIN:
        small = zlib.compress(data, 1)
        if len(small) < len(data):
            return [kind, base64.b64encode(small).decode("ascii"), "z"]
    return [kind, base64.b64encode(data).decode("ascii")]


def unpack(packed: Packed) -> tuple[str, bytes]:
    """The inverse of `pack`; of the first release's values, too."""
    kind, text, *way = packed
    data = base64.b64decode(text, validate=True)
    return kind, _inflated(data) if way else data


def squeezed(value: Any) -> str:
    """JSON, compressed, as text."""
    return base64.b64encode(zlib.compress(codec.json_bytes(value), 1)).decode("ascii")


def unsqueezed(text: str) -> Any:
    """The inverse of `squeezed`."""
    return codec.json_value(_inflated(base64.b64decode(text, validate=True)))


def _inflated(data: bytes) -> bytes:
    """Decompressed; no more than a value can have been, by any author of the record."""
    inflate = zlib.decompressobj()
    try:
        plain = inflate.decompress(data, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise Damaged(f"a value of the thread cannot be decompressed: {error}") from error
    if not inflate.eof:
        raise Damaged("a value of the thread is cut short, or larger than any that was written")
    return plain


def pending_writes(
    records: Iterable[Mapping[str, Any]], special: Mapping[str, int]
) -> list[tuple[str, str, Packed]]:
    """(task, channel, packed value) of the writes that are pending, in LangGraph's order.

    `special` has the place of channels of which the last value counts.
    """
    held: dict[tuple[str, int], tuple[str, str, Packed]] = {}
    for kept in records:
        for index, (channel, value) in enumerate(kept["writes"]):
            slot = kept["task_id"], special.get(channel, index)
            if slot[1] < 0 or slot not in held:  # an error replaces, a task writes once
                held[slot] = kept["task_path"], channel, value
    ordered = sorted(held, key=lambda slot: (held[slot][0], *slot))
    return [(slot[0], *held[slot][1:]) for slot in ordered]
