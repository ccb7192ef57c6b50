"""Collects what the rules find in one session: each message once under each name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from holdfast.verify.judge.recheck import WITNESS_MAX
from holdfast.verify.judge.verdict import Anomaly


class Findings:
    """The anomalies of one session, in the order found; the first witness of each is kept."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._found: dict[tuple[str, str], tuple[Anomaly, tuple[int, ...]]] = {}

    def add(
        self,
        name: str,
        message: str,
        witness: Iterable[int],
        because: str,
        *,
        spare: Iterable[int] = (),
    ) -> None:
        """Take one finding, unless this message has that name already.

        `spare` are operations that the proof may need as well, in the order of their worth.
        """
        key = (name, message)
        if key not in self._found:
            numbers = tuple(dict.fromkeys(witness))
            anomaly = Anomaly(name, self._session, message, numbers, because)
            self._found[key] = anomaly, tuple(spare)

    def names(self, name: str) -> bool:
        """Whether anything of that name was found."""
        return any(found == name for found, _ in self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Anomaly]:
        return (anomaly for anomaly, _ in self._found.values())

    def proven(self, confirm: Callable[[Anomaly], bool]) -> list[Anomaly]:
        """The findings that their witness proves, with as little of the spare as that takes."""
        proven = []
        for anomaly, spare in self._found.values():
            whole = next((a for a in _with_spare(anomaly, spare) if confirm(a)), None)
            if whole is not None:
                proven.append(replace(whole, confirmed=True))
        return proven


def _with_spare(anomaly: Anomaly, spare: tuple[int, ...]) -> Iterator[Anomaly]:
    yield anomaly
    numbers = anomaly.witness
    for number in spare:
        if number not in numbers and len(numbers) < WITNESS_MAX:
            numbers = (*numbers, number)
            yield replace(anomaly, witness=numbers)
