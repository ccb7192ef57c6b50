"""Collects what the rules find in one session: each message once under each name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from holdfast.verify.judge.recheck import WITNESS_MAX
from holdfast.verify.judge.verdict import Anomaly

SAME_MAX: Final = 3
"""So many witnesses of one finding are tried."""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding, and what else could explain it.

    `also` are promises which, given up in place of its own, explain it as well. `lean` is the one
    of them that explains it better than its own does. `read` is the read that shows it.
    """

    anomaly: Anomaly
    also: frozenset[str] = frozenset()
    lean: str = ""
    read: int | None = None
    reads: frozenset[int] = frozenset()
    """All reads that show the same of this message; those of a finding by itself are one."""

    spare: tuple[int, ...] = ()
    derived: bool = False
    """Whether it takes all of its witness together to see it."""

    @property
    def cause(self) -> str:
        """What is given up to explain it: its promise. What nobody wrote explains nothing else."""
        return "phantom" if self.anomaly.name == "phantom" else self.anomaly.promise


class Findings:
    """The findings of one session, in the order found; the first witnesses of each are kept."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._found: dict[tuple[str, str], list[Found]] = {}
        self._names: set[str] = set()
        self.apart = False
        """Whether batches are torn or mixed up, so that each message is judged by itself."""

    def add(
        self,
        name: str,
        message: str,
        witness: Iterable[int],
        because: str,
        *,
        spare: Iterable[int] = (),
        also: Iterable[str] = (),
        lean: str = "",
        read: int | None = None,
        reads: Iterable[int] = (),
        derived: bool = False,
    ) -> None:
        """Take one finding; further ones of this message and name stand in where it is not proven.

        `spare` are operations that the proof may need as well, in the order of their worth.
        """
        self._names.add(name)
        same = self._found.setdefault((name, message), [])
        if len(same) < SAME_MAX:
            numbers = tuple(dict.fromkeys(witness))
            anomaly = Anomaly(name, self._session, message, numbers, because)
            alike = frozenset(reads) or frozenset(() if read is None else (read,))
            same.append(Found(anomaly, frozenset(also), lean, read, alike, tuple(spare), derived))

    def names(self, name: str) -> bool:
        """Whether anything of that name was found."""
        return name in self._names

    def messages(self, name: str) -> set[str]:
        """Of which messages that was found."""
        return {message for found, message in self._found if found == name}

    def has(self, name: str, message: str) -> bool:
        """Whether that was found of this message already."""
        return (name, message) in self._found

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Anomaly]:
        return (same[0].anomaly for same in self._found.values())

    def proven(self, confirm: Callable[[Anomaly], bool]) -> list[Found]:
        """The findings that their witness proves, with as little of the spare as that takes."""
        proven = []
        for same in self._found.values():
            tries = ((found, a) for found in same for a in _with_spare(found))
            found, whole = next(((f, a) for f, a in tries if confirm(a)), (None, None))
            if found is not None and whole is not None:
                sentence = _sentence(whole) if found.derived else whole.because
                anomaly = replace(whole, confirmed=True, because=sentence)
                proven.append(replace(found, anomaly=anomaly))
        return proven


def _sentence(anomaly: Anomaly) -> str:
    numbers = ", ".join(map(str, anomaly.witness))
    return f"no order of operations {numbers} explains them all: {anomaly.because}"


def _with_spare(found: Found) -> Iterator[Anomaly]:
    yield found.anomaly
    numbers = found.anomaly.witness
    for number in found.spare:
        if number not in numbers and len(numbers) < WITNESS_MAX:
            numbers = (*numbers, number)
            yield replace(found.anomaly, witness=numbers)
