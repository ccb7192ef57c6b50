"""Damages one stored record behind the store's back, and says what the store made of it.

A store's author may bring the way to damage it, `Target(tamper=…)`. Otherwise nothing is
known of how a user stores things, except that the id of a message stands somewhere in what the
engine holds (`stored.py` looks there). Ids are ASCII, so no serializer spells them otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import FaultNotProven
from holdfast.verify.adapters.plain import Read
from holdfast.verify.stored import Place, half, places_of
from holdfast.verify.target import Target

UNKNOWN_RECORDS: Final = (
    "how this store keeps its records is not known to the kit: Target(tamper=…) damages one"
)
ONLY_A_CHECKSUM: Final = (
    "half of a text in a column of its own is shown as if it were whole: only a checksum beside it "
    "could tell, and this store has none"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to a session."""

    where: str
    hit: int | None = None
    """Which of its messages, counted from 0; None where the target's own `tamper` chose."""
    shared: bool = False
    """Its neighbours stand in the same record, so that an error hides nothing else."""
    plain: bool = False
    """It was a text by itself: half of it is a text as well."""

    @property
    def alone(self) -> str:
        """What has to be said beside "named", in words."""
        return " (its session is one record, so that an error hides all of it)" * self.shared


class OnlyAChecksum(FaultNotProven):
    """A store without a checksum cannot tell this damage, and shows it."""


def messages(prefix: str, count: int) -> list[dict[str, Any]]:
    """What to say in a session that will be damaged: ASCII, and found nowhere else."""
    names = [f"{prefix}-{number}" for number in range(count)]
    return [{"id": n, "role": "user", "content": f"{n} {_needle(n)}"} for n in names]


def _needle(name: str) -> str:
    """Of the content and not of the id, which also stands in keys and indexes."""
    return f"{name}-said"


def damage_one(target: Target, session: str, sent: Sequence[dict[str, Any]]) -> Damage | None:
    """Damage one record of a session that holds these `messages`; None where nobody knows how."""
    if target.tamper is not None:
        target.tamper(session)
        return Damage("one record, by tamper() of the target")
    if target.engine is None:
        return None
    hit = len(sent) // 2
    text = str(sent[hit]["content"]).encode()
    others = [_needle(each["id"]).encode() for each in sent if each is not sent[hit]]

    def shared(place: Place) -> bool:
        return any(other in place.value for other in others)

    with places_of(target.engine, _needle(sent[hit]["id"]).encode()) as places:
        known = [place for place in places if not (place.opaque and shared(place))]
        # Beside a record, a column may hold the bare text as well, as for a search.
        records = [place for place in known if place.value != text]
        cut = [place for place in records or known if _cut(place)]
    if not cut:
        return None
    where = f"{cut[0].where} was cut in half"
    return Damage(where, hit, any(map(shared, cut)), plain=not records)


def _cut(place: Place) -> bool:
    """Whether the engine took half of it: a constraint may be in the way."""
    try:
        place.put(half(place.value))
    except Exception:  # noqa: BLE001 - any engine's error, and none of the store's
        return False
    return True


def wrong_with(
    damage: Damage, sent: Sequence[dict[str, Any]], seen: Read | Exception
) -> str | None:
    """What is wrong with how a damaged session is shown; None where the promise is kept.

    `FaultNotProven` where everything is shown as it was: then nothing may have been damaged.
    `OnlyAChecksum` where half of a text is shown, and is a text as well.
    """
    if isinstance(seen, Exception):
        return None if damage.shared else f"one damaged record hides the whole session: {seen!r}"
    texts = [message["content"] for message in sent]
    shown = [message.get("content") for message in seen.messages]
    missing = [number for number, text in enumerate(texts) if text not in shown]
    named = seen.damaged or any("damaged" in message for message in seen.messages)
    hidden = len(missing) - 1 if damage.hit is None else len({*missing} - {damage.hit})
    if hidden > 0 and not damage.shared:
        return f"one damaged record hides {hidden} others that are sound"
    if named:
        return None
    if not missing:
        raise FaultNotProven("damage: every message is shown as it was before")
    if len(shown) > len(texts) - len(missing):
        if damage.plain:
            raise OnlyAChecksum(ONLY_A_CHECKSUM)
        return f"a damaged record is shown as if it were sound: {shown}"
    return f"a damaged record is left out, and nothing names it: {shown} came back"


def wrong_beside(sent: Sequence[dict[str, Any]], seen: Read | Exception) -> str | None:
    """What is wrong with another session, in which nothing was damaged."""
    if isinstance(seen, Exception):
        return f"a damaged record of one session hides another session: {seen!r}"
    shown = [message.get("content") for message in seen.messages]
    missing = [message for message in sent if message["content"] not in shown]
    words = f"a damaged record of one session hides {len(missing)} messages of another"
    return words if missing else None
