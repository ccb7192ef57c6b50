"""Vectors as bytes: checked, of length one, small. Pure, but for numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Refused, UsageError

if TYPE_CHECKING:
    import numpy as np

INSTALL: Final = "Run: pip install 'holdfast[recall]'"
_SCALE: Final = 127.0
_BITS: Final = 8


@dataclass(slots=True)
class Packed:
    """One vector: a signed byte a dimension, and the bits of its signs."""

    vector: bytes
    sketch: bytes


def numpy() -> Any:
    """The library; it comes with the extra."""
    try:
        import numpy as np  # noqa: PLC0415 - only recall needs it
    except ImportError as error:
        raise UsageError(f"recall needs numpy, which is not installed. {INSTALL}") from error
    return np


def pack(rows: Any, *, model: str, count: int, dimension: int) -> list[Packed]:
    """What an embedder gave, as an index keeps it; `Refused` if it is not what it promised."""
    np = numpy()
    try:
        matrix = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise _refused(model, f"what is no matrix of numbers ({error})") from error
    if matrix.shape != (count, dimension):
        raise _refused(model, f"vectors of shape {matrix.shape}, not {(count, dimension)}")
    if not np.isfinite(matrix).all():
        raise _refused(model, "a number that is not finite")
    if dimension % _BITS:
        matrix = np.pad(matrix, ((0, 0), (0, -dimension % _BITS)))
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix = matrix / np.where(lengths == 0, 1, lengths)
    # Its largest number is the scale of each: small ones keep what tells them apart.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    small = np.rint(matrix * (_SCALE / np.where(largest == 0, 1, largest))).astype(np.int8)
    bits = np.packbits(matrix > 0, axis=1)
    return [Packed(v.tobytes(), b.tobytes()) for v, b in zip(small, bits, strict=True)]


def unpack(vectors: Sequence[bytes]) -> np.ndarray[Any, Any]:
    """Rows of length one."""
    np = numpy()
    matrix = np.frombuffer(b"".join(vectors), dtype=np.int8).reshape(len(vectors), -1)
    rows = matrix.astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)  # type: ignore[no-any-return]


def nearness(vector: bytes, others: Sequence[bytes]) -> list[float]:
    """The cosine between a vector and each of the others."""
    if not others:
        return []
    return (unpack(others) @ unpack([vector])[0]).tolist()  # type: ignore[no-any-return]


def _refused(model: str, what: str) -> Refused:
    return Refused(
        f"the embedder {model} gave {what}. Nothing was indexed; the log is complete. Correct the "
        "embedder, or name its true dimension",
        operation="recall",
    )
