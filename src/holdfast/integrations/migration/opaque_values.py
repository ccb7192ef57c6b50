"""LangGraph's values as they are stored: taken apart as far as a checkpoint needs, never brought to life.

No class of the application is imported, and nothing that a value would do when it is made is done: what
is an object stays the bytes that it was, on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

_OPTIONS: Final = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_PASSTHROUGH_DATACLASS


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object, as it was packed."""

    code: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that is stored in another way than as msgpack."""

    kind: str
    data: bytes


class OpaqueValues:
    """A serializer of LangGraph whose values are equal exactly where their bytes mean the same."""

    def __init__(self) -> None:
        self._plain = JsonPlusSerializer()

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        """As `JsonPlusSerializer` would, had it seen the objects."""
        if isinstance(value, Stored):
            return value.kind, value.data
        if value is None or isinstance(value, bytes | bytearray):
            return self._plain.dumps_typed(value)
        return "msgpack", _packed(value)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The inverse, for what any serializer has written."""
        kind, packed = data
        if kind in ("null", "bytes", "bytearray"):
            return self._plain.loads_typed(data)
        if kind == "msgpack":
            return _unpacked(packed)
        return Stored(kind, bytes(packed))


def _packed(value: Any) -> bytes:
    return ormsgpack.packb(value, default=_as_extension, option=_OPTIONS)


def _unpacked(packed: bytes) -> Any:
    return ormsgpack.unpackb(packed, ext_hook=_of_extension, option=ormsgpack.OPT_NON_STR_KEYS)


def _as_extension(value: Any) -> ormsgpack.Ext:
    if isinstance(value, _DeltaSnapshot):  # checkpointers look whether a value is one
        return ormsgpack.Ext(EXT_DELTA_SNAPSHOT, _packed(value.value))
    if isinstance(value, Opaque):
        return ormsgpack.Ext(value.code, value.data)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _of_extension(code: int, data: bytes) -> Any:
    if code == EXT_DELTA_SNAPSHOT:
        return _DeltaSnapshot(_unpacked(data))
    return Opaque(code, bytes(data))
